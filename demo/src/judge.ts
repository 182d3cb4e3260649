import type { Sync } from 'inorder';
import { canonical } from './frames';
import type { TrueState } from './source';

/**
 * How a cell compares with the truth.
 *
 * `right`: the same. `late`: an earlier truth, and there was no time yet to hear of the newer one, or the column says
 * itself that it is not up to date. `wrong`: it was never so, it went back, or it is out of date and does not say so.
 * `ahead`: newer than the truth that was read last.
 */
export type Verdict = 'right' | 'late' | 'wrong' | 'ahead';

/** What a column shows of an entity. */
export interface Shown {
  readonly state: unknown;
  readonly status: string | undefined;
  readonly seq: number;
  readonly epoch: string;
  /** The highest number of this epoch that the column had before; above `seq` it went back. */
  readonly highest: number;
  /** Since when it shows this, in milliseconds of `performance.now()`. */
  readonly since: number;
  /** What the column says of itself; a naive one says nothing. */
  readonly sync?: Sync;
  /** Whether the column says that nothing was heard from the server for too long. */
  readonly silent?: boolean;
}

interface Known {
  readonly truth: TrueState;
  readonly text: string;
  /** When it was first seen to be so, in milliseconds of `performance.now()`. */
  readonly since: number;
}

/** Truths remembered per entity: enough for the longest time that news may take. */
const REMEMBERED = 64;

/** Heartbeats remembered; two decide. */
const BEATS = 64;

/**
 * A column that was told of something newer says so within this time, in milliseconds: inorder does when it asks, and of
 * many that have to ask 16 do at a time (R20).
 */
const TOLD_MS = 5_000;

/** What the columns are compared with: the truth now, and since when. */
export class Judge {
  readonly #known = new Map<string, Known[]>();
  #beats: number[] = [];
  /** When the last reading that arrived was asked for. */
  #asked = -Infinity;
  /** How long news may take, in milliseconds. The last change may be lost, and the heartbeat then tells. */
  patience = 7_000;

  /** Takes what the server says, and when it was asked. */
  learn(truth: ReadonlyMap<string, TrueState>, asked: number, now: number): void {
    this.#asked = asked;
    for (const entity of this.#known.keys()) if (!truth.has(entity)) this.#known.delete(entity);
    for (const [entity, state] of truth) {
      const known = this.#known.get(entity) ?? [];
      const last = known.at(-1)?.truth;
      if (last?.seq === state.seq && last.epoch === state.epoch) continue;
      known.push({ truth: state, text: canonical([state.status ?? null, state.data]), since: now });
      if (known.length > REMEMBERED) known.shift();
      this.#known.set(entity, known);
    }
  }

  /** A heartbeat arrived. One that closely follows another only brings what the first had no room for. */
  beat(now: number): void {
    if (now - (this.#beats.at(-1) ?? -Infinity) < this.patience / 2) return;
    this.#beats.push(now);
    if (this.#beats.length > BEATS) this.#beats.shift();
  }

  truth(entity: string): TrueState | undefined {
    return this.#known.get(entity)?.at(-1)?.truth;
  }

  entities(): IterableIterator<string> {
    return this.#known.keys();
  }

  /** Judges a cell. `undefined`: there is no truth to compare it with. */
  verdict(entity: string, shown: Shown, now: number): Verdict | undefined {
    const known = this.#known.get(entity);
    const last = known?.at(-1);
    if (!known || !last) return undefined;
    const text = canonical([shown.status ?? null, shown.state]);
    if (text === last.text) return 'right';
    const { epoch, seq } = shown;
    const same = known.find(({ truth }) => truth.epoch === epoch && truth.seq === seq);
    if (same && same.text !== text) return 'wrong';
    if (seq < shown.highest) return 'wrong';
    const ours = known.filter(({ truth }) => truth.epoch === epoch);
    const unread = this.#isUnread(shown.since);
    if (epoch === last.truth.epoch && seq > last.truth.seq) return unread ? 'ahead' : 'wrong';
    if (ours.length === 0 && unread) return 'ahead';
    return this.#lag(ours.find(({ truth }) => truth.seq > seq)?.since ?? last.since, shown, now);
  }

  /**
   * Judges a column that shows nothing of an entity since then, and has no more to say than that; `sync` is how far
   * its set of entities can be trusted.
   */
  absence(entity: string, since: number, says: Pick<Shown, 'sync' | 'silent'>, now: number): Verdict | undefined {
    const first = this.#known.get(entity)?.[0];
    if (!first) return undefined;
    return this.#isUnread(since) ? 'ahead' : this.#lag(Math.max(first.since, since), says, now);
  }

  /** Whether the truth was not read since then: what was so when it was asked for can't be newer than it. */
  #isUnread(since: number): boolean {
    return since >= this.#asked;
  }

  /** Judges what is out of date since then. */
  #lag(since: number, { sync, silent }: Pick<Shown, 'sync' | 'silent'>, now: number): Verdict {
    if (silent || (sync !== undefined && sync !== 'live' && sync !== 'final')) return 'late';
    if (now - since < this.patience) return 'late';
    return sync === 'live' && !this.#wasTold(since, now) ? 'late' : 'wrong';
  }

  /**
   * Whether the server told of what is so since then. The first heartbeat may have been on its way already, so it is
   * the second that counts.
   */
  #wasTold(since: number, now: number): boolean {
    const second = this.#beats.filter((at) => at > since)[1];
    return second !== undefined && now - second >= TOLD_MS;
  }
}
