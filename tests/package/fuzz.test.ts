// Frames, names and options that nobody would think of, by fast-check, each against a naive model.
//
// `FUZZ_SEED=7 npm test -- unit` draws others. What fails is shrunk and printed with its seed.
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { createClient, InorderError, model } from '../../pkg/dist/index.js';
import { type Frame, useClock, World } from './server.js';

useClock();

const seed = Number(process.env['FUZZ_SEED'] ?? 1);
const runs = (numRuns: number): fc.Parameters<any> => ({ numRuns, seed });

vi.setConfig({ testTimeout: 60_000 });

/** Mostly this, sometimes anything. */
const mostly = <T>(usual: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 12, arbitrary: usual }, { weight: 1, arbitrary: fc.jsonValue() });

const seqs = fc.oneof(
  fc.integer({ min: 0, max: 20 }),
  fc.integer({ min: 0, max: 20 }).map(String),
  fc.constantFrom(-1, 0.5, 2 ** 53 - 1, 2 ** 53, '9007199254740991', ''),
);
const entity = fc.constantFrom('job/1', 'job/1', 'job/1', 'job/2', 'topic/t', '__proto__');
const epoch = fc.constantFrom('E', 'E', 'E', 'F');
const status = fc.constantFrom('running', 'paused', 'completed');
const request = fc.integer({ min: 1, max: 6 });
const data = fc.oneof(fc.jsonValue(), fc.constant(['job/2']), fc.constant({ add: ['job/2'], remove: ['job/3'] }));

const change = { seq: mostly(seqs), status: mostly(status), id: mostly(fc.constantFrom('a', 'b')), data: mostly(data) };
const rare = {
  prev: mostly(seqs),
  first: mostly(seqs),
  n: mostly(fc.nat(9)),
  part: mostly(fc.nat(3)),
  of: mostly(fc.nat(3)),
};
const events = fc.array(fc.record(change, { requiredKeys: ['seq'] }), { maxLength: 4 });
const about = { entity: mostly(entity), epoch: mostly(epoch), request: mostly(request) };
const typed = (type: string, fields: Record<string, fc.Arbitrary<unknown>>, ...more: string[]): fc.Arbitrary<Frame> =>
  fc.record({ type: fc.constant(type), ...about, ...fields } as Record<string, fc.Arbitrary<unknown>>, {
    requiredKeys: ['type', 'entity', 'epoch', ...more],
  });

const frame = fc.oneof(
  { weight: 8, arbitrary: typed('event', change, 'seq') },
  { weight: 1, arbitrary: typed('event', { ...change, ...rare }, 'seq') },
  { weight: 4, arbitrary: typed('snapshot', change, 'seq', 'data') },
  { weight: 1, arbitrary: typed('snapshot', { ...change, ...rare }, 'seq', 'data') },
  {
    weight: 3,
    arbitrary: typed('replay', { events, done: fc.boolean(), vacant: mostly(fc.array(fc.tuple(seqs, seqs))) }),
  },
  { weight: 1, arbitrary: typed('vacant', { from: mostly(seqs), to: mostly(seqs) }, 'from', 'to') },
  { weight: 1, arbitrary: typed('subscribed', { head: mostly(seqs), cursor: mostly(fc.string()) }) },
  { weight: 1, arbitrary: typed('gone', { oldest: mostly(seqs) }) },
  { weight: 1, arbitrary: typed('ahead', { head: mostly(seqs) }) },
  { weight: 1, arbitrary: typed('final', { status: mostly(status), data: mostly(data) }) },
  { weight: 1, arbitrary: typed('heartbeat', { heads: mostly(fc.array(fc.tuple(entity, epoch, seqs))) }) },
  {
    weight: 1,
    arbitrary: typed('error', { code: mostly(fc.constantFrom('busy', 'not_found')), retryAfter: mostly(fc.nat()) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ type: fc.constantFrom('discontinuity', 'goodbye', 'welcome', 'pong', 'new', 7) }),
  },
  { weight: 1, arbitrary: fc.jsonValue() as fc.Arbitrary<Frame> },
);

/** A message, a wait, or the end of a socket. */
const step = fc.oneof(
  { weight: 12, arbitrary: fc.array(frame, { minLength: 1, maxLength: 3 }) },
  { weight: 3, arbitrary: fc.constantFrom(1, 150, 6_000, 40_000) },
  { weight: 1, arbitrary: fc.constantFrom('end 1006', 'end 4009', 'text', 'bytes') },
);

/** What was sent about an entity, as `epoch seq data`; `undefined` data is left out by JSON and by this. */
class Told {
  private readonly said = new Set<string>();

  hear(frame: Frame): void {
    if (typeof frame !== 'object' || frame === null || typeof frame['entity'] !== 'string') return;
    for (const event of frame['type'] === 'replay' && Array.isArray(frame['events']) ? frame['events'] : [frame]) {
      if (typeof event !== 'object' || event === null) continue;
      // Parts are joined, and `final` comes without a number: their data may stand at any.
      const seq = frame['type'] === 'final' || frame['of'] != null ? '*' : Number(event['seq']);
      this.said.add(JSON.stringify([frame['entity'], frame['epoch'] ?? '', seq, event['data'] ?? null]));
      if (event['data'] === undefined)
        this.said.add(JSON.stringify([frame['entity'], frame['epoch'] ?? '', seq, 'kept']));
      if (frame['of'] != null) this.said.add(JSON.stringify([frame['entity'], 'parts']));
    }
  }

  has(entity: string, epoch: string, seq: number, state: unknown, isKept: boolean): boolean {
    const at = (where: unknown, what: unknown): boolean =>
      this.said.has(JSON.stringify([entity, epoch, where, what ?? null]));
    const kept = isKept && (at(seq, 'kept') || at('*', 'kept'));
    return at(seq, state) || at('*', state) || kept || this.said.has(JSON.stringify([entity, 'parts']));
  }
}

test('whatever a server says, only what it sent is shown, forward, and never after the end', async () => {
  let messages = 0;
  let shown = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 25 }), async (steps) => {
      const world = new World();
      const told = new Told();
      const socket = await world.live(5);
      told.hear({ type: 'snapshot', entity: 'job/1', epoch: 'E', seq: 5, data: { v: 5 } });
      world.client.topic('t').subscribe(() => {});
      const job = world.client.entity('job/1');
      let last = job.getSnapshot();
      const reader = (async () => {
        let ended = false;
        for await (const change of job.changes()) {
          // One that ended may be followed by nothing, and positions go back only where it is said.
          if (ended) throw new Error(`after the end: ${JSON.stringify(change)}`);
          ended = change.status === 'completed';
        }
      })();
      job.subscribe((snapshot) => {
        shown++;
        const { state, seq } = snapshot;
        const isKept = JSON.stringify(state ?? null) === JSON.stringify(last.state ?? null);
        const isNews = seq !== last.seq || state !== last.state;
        if (isNews && seq !== undefined && !told.has('job/1', snapshot.epoch ?? '', seq, state, isKept)) {
          throw new Error(`nobody sent ${JSON.stringify(snapshot)}`);
        }
        if (last.sync === 'final' && state !== last.state)
          throw new Error(`after the end: ${JSON.stringify(snapshot)}`);
        last = snapshot;
      });
      for (const step of steps) {
        messages++;
        if (typeof step === 'number') await world.pass(step);
        else if (step === 'text') world.socket.raw('{"type":');
        else if (step === 'bytes') world.socket.raw(new Uint8Array([0x7b, 0xff]).buffer);
        else if (typeof step === 'string') {
          world.socket.end(Number(step.slice(4)));
          await world.pass(30_000);
          if (world.socket.readyState === 0) world.socket.open();
        } else {
          if (world.socket.readyState !== 1) continue;
          step.forEach((frame) => told.hear(frame));
          world.socket.raw(JSON.stringify(step));
        }
      }
      await world.pass(100);
      world.client.close();
      await reader;
      // A listener that throws is reported, and stops nobody.
      const thrown = world.errors.filter(({ code }) => code === 'listener' || code === 'fault');
      expect(thrown.map((error) => String(error.cause ?? error))).toEqual([]);
      expect(socket.sent.length).toBeLessThan(200);
    }),
    runs(400),
  );
  console.log(`${messages} messages and waits, ${shown} snapshots shown`);
  expect(shown).toBeGreaterThan(400);
});

/** A UTF-16 unit of any kind, halves of pairs among them. */
const unit = fc.oneof(fc.integer({ min: 0, max: 0xffff }), fc.constantFrom(0x22, 0x5c, 0x2f, 0xd800, 0xdfff));
const anyText = fc.array(unit, { maxLength: 40 }).map((units) => String.fromCharCode(...units));

test('whatever entities are called, commands are JSON that names them, in pieces of at most 64 KiB', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(fc.tuple(anyText, fc.integer({ min: 1, max: 300 })), {
        maxLength: 60,
        selector: ([name]) => name,
      }),
      fc.jsonValue(),
      async (drawn, params) => {
        const world = new World();
        const names = drawn.map(([name, times]) => `job/${name.repeat(times)}` as const);
        for (const name of names) world.client.entity(name, { params } as object).subscribe(() => {});
        await world.settle();
        if (names.length === 0) return;
        world.socket.open();
        const asked = world.socket.of('subscribe').flatMap((frame) => frame['entities'] as Frame[]);
        expect(asked.map((entry) => entry['entity']).sort()).toEqual([...names].sort());
        for (const entry of asked) expect(entry['params']).toEqual(JSON.parse(JSON.stringify(params)));
        for (const text of world.socket.texts) {
          const bytes = new TextEncoder().encode(text).length;
          if ((JSON.parse(text) as Frame)['entities']?.length > 1) expect(bytes).toBeLessThanOrEqual(64 << 10);
          // What can't be UTF-8 is escaped.
          expect(new TextDecoder().decode(new TextEncoder().encode(text))).toBe(text);
        }
        world.client.close();
      },
    ),
    runs(60),
  );
});

describe('options', () => {
  /** A whole number in a range, and what is none. */
  const whole = (min: number, max: number): { good: fc.Arbitrary<unknown>; bad: fc.Arbitrary<unknown> } => ({
    good: fc.oneof(fc.integer({ min, max: Math.min(max, 2 ** 31 - 1) }), fc.constantFrom(min, max)),
    bad: fc.constantFrom(min - 1, max + 1, min + 0.5, NaN, Infinity, -Infinity, '5', null, true, [], {}, 5n),
  });
  const oneOf = (...words: string[]): { good: fc.Arbitrary<unknown>; bad: fc.Arbitrary<unknown> } => ({
    good: fc.constantFrom(...words),
    bad: fc.constantFrom('', `${words[0]!} `, 0, null, true, {}, [words[0]]),
  });
  const time = whole(0, 2 ** 31 - 1);
  const longer = whole(1, 2 ** 31 - 1);
  const func = { good: fc.constant(() => 'token'), bad: fc.constantFrom('f', 7, null, {}) };
  const list = {
    good: fc.array(fc.integer({ min: 1_000, max: 4_999 }), { maxLength: 32 }),
    bad: fc.constantFrom([999], [5_000], ['1000'], 1_000, null, Array(33).fill(4_000), {}),
  };
  /** Every option by its path, as the protocol's page names it. */
  const table: Record<string, { good: fc.Arbitrary<unknown>; bad: fc.Arbitrary<unknown> }> = {
    ...Object.fromEntries(
      ['connect', 'subscribe', 'replay', 'snapshot', 'probe', 'user'].map((name) => [`timeout.${name}`, longer]),
    ),
    ...Object.fromEntries(['min', 'base', 'cap', 'stable'].map((name) => [`backoff.${name}`, time])),
    ...Object.fromEntries(['resume', 'anew', 'auth', 'stop'].map((name) => [`codes.${name}`, list])),
    'backoff.factor': whole(1, 100),
    'gap.grace': time,
    'gap.maxEvents': whole(1, 1_000_000),
    'gap.maxBytes': whole(1, Number.MAX_SAFE_INTEGER),
    'tries.replay': whole(1, 255),
    'requests.max': whole(1, 65_535),
    'badFrames.max': longer,
    maxAhead: whole(1, Number.MAX_SAFE_INTEGER),
    linger: time,
    ids: whole(0, 65_535),
    ping: longer,
    reconcile: longer,
    flush: oneOf('microtask', 'sync', 'frame'),
    getToken: func,
    replayFrom: func,
    snapshotFrom: func,
    token: { good: fc.string(), bad: fc.constantFrom(7, null, {}, []) },
    'models.job.continuity': oneOf('+1', 'range', 'prev', 'none'),
    'models.job.onGap': oneOf('replay', 'snapshot'),
    'models.job.overlap': oneOf('absolute'),
    'models.job.reopen': oneOf('never', 'epoch'),
    'models.job.replay': oneOf('whole'),
    'models.job.resetSeq': whole(0, Number.MAX_SAFE_INTEGER),
    'models.job.ids': whole(0, 65_535),
    'models.job.reduce': oneOf('replace', 'merge'),
    'models.job.terminal': {
      good: fc.oneof(
        fc.array(fc.string()),
        fc.constant(() => false),
      ),
      bad: fc.constantFrom('completed', [7], null, {}),
    },
  };
  /** A few options, each good or bad; `undefined` is not set. */
  const drawn = fc
    .subarray(Object.keys(table), { maxLength: 6 })
    .chain((paths) =>
      fc.tuple(
        ...paths.map((path) =>
          fc.oneof(
            { weight: 6, arbitrary: table[path]!.good.map((value) => ({ path, value, isGood: true })) },
            { weight: 1, arbitrary: table[path]!.bad.map((value) => ({ path, value, isGood: false })) },
            { weight: 1, arbitrary: fc.constant({ path, value: undefined, isGood: true }) },
          ),
        ),
      ),
    );
  const stray = fc.oneof(
    { weight: 9, arbitrary: fc.constant(null) },
    {
      weight: 1,
      arbitrary: fc.constantFrom('url_', 'timeout.connects', 'models.job.reducer', '__proto_', 'codes.4400'),
    },
  );

  test('are taken when each is good, and refused with a name when one is not', () => {
    const counts = { taken: 0, refused: 0 };
    fc.assert(
      fc.property(drawn, stray, (settings, stray) => {
        const options: Frame = { url: 'wss://server.test/ws', models: { job: {} }, logger: null };
        const set = (path: string, value: unknown): void => {
          const keys = path.split('.');
          const last = keys.pop()!;
          let at = options;
          for (const key of keys) at = at[key] ??= {};
          at[last] = value;
        };
        for (const { path, value } of settings) set(path, value);
        if (stray !== null) set(stray, 1);
        options['models'].job = model(options['models'].job);
        const wrong = settings.filter(({ isGood }) => !isGood).map(({ path }) => path);
        if (stray !== null) wrong.push(stray);
        let refused: unknown;
        try {
          createClient(options as never).close();
          counts.taken++;
        } catch (error) {
          refused = error;
          counts.refused++;
        }
        if (wrong.length === 0) {
          expect(refused).toBeUndefined();
          return;
        }
        expect(refused).toBeInstanceOf(InorderError);
        expect(refused).toMatchObject({ code: 'invalid_option', retryable: false });
        // It names one that is wrong.
        expect(wrong.some((path) => (refused as Error).message.includes(path))).toBe(true);
      }),
      runs(3_000),
    );
    console.log(`${counts.taken} options taken, ${counts.refused} refused`);
    expect(counts.taken).toBeGreaterThan(500);
    expect(counts.refused).toBeGreaterThan(500);
  });
});
