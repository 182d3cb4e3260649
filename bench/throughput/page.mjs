// Runs one workload in the page and returns the times. Called by ../run.mjs.
import { CONTENDERS } from './contenders.mjs';
import { Sink } from './sink.mjs';
import { serve, socketTo } from './socket.mjs';
import { CHUNK, Feed, messages, WORKLOADS } from './workloads.mjs';

/** Passes before the clock counts: the compilers of the browser get to know the code. */
const WARM_UP = 4;

/** Feeds a chunk and returns the milliseconds it took. One function for all, so that none has a better one. */
async function run({ sink, socket, server, contender }, texts, deliveries, withAnswers) {
  sink.expect(deliveries);
  const began = performance.now();
  if (contender.feed === 'turns') {
    for (let i = 0; i < texts.length; i++) {
      socket.receive(texts[i]);
      if (withAnswers) server.tick(socket);
      await undefined;
    }
  } else {
    for (let i = 0; i < texts.length; i++) {
      socket.receive(texts[i]);
      if (withAnswers) server.tick(socket);
    }
  }
  if (withAnswers) server.finish(socket);
  if (contender.feed === 'drain') await sink.delivered();
  return performance.now() - began;
}

/** Lets timers and garbage have their turn outside of the measured time. */
const breathe = () => new Promise((resolve) => setTimeout(resolve));

globalThis.measure = async (name, { passes, only }) => {
  const workload = WORKLOADS[name];
  const feed = new Feed(workload);
  const team = [];
  for (const key of workload.contenders) {
    if (only && !only.includes(key)) continue;
    const contender = CONTENDERS[key];
    const url = `ws://${key.toLowerCase()}.bench.test`;
    const server = contender.server(feed);
    serve(url, server);
    const sink = new Sink(workload.entities);
    const close = await contender.open(url, workload.entities, sink, workload);
    const best = new Float64Array(workload.chunks).fill(Infinity);
    const sums = new Float64Array(workload.chunks);
    const socket = socketTo(url);
    team.push({ key, contender, server, sink, socket, close, best, sums, total: 0, wrong: undefined, checks: 0 });
  }
  let number = 0;
  for (let pass = 0; pass < WARM_UP + passes; pass++) {
    const chunks = feed.pass();
    for (let at = 0; at < chunks.length; at++) {
      const { events, fresh } = chunks[at];
      for (const event of events) event.number = ++number;
      const texts = {};
      for (const { contender } of team) {
        texts[contender.dialect] ??= messages(contender.dialect, events, workload.batch);
      }
      await breathe();
      for (let i = 0; i < team.length; i++) {
        const member = team[(i + at + pass) % team.length];
        const { contender, sink, best, sums } = member;
        // Those who do not order see everything that was sent.
        const deliveries = contender.unordered ? events.length : fresh;
        const took = await run(member, texts[contender.dialect], deliveries, workload.gaps > 0);
        // Their callbacks may repeat a number, which is no delivery; and microtasks may conflate.
        if (!contender.unordered && contender.feed !== 'turns' && sink.count !== deliveries) {
          member.wrong ??= `${sink.count} of ${deliveries} delivered in chunk ${at} of pass ${pass}`;
        }
        member.total += sink.count;
        if (pass < WARM_UP) continue;
        best[at] = Math.min(best[at], took);
        sums[at] += took;
      }
    }
  }
  const ends = feed.seqs;
  for (const member of team) {
    const { contender, sink } = member;
    if (contender.unordered) continue;
    const behind = ends.findIndex((seq, entity) => sink.last[entity] !== seq);
    if (behind >= 0) member.wrong ??= `entity ${behind} ended at ${sink.last[behind]}, not at ${ends[behind]}`;
  }
  const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
  const results = {};
  for (const { key, sink, best, sums, total, wrong, server } of team) {
    results[key] = {
      // Nanoseconds per event.
      best: (mean(best) / CHUNK) * 1e6,
      mean: (mean(sums) / passes / CHUNK) * 1e6,
      delivered: total,
      checksum: sink.sum >>> 0,
      ...(server.replays && { replays: server.replays }),
      ...(wrong && { wrong }),
    };
  }
  for (const { close } of team) close();
  return results;
};
