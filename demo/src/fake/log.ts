import { isTerminal, isTopic, merge } from '../frames';

/** One change as it is kept. */
export interface Stored {
  readonly seq: number;
  readonly id: string;
  readonly status?: string;
  readonly at: string;
  readonly data?: unknown;
}

/** A state and its position. */
export interface State {
  readonly seq: number;
  readonly status: string | undefined;
  readonly data: unknown;
}

interface History {
  events: Stored[];
  /** The state before the oldest event that is kept. */
  base: State;
  now: State;
}

const NOTHING: State = { seq: 0, status: undefined, data: null };

/** What a topic's event does to its set. */
interface Membership {
  readonly add?: readonly string[];
  readonly remove?: readonly string[];
}

function apply(entity: string, state: State, event: Stored): State {
  const { seq, status = state.status } = event;
  if (event.data === undefined) return { seq, status, data: state.data };
  if (!isTopic(entity)) return { seq, status, data: merge(state.data, event.data) };
  const { add = [], remove = [] } = event.data as Membership;
  const members = new Set(state.data as readonly string[] | null);
  for (const name of remove) members.delete(name);
  for (const name of add) members.add(name);
  return { seq, status, data: [...members] };
}

/** The log of the gateway in the page: histories in memory. */
export class Log {
  epoch = 'e1';
  #histories = new Map<string, History>();
  #epochs = 1;
  #ids = 0;

  /** Appends a change (G1); `undefined` when the entity is final (G5). */
  append(entity: string, status: string | undefined, data: unknown): Stored | undefined {
    const history = this.#histories.get(entity) ?? { events: [], base: NOTHING, now: NOTHING };
    if (isTerminal(entity, history.now.status)) return undefined;
    this.#histories.set(entity, history);
    this.#ids += 1;
    const event: Stored = {
      seq: history.now.seq + 1,
      id: `f${this.#ids}`,
      ...(status === undefined ? {} : { status }),
      at: new Date().toISOString(),
      ...(data === undefined ? {} : { data }),
    };
    history.events.push(event);
    history.now = apply(entity, history.now, event);
    // Who left a topic is not shown any more; a page that stays open for a day needs no histories of it.
    if (isTopic(entity)) for (const name of (data as Membership).remove ?? []) this.#histories.delete(name);
    return event;
  }

  /** An entity's state and position; `back` many changes ago for a replica that lags, as far as they are kept. */
  state(entity: string, back = 0): State {
    const history = this.#histories.get(entity);
    if (!history) return NOTHING;
    if (back === 0) return history.now;
    const kept = history.events.slice(0, Math.max(0, history.events.length - back));
    return kept.reduce((state, event) => apply(entity, state, event), history.base);
  }

  /** The changes `from` to `to`, or `undefined` when some of them are gone. */
  range(entity: string, from: number, to: number): readonly Stored[] | undefined {
    const history = this.#histories.get(entity);
    if (!history) return [];
    if (from <= history.base.seq) return undefined;
    return history.events.slice(from - history.base.seq - 1, Math.max(0, to - history.base.seq));
  }

  /** The lowest number that is kept. */
  oldest(entity: string): number {
    return (this.#histories.get(entity)?.base.seq ?? 0) + 1;
  }

  /** Drops all but the last `keep` changes of each entity. */
  trim(keep: number): void {
    for (const [entity, history] of this.#histories) {
      for (const event of history.events.splice(0, Math.max(0, history.events.length - keep))) {
        history.base = apply(entity, history.base, event);
      }
    }
  }

  /**
   * Puts the log back as a restored backup does: what is not final loses its last changes.
   *
   * Numbers will be given twice, so the epoch is new (G9).
   */
  restore(lacking: number): void {
    for (const [entity, history] of this.#histories) {
      if (isTopic(entity) || isTerminal(entity, history.now.status)) continue;
      history.events.splice(Math.max(1, history.events.length - lacking));
      history.now = history.events.reduce((state, event) => apply(entity, state, event), history.base);
    }
    this.#epochs += 1;
    this.epoch = `e${this.#epochs}`;
  }
}
