// npm run soak -- --minutes 30: real browsers follow one real gateway while everything goes wrong, and a judge compares
// what each page was shown with the log.
//
//   npm run soak -- --minutes 1 --seed 7 --only Firefox
//
// A minute is a round: most of it everything goes wrong, then nothing does and every page must be right within
// RIGHT_MS. What is wrong is printed; the last line is `N passed, N failed`.
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { buildGateway, buildPackage } from '../../scripts/build.mjs';
import { setup } from '../../scripts/setup.mjs';
import { isStopping, root, stopAll, stopOnSignals } from '../../scripts/tools.mjs';
import { ENGINES } from './engines.mjs';
import { Gateway } from './gateway.mjs';
import { host } from './host.mjs';
import { differences, FAULTS, Judge } from './judge.mjs';
import { checkJudge } from './judge_check.mjs';
import { OTHERS, Producer } from './producer.mjs';
import { seeded, Storm } from './storm.mjs';
import { Truth } from './truth.mjs';

/** How long everything goes wrong in a round, in milliseconds. */
const RAGE_MS = 42_000;

/** After the last fault every page is right within this time, in milliseconds. */
const RIGHT_MS = 30_000;

/** How long the wasm is made to trap at the end, on a wire that is whole, in milliseconds. */
const TRAPS_MS = 10_000;

/** How long it must stay right, in milliseconds. */
const STAY_MS = 1_500;

const MINUTE_MS = 60_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const results = { passed: 0, failed: 0 };

function expect(what, isTrue, why = '') {
  results[isTrue ? 'passed' : 'failed'] += 1;
  if (!isTrue) console.log(`FAILED ${what}${why && `: ${why}`}`);
}

function readArguments() {
  const given = { minutes: 1, seed: 1 + Math.floor(Math.random() * 1e6), only: Object.keys(ENGINES) };
  const args = process.argv.slice(2);
  while (args.length > 0) {
    const [name, value] = args.splice(0, 2);
    if (name === '--minutes' && value > 0) given.minutes = Number(value);
    else if (name === '--seed' && value > 0) given.seed = Number(value);
    else if (name === '--only' && value?.split(',').every((engine) => ENGINES[engine])) given.only = value.split(',');
    else throw new Error(`--minutes N, --seed N, --only ${Object.keys(ENGINES).join(',')}; not ${name} ${value}`);
  }
  return given;
}

/** One browser and what its page notes. */
class Follower {
  /** By load of the page. */
  judges = new Map();
  /** Notes wait until all that they speak of is known to be stored. */
  #waiting = [];
  #told = 0;
  slowest = 0;

  constructor(name, engine, random) {
    Object.assign(this, { name, engine, random });
  }

  /** Where its page is. */
  address(site, gateway, more = {}) {
    const socket = `${gateway.url.replace('http', 'ws')}/ws?faults=${this.name}`;
    return `${site.url}?${new URLSearchParams({ engine: this.name, gateway: socket, entities: OTHERS.join(','), ...more })}`;
  }

  receive(session, notes) {
    this.#waiting.push([session, notes]);
  }

  /** Judges what was noted so far. */
  judge(truth) {
    for (const [session, notes] of this.#waiting.splice(0)) {
      if (!this.judges.has(session)) this.judges.set(session, new Judge(truth));
      this.judges.get(session).take(notes);
    }
  }

  async current() {
    return JSON.parse(await this.engine.evaluate('current()'));
  }

  /** Waits until the page shows what is true; returns what is wrong after RIGHT_MS. */
  async settle(truth, since) {
    for (;;) {
      let wrong;
      try {
        wrong = differences(await this.current(), truth, OTHERS);
      } catch (error) {
        // A page that has just come back may still be loading.
        wrong = [String(error)];
      }
      const took = performance.now() - since;
      if (wrong.length === 0) {
        this.slowest = Math.max(this.slowest, took);
        return [];
      }
      if (took > RIGHT_MS) return wrong;
      await pause(200);
    }
  }

  /** What was found wrong, in words. */
  get faults() {
    return [...this.judges.values()].flatMap(({ words }) => words);
  }

  /** Says what was found since the last time. */
  tell() {
    for (const words of this.faults.slice(this.#told)) console.log(`  ${this.name}: ${words}`);
    this.#told = this.faults.length;
  }

  /** Waits for the page's last notes. */
  async hear(truth) {
    const { session, count } = await this.current();
    for (let look = 0; look < 150; look++) {
      this.judge(truth);
      if (this.judges.get(session)?.isWhole(count)) return true;
      await pause(100);
    }
    return false;
  }

  sum(of) {
    const sum = {};
    for (const judge of this.judges.values()) {
      for (const [name, count] of Object.entries(judge[of])) sum[name] = (sum[name] ?? 0) + count;
    }
    return sum;
  }
}

function table(rows) {
  const names = Object.keys(rows[0]);
  const widths = names.map((name) => Math.max(name.length, ...rows.map((row) => String(row[name]).length)));
  const line = (cells) =>
    cells.map((cell, at) => String(cell)[at === 0 ? 'padEnd' : 'padStart'](widths[at])).join('  ');
  console.log(line(names));
  for (const row of rows) console.log(line(names.map((name) => row[name])));
}

async function soak({ minutes, seed, only }, binary) {
  console.log(`seed ${seed}`);
  const random = seeded(seed);
  const truth = new Truth();
  const gateway = new Gateway(binary);
  const dist = `${root}/pkg/dist`;
  const followers = new Map();
  const site = await host(
    fileURLToPath(new URL('page', import.meta.url)),
    dist,
    readdirSync(dist).filter((file) => file.endsWith('.js')),
    (engine, session, notes) => followers.get(engine)?.receive(session, notes),
  );
  try {
    await gateway.start();
    truth.begin((await gateway.ask('GET', '/health')).epoch, new Map());
    const producer = new Producer(gateway.url, truth, random);
    for (let i = 0; i < 20; i++) await producer.step();

    await Promise.all(
      only.map(async (name, at) => {
        const follower = new Follower(name, await ENGINES[name].start(), seeded(seed + at + 1));
        followers.set(name, follower);
        await follower.engine.open(follower.address(site, gateway));
      }),
    );
    const all = only.map((name) => followers.get(name));
    const storm = new Storm(gateway, truth, producer, all, `${site.url}away.html`, random);

    const end = performance.now() + minutes * MINUTE_MS;
    for (let round = 1; round === 1 || end - performance.now() > MINUTE_MS / 2; round++) {
      await storm.rage(RAGE_MS);
      await beRight(all, truth, `round ${round}`);
      await compareLog(gateway, truth, round);
      console.log(
        `round ${round}: ${producer.stored} changes stored, ${all.flatMap(({ faults }) => faults).length} faults; right after ` +
          all.map(({ name, took }) => `${took} s ${name}`).join(', '),
      );
      for (const follower of all) follower.tell();
    }
    await trap(all, truth, producer, (follower) => follower.address(site, gateway, { traps: 1 }));
    conclude(all, storm, minutes);
  } finally {
    await Promise.allSettled([...followers.values()].map(({ engine }) => engine.stop()));
    await gateway.stop();
    site.stop();
  }
}

/** Every page must become right, stay so, and hand in its notes. */
async function beRight(all, truth, when) {
  const calm = performance.now();
  await Promise.all(
    all.map(async (follower) => {
      const { name } = follower;
      const wrong = await follower.settle(truth, calm);
      follower.took = ((performance.now() - calm) / 1_000).toFixed(1);
      if (wrong.length > 0) {
        follower.judge(truth);
        wrong.push(...([...follower.judges.values()].at(-1)?.story ?? []));
      }
      expect(`${when}, ${name} is right`, wrong.length === 0, `after ${follower.took} s\n  ${wrong.join('\n  ')}`);
      await pause(STAY_MS);
      const again = differences(await follower.current(), truth, OTHERS);
      expect(`${when}, ${name} stays right`, again.length === 0, again.join('\n  '));
      expect(`${when}, ${name} handed in its notes`, await follower.hear(truth));
    }),
  );
}

/** Makes the wasm trap in each engine, again and again, from wherever it is entered then. */
async function trap(all, truth, producer, address) {
  await Promise.all(all.map((follower) => follower.engine.open(address(follower))));
  producer.run(60);
  await pause(TRAPS_MS);
  await Promise.all(all.map(({ engine }) => engine.evaluate('endTraps()')));
  await producer.rest();
  await beRight(all, truth, 'after traps');
}

/** The log must have what was stored: a kill loses nothing. */
async function compareLog(gateway, truth, round) {
  const { epoch, entities } = await gateway.entities();
  const wrong = [];
  for (const { entity, seq } of entities) {
    if (seq !== truth.head(entity)) wrong.push(`${entity} is at ${seq}, ${truth.head(entity)} were stored`);
  }
  if (epoch !== truth.epoch) wrong.push(`the epoch is ${epoch}, not ${truth.epoch}`);
  expect(`round ${round}, the log has all that was stored`, wrong.length === 0, wrong.join('\n  '));
}

/** Prints what happened and counts what was wrong. */
function conclude(all, storm, minutes) {
  for (const { judges } of all) for (const judge of judges.values()) judge.end();
  const done = storm.deeds.gateway ?? {};
  console.log(
    `\nthe gateway: ${Object.entries(done)
      .map(([what, count]) => `${what} ${count}`)
      .join(', ')}`,
  );
  table(
    all.map((follower) => {
      const counts = follower.sum('counts');
      const stats = follower.sum('stats');
      const deeds = storm.deeds[follower.name] ?? {};
      return {
        engine: follower.name,
        loads: follower.judges.size,
        sockets: counts.sockets,
        hidden: deeds.hide ?? 0,
        frozen: deeds.freeze ?? 0,
        restored: counts.restored ?? 0,
        'half open': deeds['half open'] ?? 0,
        gaps: stats.gaps,
        replays: stats.replays,
        snapshots: stats.snapshots,
        resets: counts.resets,
        changes: counts.changes,
        shown: counts.shown,
        traps: counts.traps,
      };
    }),
  );
  console.log('');
  table(
    all.map((follower) => ({
      engine: follower.name,
      ...follower.sum('faults'),
      'right after': `${(follower.slowest / 1_000).toFixed(1)} s`,
    })),
  );
  for (const follower of all) follower.tell();
  console.log('');
  for (const follower of all) {
    const { name } = follower;
    const faults = follower.sum('faults');
    for (const fault of FAULTS) expect(`${name}: ${fault}`, faults[fault] === 0, String(faults[fault]));
    // A soak in which nothing happened would prove nothing.
    const counts = follower.sum('counts');
    const stats = follower.sum('stats');
    const deeds = storm.deeds[name] ?? {};
    const happened = {
      hidden: Math.min(deeds.hide ?? 0, counts.hidden),
      frozen: name === 'Chromium' ? counts.frozen : (deeds.freeze ?? 0),
      // Firefox keeps a page only where no socket is open or being opened, which takes some tries.
      ...((!follower.engine.needsSilence || minutes >= 5) && { 'back from the cache': counts.restored }),
      'half open': deeds['half open'] ?? 0,
      sockets: counts.sockets - 2,
      gaps: stats.gaps,
      resets: counts.resets,
      'states shown': counts.shown - 100,
      'traps that were made': counts.traps - 1,
    };
    for (const [what, count] of Object.entries(happened)) expect(`${name}: ${what}`, count > 0, 'did not happen');
  }
  for (const what of ['kill', 'new_epoch', 'trim', 'stale_snapshot', 'crash']) {
    expect(`the gateway: ${what}`, done[what] > 0, 'did not happen');
  }
}

stopOnSignals();
try {
  const given = readArguments();
  let binary = process.env.INORDER_GATEWAY;
  if (!binary) {
    await setup('soak');
    await buildPackage();
    binary = await buildGateway();
  }
  checkJudge(expect);
  await soak(given, binary);
} catch (error) {
  if (!isStopping()) expect('the soak ran', false, error.stack);
}
if (!isStopping()) {
  await stopAll();
  console.log(`${results.passed} passed, ${results.failed} failed`);
  process.exit(results.failed > 0 ? 1 : 0);
}
