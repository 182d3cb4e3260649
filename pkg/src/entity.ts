// What is shown of one entity, and how it is read.
import { FINAL_SYNC, JOINING, NONE } from './boundary.js';
import { closedError, InorderError } from './errors.js';
import { iterate, latest } from './iterate.js';
import type { Model } from './options.js';
import type { Abortable, Change, EntitySnapshot, Listener, Stop, Store, Sync } from './public/api.js';
import { NOBODY, type Source, type Subscription } from './store.js';

/** By the core's numbers. */
export const SYNCS: readonly Sync[] = ['joining', 'live', 'recovering', 'stale', 'final', 'failed'];

/** Changes that wait for one reader of `changes()` (R35). */
const WAITING_CHANGES = 1_000;

/** A frame as it was parsed: any field may be anything. */
export type Frame = any;

export type Shown = EntitySnapshot<any>;
export type Members = ReadonlyMap<string, Shown>;

/** One `changes()`; `undefined`: the final change was the last. */
export type Reader = (change: Change<any, any> | undefined) => void;

/** The list of an entity that nobody reads by `changes()`: compared by identity on the hot path. */
export const NO_READERS: readonly Reader[] = [];

/** What is shown of an entity that nothing is known of. */
const UNKNOWN: Shown = Object.freeze({
  state: undefined,
  sync: 'joining',
  seq: undefined,
  epoch: undefined,
  status: undefined,
});

const EMPTY: Members = new Map();

/**
 * What the facade keeps of an entity that somebody looks at. Others have a number and a state.
 *
 * Lives until the core forgets the entity.
 */
export class Cell implements Source {
  // What an event touches stands first: the fewer lines of the cache, the better.
  handle_ = NONE;
  quick_: ((value: any) => void) | undefined;
  sync_ = JOINING;
  readers_: readonly Reader[] = NO_READERS;
  state_: unknown;
  seq_: number | undefined;
  epoch_: string | undefined;
  status_: string | undefined;
  at_: unknown;
  error_: InorderError | undefined;
  /** `undefined`: something changed since the last one. */
  shown_: Shown | undefined = UNKNOWN;
  isPending_ = false;
  subscriptions_: readonly Subscription[] = NOBODY;
  /** Of a topic; `undefined`: a member changed since the last one. */
  map_: Members | undefined;
  /** Listeners and readers. */
  uses_ = 0;
  params_: unknown;
  paramsText_ = '';
  /** The last cursor, of a topic. */
  cursor_: string | undefined;
  /** What `client.entity()` or `client.topic()` returns while somebody subscribes. */
  view_: View | undefined;

  constructor(
    readonly model_: Model,
    readonly name_: string,
    /** Makes a topic's map. */
    private readonly members_: (topic: number) => Members,
  ) {}

  value_(): unknown {
    return this.model_.isTopic_ ? (this.map_ ??= this.members_(this.handle_)) : this.show_();
  }

  /** The entity's snapshot, made when it is looked at (R33). */
  show_(): Shown {
    return (this.shown_ ??= this.freeze_());
  }

  private freeze_(): Shown {
    const { state_, seq_, epoch_, status_, at_, error_ } = this;
    const shown: any = { state: state_, sync: SYNCS[this.sync_], seq: seq_, epoch: epoch_, status: status_ };
    if (at_ !== undefined) shown.at = at_;
    if (error_) shown.error = error_;
    return Object.freeze(shown);
  }
}

/** A change as readers get it. `from` and `to`: what was passed over, or −1. */
export function makeChange(
  kind: 'event' | 'snapshot',
  { epoch_: epoch, status_: status }: { readonly epoch_: string | undefined; readonly status_: string | undefined },
  { data, id, at }: Frame,
  seq: number | undefined,
  state: unknown,
  from = NONE,
  to = NONE,
  reset = false,
): Change<any, any> {
  return Object.freeze({
    kind,
    // Not a number: a numberless event.
    seq: seq === seq ? seq : undefined,
    epoch,
    state,
    ...(kind === 'event' && data !== undefined && { event: data }),
    ...(id != null && { id: String(id) }),
    ...(status !== undefined && { status }),
    ...(reset && { reset }),
    ...(from >= 0 && { skipped: [from, to] as const }),
    ...(at !== undefined && { at }),
  });
}

/** The current state as a change. */
const snapshotChange = (cell: Cell, from?: number) =>
  makeChange('snapshot', cell, { at: cell.at_ }, cell.seq_, cell.state_ ?? null, from, cell.seq_ ?? from);

/** What an entity needs of its client. */
export interface Host {
  /** What ends with the client. */
  readonly endings_: Set<() => void>;
  find_(name: string): Cell | undefined;
  follow_(view: View, listener: Listener<any>): Stop;
  /** Counts one more user of an entity; the first subscribes. The caller drains. */
  join_(view: View): Cell | undefined;
  /** One user less; the last unsubscribes. */
  leave_(cell: Cell): void;
  drain_(): void;
}

/** A readable thing by the contract that frameworks know. */
export class Readable<T> implements Store<T> {
  constructor(
    protected readonly host_: Pick<Host, 'endings_'>,
    readonly subscribe: (listener: Listener<T>) => Stop,
    readonly getSnapshot: () => T,
    private readonly initial_: T,
  ) {
    // A polyfill of the symbol may load later than this module.
    const { observable } = Symbol as { observable?: '@@observable' };
    if (observable) Readable.prototype[observable] = Readable.prototype['@@observable'];
  }

  readonly getServerSnapshot = (): T => this.initial_;

  [Symbol.asyncIterator](): AsyncIterableIterator<T> {
    return latest(this.host_, this);
  }

  '@@observable'(): this {
    return this;
  }
}

/** An entity or a topic as the application holds it; its cell may not exist yet. */
export class View extends Readable<any> {
  readonly paramsText_: string = '';
  /** Why it is of no use: shown instead of the cell. */
  failure_: InorderError | undefined;
  /** It will never be of use. */
  readonly isBroken_: boolean = false;
  private failed_: Shown | undefined;

  constructor(
    protected override readonly host_: Host,
    readonly name: string,
    readonly params_: unknown,
    readonly isTopic_: boolean,
  ) {
    const subscribe = (listener: Listener<any>) => host_.follow_(this, listener);
    super(host_, subscribe, () => this.show_(), isTopic_ ? EMPTY : UNKNOWN);
    try {
      if (params_ !== undefined) this.paramsText_ = JSON.stringify(params_);
    } catch (cause) {
      this.isBroken_ = true;
      this.failure_ = new InorderError('params', `\`params\` of ${name} must be plain JSON data.`, false, name, cause);
    }
  }

  private cell_(): Cell | undefined {
    return this.host_.find_(this.name);
  }

  private show_(): unknown {
    const { failure_: error, failed_ } = this;
    const initial = this.getServerSnapshot();
    if (!error) return (this.isTopic_ ? this.cell_()?.value_() : this.cell_()?.show_()) ?? initial;
    if (this.isTopic_) return initial;
    return failed_?.error === error ? failed_ : (this.failed_ = Object.freeze({ ...initial, sync: 'failed', error }));
  }

  /** Of a topic. */
  get sync(): Sync {
    return this.failure_ ? 'failed' : SYNCS[this.cell_()?.sync_ ?? JOINING]!;
  }

  /** Of a topic. */
  get error(): InorderError | undefined {
    return this.failure_ ?? this.cell_()?.error_;
  }

  async finished({ signal }: Abortable = {}): Promise<Shown> {
    for await (const shown of latest<Shown>(this.host_, this, signal)) {
      const { sync, error } = shown;
      if (sync === 'final') return shown;
      if (sync === 'failed' && error && !error.retryable) throw error;
    }
    throw signal?.aborted ? signal.reason : closedError(this.name);
  }

  changes({ signal }: Abortable = {}): AsyncIterableIterator<Change<any, any>> {
    const { host_ } = this;
    const waiting: Change<any, any>[] = [];
    let missed: number | undefined;
    let cell: Cell;
    const take = () => {
      if (waiting.length || missed === undefined) return waiting.shift();
      const from = missed;
      missed = undefined;
      return snapshotChange(cell, from);
    };
    return iterate(host_, signal, take, (wake, close) => {
      const joined = host_.join_(this);
      if (!joined) return close();
      cell = joined;
      const reader: Reader = (change) => {
        if (!change) close();
        else if (missed !== undefined) return;
        else if (waiting.length < WAITING_CHANGES) waiting.push(change);
        else missed = change.skipped?.[0] ?? change.seq ?? 0;
        wake();
      };
      cell.readers_ = [...cell.readers_, reader];
      if (cell.epoch_ !== undefined) reader(snapshotChange(cell));
      if (cell.sync_ === FINAL_SYNC) close();
      host_.drain_();
      return () => {
        const left = cell.readers_.filter((other) => other !== reader);
        cell.readers_ = left.length ? left : NO_READERS;
        host_.leave_(cell);
      };
    });
  }
}
