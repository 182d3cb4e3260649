import type { Sync } from 'inorder';
import { canonical } from './frames';
import type { TrueState } from './source';

/**
 * How a cell compares with the truth.
 *
 * `right`: the same. `late`: an earlier truth, and there was no time yet to hear of the newer one, or the column says
 * itself that it is not up to date. `wrong`: neither. `ahead`: newer than the truth that was read last.
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

/** What the columns are compared with: the truth now, and since when. */
export class Judge {
  readonly #known = new Map<string, Known[]>();
  /** How long news may take, in milliseconds. The last change may be lost, and the heartbeat then tells. */
  patience = 7_000;

  /** Takes what the server says. */
  learn(truth: ReadonlyMap<string, TrueState>, now: number): void {
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

  truth(entity: string): TrueState | undefined {
    return this.#known.get(entity)?.at(-1)?.truth;
  }

  entities(): IterableIterator<string> {
    return this.#known.keys();
  }

  /** Judges a cell; `sync` is what the column says where it shows nothing. `undefined`: there is no truth. */
  verdict(entity: string, shown: Shown | undefined, now: number, sync = shown?.sync): Verdict | undefined {
    const known = this.#known.get(entity);
    const last = known?.at(-1);
    if (!known || !last) return undefined;
    const says = shown?.silent || (sync !== undefined && sync !== 'live' && sync !== 'final');
    const doubt: Verdict = says ? 'late' : 'wrong';
    const first = known[0]?.since ?? now;
    if (!shown) return now - first < this.patience ? 'late' : doubt;
    const { truth, text, since } = last;
    if (canonical([shown.status ?? null, shown.state]) === text) return 'right';
    if (shown.epoch !== truth.epoch) return now - since < this.patience ? 'late' : doubt;
    if (shown.seq > truth.seq) return 'ahead';
    if (shown.seq === truth.seq || shown.seq < shown.highest) return doubt;
    const outdated = known.find((k) => k.truth.epoch === shown.epoch && k.truth.seq > shown.seq)?.since ?? since;
    return now - outdated < this.patience ? 'late' : doubt;
  }
}
