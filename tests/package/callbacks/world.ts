// One client in a story in which everything that calls user code happens, with witnesses that note all they are told.
import { vi } from 'vitest';
import { model, type createClient as create } from '../../../pkg/dist/index.js';
import type {
  Change,
  Client,
  ClientOptions,
  EntitySnapshot,
  InorderError,
  Model,
  Stop,
} from '../../../pkg/dist/index.js';
import type { Callback } from './callbacks.js';
import { EPOCH, Line, Server } from './server.js';

/** What a cell of the table does: how the callback ends after it called the method. */
export type Mode = 'inside' | 'throwing' | 'async';
export const MODES: readonly Mode[] = ['inside', 'throwing', 'async'];

/** How often a callback calls its method, and throws: often enough to be called in unlike moments. */
const TIMES = 2;

/** Time as it really passes, whatever the clock of the test says. */
const { setTimeout: really } = globalThis;
const moment = (): Promise<void> => new Promise((resolve) => void really(resolve, 1));

export class Boom extends Error {}

/** Calls its method from within a callback, by the mode. */
export class Trigger {
  /** Nothing happens before it is armed. */
  isArmed = false;
  fired = 0;
  private isInside = false;

  constructor(
    readonly mode: Mode,
    private readonly act: () => void,
  ) {}

  /** For callbacks whose promises nobody awaits. */
  pull(): void {
    if (!this.isDue()) return;
    if (this.mode === 'async') void Promise.resolve().then(() => this.run());
    else this.run();
    if (this.mode === 'throwing') throw new Boom();
  }

  /** For callbacks whose promises are awaited: the value comes late, or is a rejection. */
  wrap<T>(value: T): T | Promise<T> {
    if (!this.isDue()) return value;
    if (this.mode === 'async') return Promise.resolve().then(() => (this.run(), value));
    this.run();
    if (this.mode === 'inside') return value;
    // Once each way.
    if (this.fired % 2) throw new Boom();
    return Promise.reject(new Boom());
  }

  private isDue(): boolean {
    return this.isArmed && !this.isInside && this.fired < TIMES;
  }

  private run(): void {
    this.fired += 1;
    this.isInside = true;
    try {
      this.act();
    } finally {
      this.isInside = false;
    }
  }
}

type Models = { job: Model<any, any> };

/** A subscription that a method may end. */
export interface Victim {
  readonly stop: Stop;
  isStopped: boolean;
}

export class World {
  readonly server = new Server();
  readonly client: Client<Models>;
  readonly errors: InorderError[] = [];
  readonly logged: unknown[] = [];
  /** What is wrong, in words. */
  readonly faults: string[] = [];
  /** What each witness of `job/1` was told. */
  readonly told = new Map<string, EntitySnapshot[]>();
  readonly changes: Change[] = [];
  readonly victims: Victim[] = [];
  /** Other clients, which are closed at the end. */
  readonly others: Client<any>[] = [];
  spare!: AsyncIterableIterator<Change>;
  /** `close()` was called. */
  isClosed = false;
  /** It was called by the method, before the end of the story. */
  isOver = false;

  constructor(
    readonly createClient: typeof create,
    { options, model: more, socket, outlives }: Callback,
    readonly trigger: Trigger,
  ) {
    const { server } = this;
    const world = this;
    const pull = (place: Callback['socket']) => {
      if (socket === place) trigger.pull();
    };
    class Socket extends Line {
      constructor() {
        if (world.isClosed) world.fault('a socket is opened after close()');
        const heard = server.lines.filter((line) => line instanceof Socket && line.isHeard);
        if (heard.length > 0) world.fault('a second socket is opened');
        super(server);
        pull('constructor');
      }

      override send(text: string): void {
        if (world.isClosed) world.fault('something is sent after close()');
        pull('send');
        super.send(text);
      }

      override close(code?: number): void {
        super.close(code);
        pull('close');
      }
    }
    this.client = createClient({
      url: 'ws://server.test/ws',
      models: { job: model<any, any>({ reduce: 'merge', ...more?.(trigger, () => world) }) },
      logger: { error: (value) => this.logged.push(value), warn: () => undefined },
      backoff: { base: 100, cap: 500 },
      flush: trigger.mode === 'async' ? 'microtask' : 'sync',
      WebSocket: Socket,
      ...options?.(trigger, () => world),
    } as ClientOptions<Models>);
    // Who logs hears nothing where somebody listens.
    if (!outlives) this.client.on('error', (error) => this.errors.push(error));
  }

  fault(what: string): void {
    this.faults.push(what);
  }

  /** A listener that notes, and may not be called after it was stopped or `close()` was called. */
  witness(name: string): Victim {
    const told: EntitySnapshot[] = [];
    this.told.set(name, told);
    const victim: { stop?: Stop; isStopped: boolean } = { isStopped: false };
    victim.stop = this.client.entity('job/1').subscribe((snapshot) => {
      this.mayBeCalled(name);
      if (victim.isStopped) this.fault(`${name} is called after it was stopped`);
      told.push(snapshot);
    });
    return victim as Victim;
  }

  mayBeCalled(what: string): void {
    if (this.isClosed) this.fault(`${what} is called after close()`);
  }

  /** Waits until the wasm is there or nobody wants it: compiling takes its own time, and a failure is tried again. */
  async load(): Promise<void> {
    while (!this.isClosed && this.client.status.getSnapshot().connection !== 'live') {
      await moment();
      await this.pass(20);
    }
  }

  async pass(ms: number): Promise<void> {
    await vi.advanceTimersByTimeAsync(ms);
  }

  /** The socket that is open now. */
  get line(): Line | undefined {
    return this.server.lines.filter((line) => line.isHeard).at(-1);
  }

  /** Is a snapshot what the log has at its position? */
  check(what: string, { state, seq, epoch, status, sync }: EntitySnapshot, entity: string): void {
    if (seq === undefined) {
      if (state !== undefined || (sync !== 'joining' && sync !== 'stale'))
        this.fault(`${what}: ${sync} without a position`);
      return;
    }
    const right = JSON.stringify([EPOCH, this.server.status(entity, seq), this.server.state(entity, seq)]);
    const is = JSON.stringify([epoch, status, state]);
    if (is !== right) this.fault(`${what}: #${seq} is ${is}, should be ${right}`);
  }

  /** Snapshots must be true and follow each other. */
  checkTold(what: string, told: readonly EntitySnapshot[], entity: string): void {
    told.forEach((snapshot, at) => {
      this.check(what, snapshot, entity);
      const before = told[at - 1];
      if (!before) return;
      if (snapshot === before) this.fault(`${what}: the same snapshot twice`);
      if ((snapshot.seq ?? 0) < (before.seq ?? 0)) this.fault(`${what}: #${snapshot.seq} after #${before.seq}`);
      if (before.sync === 'final') this.fault(`${what}: #${snapshot.seq} after the final one`);
    });
  }

  /** Changes must be true, and without a hole that they do not tell of. */
  checkChanges(what: string, changes: readonly Change[], entity: string): void {
    changes.forEach((change, at) => {
      const { seq, kind, state, epoch, status, skipped, event } = change;
      this.check(what, { seq, state, epoch, status, sync: 'live' } as EntitySnapshot, entity);
      if (kind === 'event' && JSON.stringify(event) !== JSON.stringify(this.server.events(entity)[seq! - 1]!.data)) {
        this.fault(`${what}: #${seq} brings ${JSON.stringify(event)}`);
      }
      const before = changes[at - 1];
      if (!before) return;
      const next = before.seq! + 1;
      const follows =
        kind === 'event' ? seq === next : skipped ? skipped[0] === next && skipped[1] === seq : seq === before.seq;
      if (!follows) this.fault(`${what}: ${kind} #${seq} skipped ${skipped} after #${before.seq}`);
    });
  }

  /** All members must be there, with what is true. */
  checkMembers(what: string, members: ReadonlyMap<string, EntitySnapshot>): void {
    const names = this.server.state('topic/all', this.server.head('topic/all'));
    if ([...members.keys()].join() !== names.join())
      this.fault(`${what} has ${[...members.keys()]} instead of ${names}`);
    for (const [name, snapshot] of members) {
      this.check(what, snapshot, name);
      if (snapshot.seq !== this.server.head(name)) this.fault(`${what} ends with ${name} at ${snapshot.seq}`);
    }
  }
}
