// What is shown of one entity, and how it is read.
import { JOINING, NONE } from './boundary.js';
import type { InorderError } from './errors.js';
import type { Model } from './client/options.js';
import type { Change, EntitySnapshot, Sync } from './public/api.js';
import type { Source } from './store.js';

/** By the core's numbers. */
export const SYNCS: readonly Sync[] = ['joining', 'live', 'recovering', 'stale', 'final', 'failed'];

/** A frame as it was parsed: any field may be anything. */
export type Frame = any;

export type Shown = EntitySnapshot<any>;
export type Members = ReadonlyMap<string, Shown>;

/** One `changes()`; `undefined`: the final change was the last. */
export type Reader = (change: Change<any, any> | undefined) => void;

/** The list of an entity that nobody reads by `changes()`: compared by identity on the hot path. */
export const NO_READERS: readonly Reader[] = [];

/** What is shown of an entity that nothing is known of. */
export const UNKNOWN: Shown = Object.freeze({
  state: undefined,
  sync: 'joining',
  seq: undefined,
  epoch: undefined,
  status: undefined,
});

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
  /** It is in a topic, whose map changes with it. */
  isMember_ = false;
  state_: unknown;
  seq_: number | undefined;
  epoch_: string | undefined;
  status_: string | undefined;
  at_: unknown;
  error_: InorderError | undefined;
  /** `undefined`: something changed since the last one. */
  shown_: Shown | undefined = UNKNOWN;
  isPending_ = false;
  subscriptions_: Source['subscriptions_'] = [];
  /** Of a topic; `undefined`: a member changed since the last one. */
  map_: Members | undefined;
  /** Listeners and readers. */
  uses_ = 0;
  params_: unknown;
  paramsText_ = '';
  /** The last cursor, of a topic. */
  cursor_: string | undefined;
  /** What `client.entity()` or `client.topic()` returns while somebody subscribes. */
  view_: object | undefined;

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
