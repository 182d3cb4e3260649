// R38: the wasm traps, wherever it is entered and however: everything goes on from a new instance, and nobody notices
// more than a short `stale`.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { createClient, model } from '../../../pkg/dist/index.js';
import type { Change, Client, EntitySnapshot, InorderError } from '../../../pkg/dist/index.js';
import { EPOCH, Line, Server } from '../callbacks/server.js';
import { Page } from './page.js';
import { bytes, type Kind, KINDS, limited, Watch, type When } from './wasm.js';

/** From a trap to the new instance, in milliseconds. */
const NEW_INSTANCE_MS = 100;

/** A task later, whatever the clock of the test says. */
const { setImmediate: soon } = globalThis;
const moment = (): Promise<void> => new Promise((resolve) => void soon(resolve));

/** What the client waits by the test's clock and works by the processor's, which others do not hold up. */
function spent(): number {
  const { user, system } = process.cpuUsage();
  return performance.now() + (user + system) / 1_000;
}

let watch: Watch;
let page: Page;

beforeAll(async () => {
  watch = new Watch(spent);
  await createClient({ url: 'ws://server.test/ws', models: { job: model() } }).preload();
});

afterAll(() => watch.stop());

beforeEach(() => {
  page = new Page();
  vi.useFakeTimers();
});

afterEach(() => {
  page.leave();
  vi.useRealTimers();
});

type Models = { job: ReturnType<typeof model<any, any>> };

/** A client that follows three jobs and a topic, with a reader that must not miss a step. */
class World {
  readonly server = new Server();
  readonly errors: InorderError[] = [];
  readonly faults: string[] = [];
  readonly told: EntitySnapshot[] = [];
  readonly changes: Change[] = [];
  readonly finals: string[] = [];
  /** Where each entity stood when its last `change` was told. */
  readonly places = new Map<string, number>();
  readonly client: Client<Models>;
  isClosed = false;

  constructor(create: typeof createClient = createClient, more: object = {}) {
    const { server } = this;
    const world = this;
    class Socket extends Line {
      constructor() {
        super(server);
        if (world.sockets.filter((line) => line.isHeard).length > 1) world.faults.push('a second socket is opened');
      }
    }
    this.client = create({
      url: 'ws://server.test/ws',
      models: { job: model<any, any>({ reduce: 'merge' }) },
      backoff: { base: 100, cap: 500 },
      flush: 'sync',
      logger: null,
      WebSocket: Socket,
      ...more,
    }) as Client<Models>;
    this.client.on('error', (error) => this.errors.push(error));
    this.client.on('final', ({ entity }) => this.finals.push(entity));
  }

  get sockets(): readonly Line[] {
    return this.server.lines;
  }

  get line(): Line | undefined {
    return this.sockets.filter((line) => line.isHeard).at(-1);
  }

  get traps(): number {
    return this.errors.filter(({ code }) => code === 'fault').length;
  }

  /** Every change of every entity is told, also of those that nobody looks at; none twice. */
  hear(): void {
    this.client.on('change', ({ entity, kind, seq = 0 }) => {
      const before = this.places.get(entity) ?? 0;
      if (seq <= before) this.faults.push(`${kind} #${seq} of ${entity} is told after #${before}`);
      this.places.set(entity, seq);
    });
  }

  pass(ms: number): Promise<unknown> {
    return vi.advanceTimersByTimeAsync(ms);
  }

  /** Three jobs, one of them final, and everything is live. */
  async begin(): Promise<void> {
    const { client, server } = this;
    server.commit('topic/all', { add: ['job/2', 'job/3'] });
    for (const job of ['job/1', 'job/2', 'job/3', 'job/4']) server.commit(job, { v: 1 }, { status: 'running' });
    server.commit('job/4', { v: 2 }, { status: 'completed' });
    client.entity('job/1').subscribe((snapshot) => {
      if (this.isClosed) this.faults.push('a listener is called after close()');
      this.told.push(snapshot);
    });
    client.entity('job/4').subscribe(() => undefined);
    client.topic('all').subscribe(() => undefined);
    void (async () => {
      for await (const change of client.entity('job/1').changes()) this.changes.push(change);
    })();
    await this.pass(200);
    server.commit('job/1', { v: 2 });
    await this.pass(100);
    // Steady enough to be dialed again at once.
    await this.pass(6_000);
  }

  /** Goes on to the end, and says what is wrong. */
  async end(): Promise<string[]> {
    const { client, server, faults } = this;
    if (!this.isClosed) {
      server.commit('job/1', { v: 100 });
      server.commit('job/3', { v: 100 });
      await this.pass(20_000);
      server.commit('job/1', { v: 101 }, { status: 'completed' });
      // What trapped is retried after a while, what was on its way with it is asked again.
      await this.pass(100_000);
      this.check();
    }
    client.close();
    this.isClosed = true;
    await this.pass(30_000);
    if (page.listeners > 0) faults.push(`${page.listeners} listeners are left on the page`);
    if (vi.getTimerCount() > 0) faults.push(`${vi.getTimerCount()} timers are left`);
    const left = this.sockets.filter((line) => line.isHeard || line.readyState < 2);
    if (left.length > 0) faults.push('a socket is left open');
    vi.clearAllTimers();
    return faults;
  }

  private check(): void {
    const { client, server, faults } = this;
    const expectShown = (entity: string, { seq, state, status, epoch, sync }: EntitySnapshot, isFinal: boolean) => {
      const head = server.head(entity);
      const right = [EPOCH, head, server.state(entity, head), server.status(entity, head), isFinal ? 'final' : 'live'];
      const is = [epoch, seq, state, status, sync];
      if (JSON.stringify(is) !== JSON.stringify(right)) {
        faults.push(`${entity} ends with ${JSON.stringify(is)}, should be ${JSON.stringify(right)}`);
      }
    };
    expectShown('job/1', client.entity('job/1').getSnapshot(), true);
    expectShown('job/4', client.entity('job/4').getSnapshot(), true);
    const members = client.topic('all').getSnapshot();
    for (const member of ['job/2', 'job/3'] as const) {
      const isFinal = server.status(member, server.head(member)) === 'completed';
      if (members.has(member)) expectShown(member, members.get(member)!, isFinal);
      else faults.push(`${member} is no member any more`);
    }
    // Every step once, and what was passed over is said to be.
    this.changes.forEach(({ kind, seq, state, skipped }, at) => {
      const before = this.changes[at - 1];
      const next = (before?.seq ?? 0) + 1;
      if (JSON.stringify(state) !== JSON.stringify(server.state('job/1', seq!)))
        faults.push(`the step #${seq} is untrue`);
      if (!before) return;
      const follows = kind === 'event' ? seq === next : skipped?.[0] === next && skipped[1] === seq;
      if (!follows) faults.push(`${kind} #${seq} skipped ${skipped} after #${before.seq}`);
    });
    if (this.changes.at(-1)?.seq !== server.head('job/1')) faults.push(`the steps end at ${this.changes.at(-1)?.seq}`);
    this.told.forEach((snapshot, at) => {
      const before = this.told[at - 1];
      if (before && (snapshot.seq ?? 0) < (before.seq ?? 0))
        faults.push(`#${snapshot.seq} is shown after #${before.seq}`);
      if (before?.sync === 'final') faults.push(`#${snapshot.seq} is shown after the final state`);
    });
    if (new Set(this.finals).size !== this.finals.length) faults.push(`final twice: ${this.finals}`);
    for (const entity of ['job/1', 'job/2', 'job/3', 'job/4']) {
      const isFinal = server.status(entity, server.head(entity)) === 'completed';
      if (isFinal && !this.finals.includes(entity)) faults.push(`the end of ${entity} is not told`);
    }
  }
}

/** One way into the wasm: what is made ready for it, and what enters. */
interface Entry {
  /** What it returns is handed to `enter`. */
  readonly ready?: (world: World) => any;
  readonly enter: (world: World, ready: any) => unknown;
  /** How long the entry takes, in milliseconds. */
  readonly ms?: number;
  readonly options?: object;
}

const lostOne = (world: World) => {
  world.server.commit('job/1', { v: 3 }, { lost: true });
  world.server.commit('job/1', { v: 4 });
};

const job = (world: World, name: 'job/1' | 'job/5' = 'job/1') => world.client.entity(name);

const ENTRIES: Readonly<Record<string, Entry>> = {
  'a message: the next event': { enter: (world) => world.server.commit('job/1', { v: 3 }), ms: 10 },
  'a message: the last event': {
    enter: (world) => world.server.commit('job/2', { v: 3 }, { status: 'completed' }),
    ms: 10,
  },
  'a message: an event of a member': { enter: (world) => world.server.commit('job/2', { v: 3 }), ms: 10 },
  'a message: an event of a member that nobody looked at, each told': {
    ready: (world) => world.hear(),
    enter: (world) => world.server.commit('job/2', { v: 3 }),
    ms: 10,
  },
  'a message: a new member that nobody looked at, each told': {
    ready: (world) => world.hear(),
    enter: async ({ server }) => {
      server.commit('job/5', { v: 1 });
      server.commit('topic/all', { add: ['job/5'] });
    },
    ms: 500,
  },
  'a message: events with ids': {
    enter: ({ server, line }) => {
      const event = { type: 'event', entity: 'job/1', epoch: EPOCH, id: 'e3' };
      server.commit('job/1', { v: 3 }, { lost: true });
      line?.tell({ ...event, seq: server.head('job/1'), status: 'running', data: { v: 3 } });
    },
    ms: 10,
  },
  'a message: an early event': { enter: lostOne, ms: 10 },
  'a message: a replay': { ready: lostOne, enter: (world) => world.pass(300) },
  'a message: a snapshot': {
    ready: ({ server, line }) => {
      server.commit('job/1', { v: 3 }, { lost: true });
      line?.tell({ type: 'discontinuity', entity: 'job/1', reason: 'test' });
    },
    enter: (world) => world.pass(2_000),
  },
  'a message: heads': {
    ready: ({ server }) => server.commit('job/1', { v: 3 }, { lost: true }),
    enter: ({ line }) => line?.tell({ type: 'heartbeat', heads: [['job/1', EPOCH, 3]] }),
    ms: 500,
  },
  'a message: a bad frame': { enter: ({ line }) => line?.onmessage?.({ data: '{' }) },
  'a socket that closes': { enter: ({ line }) => line?.cut() },
  'a socket that opens, and all that follows': {
    ready: ({ line }) => line?.cut(),
    enter: (world) => world.pass(1_000),
  },
  'the timer: the grace of a gap': {
    ready: async (world) => {
      lostOne(world);
      await world.pass(50);
    },
    enter: (world) => world.pass(60),
  },
  'the timer: a ping': { enter: (world) => world.pass(26_000) },
  'the timer: a silent socket': {
    ready: ({ line }) => {
      if (line) line.isMute = true;
    },
    enter: (world) => world.pass(40_000),
  },
  'the page: hidden': { enter: () => page.happen('hidden') },
  'the page: visible': { ready: () => page.happen('hidden'), enter: () => page.happen('visible') },
  'the page: online': { ready: ({ line }) => line?.cut(), enter: () => page.happen('online') },
  'the page: offline': { enter: () => page.happen('offline') },
  'the page: resume': { enter: () => page.happen('resume') },
  'the page: put away and back': {
    enter: async (world) => {
      page.happen('pagehide');
      await world.pass(1_000);
      page.happen('pageshow');
    },
  },
  'a call: subscribe()': {
    ready: ({ server }) => server.commit('job/5', { v: 1 }),
    enter: (world) => job(world, 'job/5').subscribe(() => undefined),
  },
  'a call: the last one leaves': {
    ready: async (world) => {
      world.server.commit('job/5', { v: 1 });
      const stop = job(world, 'job/5').subscribe(() => undefined);
      await world.pass(100);
      return stop;
    },
    enter: async (world, stop: () => void) => {
      stop();
      await world.pass(2_000);
    },
  },
  'a call: changes()': { enter: (world) => void job(world).changes().next() },
  'a call: finished()': {
    enter: (world) =>
      void job(world)
        .finished()
        .catch(() => undefined),
  },
  'a call: topic()': { enter: ({ client }) => client.topic('all').subscribe(() => undefined) },
  'a call: stats()': { enter: ({ client }) => client.stats() },
  'a call: held()': { enter: ({ client }) => client.held('job/1') },
  'a call: connect()': { enter: ({ client }) => client.connect() },
  'a call: reconnect()': { ready: ({ line }) => line?.cut(), enter: ({ client }) => client.reconnect() },
  'a call: close()': {
    enter: (world) => {
      world.client.close();
      world.isClosed = true;
    },
  },
  'a call inside a callback': {
    ready: (world) => {
      const stop = job(world).subscribe(({ seq }) => {
        if (seq !== 3) return;
        world.client.stats();
        stop();
      });
    },
    enter: (world) => world.server.commit('job/1', { v: 3 }),
    ms: 10,
  },
  'the start after a trap': {
    ready: ({ client, errors }) => {
      watch.trap(1, 'before', 'panic');
      client.stats();
      errors.length = 0;
    },
    enter: (world) => world.pass(2_000),
  },
  'an answer: getToken': {
    options: { getToken: () => new Promise((resolve) => setTimeout(resolve, 50, 'a token')) },
    ready: ({ line }) => line?.cut(),
    enter: (world) => world.pass(1_000),
  },
  'an answer: url': {
    options: { url: () => new Promise((resolve) => setTimeout(resolve, 50, 'ws://server.test/ws')) },
    ready: ({ line }) => line?.cut(),
    enter: (world) => world.pass(1_000),
  },
};

/** Lets one entry happen; a trap is due at a call. Returns how many calls there were and what was wrong. */
async function happen(entry: Entry, call = 0, when: When = 'before', kind: Kind = 'panic') {
  const world = new World(createClient, entry.options);
  await world.begin();
  const ready: unknown = await entry.ready?.(world);
  const { trapped, made: instances } = watch;
  const before = world.line;
  watch.trap(call, when, kind);
  try {
    await entry.enter(world, ready);
    if (entry.ms) await world.pass(entry.ms);
  } catch (error) {
    world.faults.push(`thrown at the page: ${(error as Error).stack}`);
  }
  const { calls } = watch;
  watch.reset();
  if (call > 0) {
    if (watch.trapped !== trapped + 1) world.faults.push('it did not trap');
    if (!world.isClosed && watch.made === instances) world.faults.push('there is no new instance');
    if (!world.isClosed && world.traps !== 1) world.faults.push(`reported ${world.traps} times`);
    if (before && (before.isHeard || before.readyState < 2)) world.faults.push('the old socket is left open');
  }
  return { calls, faults: await world.end(), errors: world.errors };
}

/** Calls that were trapped, by kind. */
const trapped = new Map<Kind, number>();

afterAll(() => {
  const slowest = Math.max(...watch.took);
  const kinds = [...trapped].map(([kind, count]) => `${count} ${kind}`).join(', ');
  console.log(`trapped calls: ${kinds}; the slowest new instance after ${slowest.toFixed(1)} ms`);
});

describe('r38_a_trap_at_every_call', () => {
  test.each(Object.entries(ENTRIES))(
    '%s',
    async (_, entry) => {
      const clean = await happen(entry);
      expect(clean.faults).toEqual([]);
      expect(clean.calls).toBeGreaterThan(0);
      const wrong: Record<string, string[]> = {};
      // The kinds take turns, and each comes at least once.
      for (let turn = 0; turn < Math.max(2 * clean.calls, KINDS.length); turn++) {
        const call = 1 + (Math.floor(turn / 2) % clean.calls);
        const when = turn % 2 ? 'after' : 'before';
        const kind = KINDS[turn % KINDS.length]!;
        trapped.set(kind, (trapped.get(kind) ?? 0) + 1);
        watch.took.length = 0;
        const { faults } = await happen(entry, call, when, kind);
        if (!watch.took.every((ms) => ms < NEW_INSTANCE_MS)) faults.push(`a new instance after ${watch.took} ms`);
        if (faults.length > 0) wrong[`${kind} ${when} call ${call} of ${clean.calls}`] = faults;
      }
      expect(wrong).toEqual({});
    },
    120_000,
  );
});

test('r38_the_memory_may_not_grow_any_more', async () => {
  vi.resetModules();
  const slim = await import('../../../pkg/dist/slim.js');
  const module = await WebAssembly.compile(bytes());
  const small = await WebAssembly.compile(limited(bytes(), 1));
  let isSmall = true;
  watch.choose = () => (isSmall ? small : module);
  try {
    const world = new World(slim.createClient as typeof createClient, {
      wasm: module,
      gap: { maxEvents: 100_000, maxBytes: 100_000_000 },
    });
    await world.client.preload();
    await world.begin();
    const { server, line } = world;
    const made = watch.made;
    // Held events fill the memory, until it would have to grow.
    server.commit('job/1', { v: 3 }, { lost: true });
    for (let seq = 4; watch.made === made && seq < 100_000; seq++) {
      if (seq === 99_999) world.faults.push('it did not trap');
      server.commit('job/1', { v: seq }, { lost: true });
      watch.noteTrap();
      line!.onmessage?.({
        data: JSON.stringify({
          type: 'event',
          entity: 'job/1',
          epoch: EPOCH,
          seq,
          status: 'running',
          data: { v: seq },
        }),
      });
    }
    isSmall = false;
    expect(world.errors.map(({ code }) => code)).toEqual(['fault']);
    expect(String((world.errors[0]!.cause as Error).name)).toBe('RuntimeError');
    expect(await world.end()).toEqual([]);
  } finally {
    watch.choose = (module) => module;
  }
}, 60_000);

test('r38_a_thousand_traps_leave_nothing', async () => {
  setFlagsFromString('--expose_gc');
  const collect = runInNewContext('gc') as () => void;
  const world = new World();
  await world.begin();
  const { server, client } = world;
  const listeners = page.listeners;
  const entries = [
    () => server.commit('job/1', { v: server.head('job/1') + 1 }),
    () => void client.stats(),
    () => page.happen('offline'),
    () => world.line?.cut(),
  ];
  const used: number[] = [];
  const dead: string[] = [];
  for (let count = 1; count <= 1_000; count++) {
    watch.trap(1, count % 2 ? 'after' : 'before', KINDS[count % KINDS.length]!);
    entries[count % entries.length]!();
    await world.pass(40_000);
    if (world.traps !== 1) dead.push(`trap ${count} was reported ${world.traps} times`);
    if (client.status.getSnapshot().connection !== 'live') dead.push(`after trap ${count} it is not live`);
    if (page.listeners !== listeners) dead.push(`after trap ${count} there are ${page.listeners} listeners`);
    const { sync, seq } = client.entity('job/1').getSnapshot();
    if (sync !== 'live' || seq !== server.head('job/1')) dead.push(`after trap ${count} job/1 is ${sync} at ${seq}`);
    // What the test itself remembers must not look like a leak.
    world.errors.length = 0;
    server.lines.splice(0, server.lines.length - 1);
    world.told.splice(0, world.told.length - 1);
    world.changes.splice(0, world.changes.length - 1);
    if (count % 100 > 0) continue;
    for (let turn = 0; turn < 3; turn++) {
      await moment();
      collect();
    }
    const { heapUsed, external } = process.memoryUsage();
    used.push((heapUsed + external) / 1e6);
  }
  const alive = watch.instances.filter((instance) => instance.deref()).length;
  const shown = used.map((megabytes) => megabytes.toFixed(1)).join(' ');
  console.log(`${watch.instances.length} instances were made, ${alive} are alive; MB after each 100 traps: ${shown}`);
  expect(dead).toEqual([]);
  expect(alive).toBeLessThanOrEqual(2);
  // An instance that stays is a megabyte or more.
  expect(Math.min(...used.slice(-3)) - Math.min(...used.slice(0, 5))).toBeLessThan(2);
  expect(await world.end()).toEqual([]);
}, 120_000);
