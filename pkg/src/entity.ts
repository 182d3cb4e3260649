import { FINAL_SYNC, JOINING, NONE } from './boundary.js';
import type { Client } from './client.js';
import type { Frame } from './codec.js';
import { InorderError } from './errors.js';
import type { ReadyModel } from './options.js';
import type { Abortable, Change, Entity, EntitySnapshot, Listener, Stop, Store, Sync, Topic } from './public/api.js';
import { attach, detach, isListener, NOBODY, Queue, type Source, stop, type Subscription } from './store.js';

/** By the core's numbers. */
export const SYNCS: readonly Sync[] = ['joining', 'live', 'recovering', 'stale', 'final', 'failed'];

/** Changes that wait for one reader of `changes()` (R35). */
const WAITING_CHANGES = 1_000;

/** What is shown of an entity that nothing is known of. */
const UNKNOWN: EntitySnapshot<any> = Object.freeze({
  state: undefined,
  sync: 'joining',
  seq: undefined,
  epoch: undefined,
  status: undefined,
});

const EMPTY: ReadonlyMap<string, EntitySnapshot<any>> = new Map();

/**
 * What the facade keeps of an entity that somebody looks at. Others have a number and a state.
 *
 * Lives until the core forgets the entity.
 */
export class Cell implements Source {
  // What an event touches stands first: the fewer lines of the cache, the better.
  quick: ((value: any) => void) | undefined;
  sync = JOINING;
  readers: readonly Reader[] = NO_READERS;
  seq: number | undefined;
  epoch: string | undefined;
  status: string | undefined;
  at: unknown;
  error: InorderError | undefined;
  /** `undefined`: something changed since the last one. */
  snapshot: EntitySnapshot<any> | undefined = UNKNOWN;
  handle = NONE;
  pending = false;
  isMap = false;
  subscriptions: readonly Subscription[] = NOBODY;
  /** Listeners and readers. */
  uses = 0;
  params: unknown;
  paramsText = '';
  /** The last cursor, of a topic. */
  cursor: string | undefined;
  /** What `client.entity()` or `client.topic()` returns while somebody subscribes. */
  view: View<any> | undefined;

  constructor(
    readonly client: Client,
    readonly name: string,
    readonly model: ReadyModel,
  ) {}

  value(): unknown {
    return this.show();
  }

  /** Notes what a change says beside its data; mostly it says what is known. */
  note(epoch: string | undefined, frame: Frame, whole: boolean): void {
    const { status, at } = frame;
    if (this.epoch !== epoch) this.epoch = epoch;
    if (this.at !== at) this.at = at;
    if (this.status !== status && (whole || status != null)) this.status = status ?? undefined;
  }

  /** The entity's snapshot, made when it is looked at (R33). */
  show(): EntitySnapshot<any> {
    return (this.snapshot ??= this.freeze());
  }

  private freezeMore(): EntitySnapshot<any> {
    const { seq, epoch, status, at, error } = this;
    const state = this.client.states[this.handle];
    const sync = SYNCS[this.sync]!;
    return Object.freeze({
      ...{ state, sync, seq, epoch, status },
      ...(at !== undefined && { at }),
      ...(error && { error }),
    });
  }

  private freeze(): EntitySnapshot<any> {
    const { seq, epoch, status, at, error } = this;
    const state = this.client.states[this.handle];
    const sync = SYNCS[this.sync]!;
    if (at !== undefined || error !== undefined) return this.freezeMore();
    return Object.freeze({ state, sync, seq, epoch, status });
  }
}

/** A topic's cell: its value is the map of its members. */
export class TopicCell extends Cell {
  override isMap = true;
  /** `undefined`: a member changed since the last one. */
  map: ReadonlyMap<string, EntitySnapshot<any>> | undefined;

  override value(): unknown {
    return (this.map ??= this.client.members(this.handle));
  }
}

/** The list of an entity that nobody reads by `changes()`: compared by identity on the hot path. */
export const NO_READERS: readonly Reader[] = [];

/** One `changes()`. */
export interface Reader {
  push(change: Change<any, any>): void;
  /** The final change was pushed. */
  end(): void;
}

/** The store contract over a cell that may not exist yet. */
abstract class View<T> implements Store<T> {
  readonly paramsText: string;
  /** Why it is of no use: shown instead of the cell. */
  failure: InorderError | undefined;

  constructor(
    readonly client: Client,
    readonly name: string,
    readonly params: unknown,
  ) {
    this.paramsText = params === undefined ? '' : JSON.stringify(params);
  }

  readonly subscribe = (listener: Listener<T>): Stop => this.client.follow(this, listener);

  abstract readonly getSnapshot: () => T;
  abstract readonly getServerSnapshot: () => T;

  [Symbol.asyncIterator](): AsyncIterableIterator<T> {
    return latest(this.client, this);
  }
}

// The fallback name first: a polyfill of `Symbol.observable` may load later than this.
Object.defineProperty(View.prototype, '@@observable', { value: self });

function self(this: unknown): unknown {
  return this;
}

export type { View };

export class EntityView extends View<EntitySnapshot<any>> implements Entity<any, any> {
  private failed: EntitySnapshot<any> | undefined;

  readonly getSnapshot = (): EntitySnapshot<any> => {
    const shown = this.client.find(this.name)?.show() ?? UNKNOWN;
    if (!this.failure) return shown;
    return (this.failed ??= Object.freeze({ ...UNKNOWN, sync: 'failed', error: this.failure }));
  };

  readonly getServerSnapshot = (): EntitySnapshot<any> => UNKNOWN;

  finished(options: Abortable = {}): Promise<EntitySnapshot<any>> {
    const { client } = this;
    const { signal } = options;
    return new Promise((resolve, reject) => {
      let end: Stop | undefined;
      let settled = false;
      const settle = () => {
        settled = true;
        end?.();
        client.endings.delete(closed);
        signal?.removeEventListener('abort', aborted);
      };
      const aborted = () => {
        settle();
        reject(signal!.reason);
      };
      const closed = () => {
        settle();
        reject(client.closedError());
      };
      if (signal?.aborted) return aborted();
      signal?.addEventListener('abort', aborted);
      client.endings.add(closed);
      end = this.subscribe((snapshot) => {
        if (settled) return;
        if (snapshot.sync === 'final') {
          settle();
          resolve(snapshot);
        } else if (snapshot.sync === 'failed' && snapshot.error && !snapshot.error.retryable) {
          settle();
          reject(snapshot.error);
        }
      });
      if (settled) end();
      else if (client.isClosed) closed();
    });
  }

  changes(options: Abortable = {}): AsyncIterableIterator<Change<any, any>> {
    const { client } = this;
    const waiting: Change<any, any>[] = [];
    let missed: number | undefined;
    let cell: Cell | undefined;
    const reader: Reader = {
      push(change) {
        if (missed !== undefined) return;
        if (waiting.length < WAITING_CHANGES) waiting.push(change);
        else missed = change.skipped?.[0] ?? change.seq ?? 0;
        queue.wake();
      },
      end: () => queue.close(),
    };
    const take = (): Change<any, any> | undefined => {
      const next = waiting.shift();
      if (next || missed === undefined) return next;
      const from = missed;
      missed = undefined;
      return snapshotChange(cell!, [from, cell!.seq ?? from]);
    };
    const leave = () => {
      client.endings.delete(queue.close);
      if (!cell) return;
      const left = cell.readers.filter((other) => other !== reader);
      cell.readers = left.length > 0 ? left : NO_READERS;
      client.leave(cell);
    };
    const queue: Queue<Change<any, any>> = new Queue(take, leave, options.signal);
    if (options.signal?.aborted) return queue;
    cell = client.join(this);
    if (!cell) {
      queue.close();
      return queue;
    }
    client.endings.add(queue.close);
    cell.readers = [...cell.readers, reader];
    if (cell.epoch !== undefined) reader.push(snapshotChange(cell));
    if (cell.sync === FINAL_SYNC) queue.close();
    client.drain();
    return queue;
  }
}

/** The current state as a change. */
function snapshotChange(cell: Cell, skipped?: [number, number]): Change<any, any> {
  const { state, seq, epoch, status, at } = cell.show();
  return Object.freeze({
    kind: 'snapshot',
    seq,
    epoch,
    state: state ?? null,
    ...(status !== undefined && { status }),
    ...(at !== undefined && { at }),
    ...(skipped && { skipped }),
  });
}

/** A change as readers get it. */
export function makeChange(
  cell: { readonly epoch: string | undefined; readonly status: string | undefined },
  kind: 'event' | 'snapshot',
  frame: Frame,
  seq: number,
  state: unknown,
  reset: boolean,
  from: number,
  to: number,
): Change<any, any> {
  const { data, id, at } = frame;
  return Object.freeze({
    kind,
    seq: seq === seq ? seq : undefined,
    epoch: cell.epoch,
    state,
    ...(kind === 'event' && data !== undefined && { event: data }),
    ...(id != null && { id: String(id) }),
    ...(cell.status !== undefined && { status: cell.status }),
    ...(reset && { reset }),
    ...(from >= 0 && { skipped: [from, to] as const }),
    ...(at !== undefined && { at }),
  });
}

export class TopicView extends View<ReadonlyMap<string, EntitySnapshot<any>>> implements Topic<any> {
  readonly getSnapshot = (): ReadonlyMap<string, EntitySnapshot<any>> =>
    this.failure ? EMPTY : ((this.cell()?.value() as ReadonlyMap<string, EntitySnapshot<any>> | undefined) ?? EMPTY);

  readonly getServerSnapshot = (): ReadonlyMap<string, EntitySnapshot<any>> => EMPTY;

  get sync(): Sync {
    return this.failure ? 'failed' : SYNCS[this.cell()?.sync ?? JOINING]!;
  }

  get error(): InorderError | undefined {
    return this.failure ?? this.cell()?.error;
  }

  private cell(): Cell | undefined {
    return this.client.find(this.name);
  }
}

/** Iterates over the newest values of a store. A slow reader misses those between, never a final one. */
export function latest<T>(client: Client, store: Store<T>): AsyncIterableIterator<T> {
  let waiting: T[] = [];
  const queue = new Queue<T>(
    () => waiting.shift(),
    () => {
      client.endings.delete(queue.close);
      end?.();
    },
  );
  let end: Stop | undefined;
  client.endings.add(queue.close);
  end = store.subscribe((value) => {
    waiting = waiting.filter((other) => (other as { sync?: Sync } | undefined)?.sync === 'final');
    waiting.push(value);
    queue.wake();
  });
  if (client.isClosed) queue.close();
  return queue;
}

/** A store over a source that always exists. */
export class SourceStore<T> implements Store<T> {
  constructor(
    private readonly client: Client,
    private readonly source: Source,
    private readonly initial: T,
  ) {}

  readonly subscribe = (listener: Listener<T>): Stop => {
    const { client, source } = this;
    if (!isListener(listener)) return client.refuseListener();
    const subscription = attach(source, listener);
    client.call(source, subscription);
    return stop(() => detach(source, subscription));
  };

  readonly getSnapshot = (): T => this.source.value() as T;
  readonly getServerSnapshot = (): T => this.initial;

  [Symbol.asyncIterator](): AsyncIterableIterator<T> {
    return latest(this.client, this);
  }
}

Object.defineProperty(SourceStore.prototype, '@@observable', { value: self });
if ((Symbol as { observable?: symbol }).observable) {
  for (const { prototype } of [View, SourceStore]) {
    Object.defineProperty(prototype, (Symbol as { observable?: symbol }).observable!, { value: self });
  }
}
