// Partitions: those of one are not kept waiting by another, cursors have a row of each, and what follows from what
// was answered is pushed after it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import WebSocket from 'ws';
import { Gateway } from './gateway.mjs';

/** Nothing here takes longer, unless it is wrong. */
const PATIENCE_MS = 20_000;
const SCHEMA = 'parts';
/** As many as flushes that would take turns last longer than those that are shared. */
const PARTITIONS = 8;
/** A gateway waits so long for a lock; what is answered sooner did not wait. */
const LOCK_MS = 5_000;
/** PostgreSQL sleeps so long before each flush of its log, and a post of each partition takes so long at most. */
const FLUSH_MS = 100;
const TOGETHER_MS = 4 * FLUSH_MS;
const TRIES = 5;
/** More events than a gateway reads at a time, which are 1,000; so many posts are on their way at a time. */
const MANY = 1_300;
const POSTS = 16;

const post = async (gateway, entity, event, signal) => {
  const answer = await fetch(`${gateway.url}/entities/${entity}/events`, {
    method: 'POST',
    body: JSON.stringify(event),
    signal,
  });
  return { status: answer.status, body: await answer.json() };
};

/** A socket without a client behind it: what comes is kept as it came. */
class Wire {
  frames = [];
  #socket;

  static async open(gateway) {
    const wire = new Wire();
    const socket = new WebSocket(gateway.socketUrl, 'inorder.v1.json');
    wire.#socket = socket;
    socket.on('message', (text) => wire.frames.push(...[JSON.parse(text)].flat()));
    await once(socket, 'open');
    wire.send({ type: 'hello', client: 'partitions/1' });
    return wire;
  }

  send(...frames) {
    this.#socket.send(JSON.stringify(frames));
  }

  /** The frames up to the first that will do; they are taken. */
  async until(will) {
    for (const until = Date.now() + PATIENCE_MS; Date.now() < until; await sleep(10)) {
      const at = this.frames.findIndex(will);
      if (at >= 0) return this.frames.splice(0, at + 1);
    }
    throw new Error(`it never came; there are ${JSON.stringify(this.frames).slice(0, 2_000)}`);
  }

  /** Joins or resumes a topic; the frames of the answer, and the cursor that ends it. */
  async topic(entry) {
    this.send({ type: 'subscribe', request: 1, entities: [entry] });
    const frames = await this.until(({ type, cursors }) => type === 'heartbeat' && cursors?.length > 0);
    return { frames: frames.filter(({ type }) => type !== 'heartbeat'), cursor: frames.at(-1).cursors[0][1] };
  }

  close() {
    this.#socket.terminate();
  }
}

/** Runs a transaction that holds a lock until what comes back is called. */
async function hold(cluster, statement) {
  const child = spawn(cluster.program('psql'), ['-X', '-q', '-At', '-v', 'ON_ERROR_STOP=1', cluster.url()], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  child.stdin.write(`BEGIN;\n${statement};\n\\echo held\n`);
  for await (const line of createInterface({ input: child.stdout })) if (line === 'held') break;
  return async () => {
    child.stdin.end('COMMIT;\n');
    if (child.exitCode === null) await once(child, 'exit');
  };
}

const partitionsOf = (cluster) =>
  Object.fromEntries(
    cluster
      .sql(`SELECT name, partition FROM ${SCHEMA}.entity WHERE name LIKE 'order/part-%' ORDER BY name`)
      .split('\n')
      .map((line) => line.split('|')),
  );

/** Everything about partitions, on a log of its own; `check` and `expect` tell what was found. */
export async function partitions({ cluster, binary, check, expect }) {
  const log = ['--database', cluster.url(SCHEMA), '--partitions', String(PARTITIONS), '--log', 'warn'];
  const gateways = [await Gateway.start(binary, ...log), await Gateway.start(binary, ...log)];
  const [one, other] = gateways;
  const topic = 'topic/parts';
  const names = Array.from({ length: 40 }, (_, at) => `order/part-${at}`);
  for (const name of names) {
    for (let count = 0; count < 3; count += 1) await post(one, name, { data: { count } });
  }
  await post(other, topic, { data: { add: names } });
  const partitionOf = partitionsOf(cluster);
  const ofTopic = cluster.sql(`SELECT partition FROM ${SCHEMA}.entity WHERE name = '${topic}'`);
  const inEach = Object.values(Object.fromEntries(names.map((name) => [partitionOf[name], name])));
  expect(`entities lie in all ${PARTITIONS} partitions`, inEach.length === PARTITIONS);

  // One partition's line is locked, as by a gateway that hangs in the middle of a commit.
  const stuck = inEach.find((name) => partitionOf[name] !== ofTopic);
  const free = inEach.filter((name) => name !== stuck);
  const wire = await Wire.open(other);
  await wire.topic({ entity: topic });
  const release = await hold(cluster, `SELECT FROM ${SCHEMA}.partition WHERE id = ${partitionOf[stuck]} FOR UPDATE`);
  const since = performance.now();
  const waiting = post(one, stuck, { id: 'stuck', data: { stuck: true } });
  const early = await Promise.race([waiting.then(() => true), sleep(200).then(() => false)]);
  const answers = await Promise.all(
    free.flatMap((name) => [post(one, name, { id: `a-${name}` }), post(other, name, { id: `b-${name}` })]),
  );
  const pushed = new Set();
  while (pushed.size < 2 * free.length && performance.now() - since < LOCK_MS) {
    for (const { type, id } of wire.frames.splice(0)) if (type === 'event') pushed.add(id);
    await sleep(10);
  }
  const took = performance.now() - since;
  const seen = pushed.delete('stuck');
  await release();
  const last = await waiting;
  expect('a partition that is locked waits', !early && !seen);
  expect(
    `the other ${free.length} are committed and pushed meanwhile`,
    answers.every(({ status }) => status === 200) && pushed.size === 2 * free.length && took < LOCK_MS,
    `${pushed.size} of ${2 * free.length} after ${took.toFixed(0)} ms`,
  );
  expect('and it goes on when it is free', last.status === 200, JSON.stringify(last));
  await wire.until(({ id }) => id === 'stuck');

  // Commits of different partitions are flushed together: nothing makes them take turns, NOTIFY neither.
  const setDelay = (delay) => {
    cluster.sql(`ALTER SYSTEM SET commit_delay = ${delay * 1_000}`);
    cluster.sql(`ALTER SYSTEM SET commit_siblings = ${delay > 0 ? 0 : 5}`);
    cluster.sql('SELECT pg_reload_conf()');
  };
  setDelay(FLUSH_MS);
  let best = Infinity;
  for (let tries = 0; tries < TRIES && best > TOGETHER_MS; tries += 1) {
    const begun = performance.now();
    await Promise.all(inEach.map((name, at) => post(gateways[at % gateways.length], name, { data: { tries } })));
    best = Math.min(best, performance.now() - begun);
  }
  setDelay(0);
  expect(
    `${PARTITIONS} partitions are flushed together`,
    best <= TOGETHER_MS,
    `${best.toFixed(0)} ms, where a flush takes ${FLUSH_MS}`,
  );

  // What a cursor covers is not sent again, and what came after it is, in every partition and at the other gateway.
  const { epoch } = (await post(one, stuck, {})).body;
  const first = await Wire.open(one);
  const { cursor } = await first.topic({ entity: topic });
  first.close();
  const wrong = [];
  const resume = async (given) => {
    const again = await Wire.open(other);
    const { frames } = await again.topic({ entity: topic, epoch, after: 1, cursor: given });
    again.close();
    const of = (kind) => frames.filter(({ type, entity }) => type === kind && entity !== topic);
    return {
      snapshots: of('snapshot').length,
      replays: Object.fromEntries(of('replay').map(({ entity, events }) => [entity, events.map(({ id }) => id)])),
    };
  };
  const quiet = await resume(cursor);
  if (quiet.snapshots > 0 || Object.keys(quiet.replays).length > 0) wrong.push(`not quiet: ${JSON.stringify(quiet)}`);
  for (const name of inEach) await post(one, name, { id: `after-${name}` });
  const after = await resume(cursor);
  if (after.snapshots > 0) wrong.push(`${after.snapshots} snapshots`);
  const due = Object.fromEntries(inEach.map((name) => [name, [`after-${name}`]]));
  for (const name of new Set([...Object.keys(due), ...Object.keys(after.replays)])) {
    const [got, wanted] = [after.replays[name], due[name]].map((ids) => JSON.stringify(ids));
    if (got !== wanted) wrong.push(`${name}: ${got} instead of ${wanted}`);
  }
  check(`a resume at the other gateway: the ${inEach.length} changes after the cursor, one of each partition`, wrong);

  // A cursor that lost a partition, has one too many, or is of rows that never were, is worth nothing.
  const parts = cursor.split('.');
  const broken = [
    ...parts.slice(1).map((_, at) => parts.toSpliced(at + 1, 1)),
    [...parts, '1'],
    ...parts.slice(1).map((_, at) => parts.toSpliced(at + 1, 1, 'zzzzzzzz')),
    parts.slice(0, 1),
    ['nonsense'],
  ];
  const believed = [];
  for (const given of broken.map((each) => each.join('.'))) {
    const { snapshots, replays } = await resume(given);
    if (snapshots !== names.length || Object.keys(replays).length > 0) believed.push(`${given} was believed`);
  }
  check(`${broken.length} cursors of other partitions: a fresh answer`, believed);

  // A gateway that stood still has more to read than it does at a time: partitions are cut where they are.
  const deaf = await Gateway.start(binary, ...log, '--deaf');
  const late = await Wire.open(deaf);
  await late.topic({ entity: topic });
  process.kill(deaf.pid, 'SIGSTOP');
  let [posted, refused] = [0, 0];
  const work = async () => {
    while (posted < MANY) {
      const { status } = await post(one, names[(posted += 1) % names.length], {});
      if (status !== 200) refused += 1;
    }
  };
  await Promise.all(Array.from({ length: POSTS }, work));
  process.kill(deaf.pid, 'SIGCONT');
  const numbers = new Map();
  for (const until = Date.now() + PATIENCE_MS; Date.now() < until; await sleep(10)) {
    for (const { type, entity, seq } of late.frames.splice(0)) {
      if (type === 'event') numbers.set(entity, [...(numbers.get(entity) ?? []), seq]);
    }
    if ([...numbers.values()].flat().length >= posted) break;
  }
  const left = [...numbers].filter(([, seqs]) => seqs.some((seq, at) => seq !== seqs[0] + at));
  const came = [...numbers.values()].flat().length;
  if (came !== posted || refused > 0) left.push(`${came} of ${posted} came, ${refused} were refused`);
  check(`a gateway that stood still reads ${posted} rows, none left out`, left);

  // What it reads at a time, a member's last change and the event that removes it, is pushed in this order.
  for (const name of names) {
    await post(one, name, { id: `last-${name}` });
    await post(other, topic, { id: `leave-${name}`, data: { remove: [name] } });
  }
  const frames = await late.until(({ id }) => id === `leave-${names.at(-1)}`);
  const order = frames.flatMap(({ id }) => (/^(last|leave)-/.test(id ?? '') ? [id] : []));
  check(
    `a member's last change comes before the event that removes it, ${names.length} times`,
    JSON.stringify(order) === JSON.stringify(names.flatMap((name) => [`last-${name}`, `leave-${name}`])) ? [] : order,
  );
  late.close();
  wire.close();
  await Promise.all([deaf, ...gateways].map((gateway) => gateway.down()));
  await refusals({ cluster, binary, expect });
}

/** What a gateway does not begin with. */
async function refusals({ cluster, binary, expect }) {
  const refused = (...args) =>
    Gateway.start(binary, ...args).then(
      async (gateway) => {
        await gateway.down();
        return 'it began';
      },
      ({ message }) => message,
    );
  const others = await refused('--database', cluster.url(SCHEMA), '--partitions', String(PARTITIONS + 1));
  expect(
    'another number of partitions than the log has is refused',
    others.includes(`the log has ${PARTITIONS} partitions and --partitions asks for ${PARTITIONS + 1}`),
    others,
  );
  const same = await Gateway.start(binary, '--database', cluster.url(SCHEMA), '--partitions', String(PARTITIONS));
  await same.down();
  const own = await Gateway.start(binary, '--database', cluster.url('three'), '--partitions', '3');
  await own.down();
  const again = await Gateway.start(binary, '--database', cluster.url('three'));
  await again.down();
  expect('a new log has as many as were asked for', cluster.sql('SELECT count(*) FROM three.partition') === '3');
  cluster.sql('CREATE SCHEMA older');
  cluster.sql('CREATE TABLE older.meta (id INT PRIMARY KEY, epoch TEXT, row BIGINT, identity TEXT, past TEXT[])');
  const older = await refused('--database', cluster.url('older'));
  expect('tables without partitions are refused', older.includes('the tables are those of an earlier version'), older);
  const sqlite = await refused('--database', 'memory', '--partitions', '2');
  expect('SQLite has one partition', sqlite.includes('the log has 1 partitions'), sqlite);
}
