// What is true: every change as the gateway stored it, by epoch and number, and the states that follow from them. By
// code of its own: nothing of the package is used here.

/** RFC 7396, as far as the producer needs it: flat objects. */
function merge(state, data) {
  const merged = { ...state };
  for (const [key, value] of Object.entries(data)) {
    if (value === null) delete merged[key];
    else merged[key] = value;
  }
  return merged;
}

/** How each model's state follows from its changes. */
const FOLDS = {
  job: merge,
  gauge: (_, data) => data,
  price: (_, data) => data,
  topic: (members, { add = [], remove = [] }) =>
    [...new Set([...(members ?? []).filter((name) => !remove.includes(name)), ...add])].sort(),
};

/** After these a job is final. */
export const FINAL = ['completed', 'failed', 'cancelled'];

export const modelOf = (entity) => entity.slice(0, entity.indexOf('/'));

/** The same text for the same value, whatever the order of its keys. */
export function text(value) {
  return JSON.stringify(value, (_, inner) =>
    inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}

export class Truth {
  /** Names in the order in which the epochs began. */
  #epochs = [];
  /** By epoch, by entity: the state after each change; at 0 before the first. */
  #states = new Map();

  /** How old an epoch is: 0 is the first. −1: there is none of this name. */
  age(epoch) {
    return this.#epochs.indexOf(epoch);
  }

  get epoch() {
    return this.#epochs.at(-1);
  }

  /** An epoch begins with what was kept of the one before: `heads` has the numbers by entity. */
  begin(epoch, heads) {
    const before = this.#states.get(this.epoch);
    const states = new Map();
    for (const [entity, head] of heads) {
      const kept = before?.get(entity)?.slice(0, head + 1);
      if (kept?.length !== head + 1) throw new Error(`${entity} is at ${head} in ${epoch}, which was never stored`);
      states.set(entity, kept);
    }
    this.#epochs.push(epoch);
    this.#states.set(epoch, states);
  }

  /** A change was stored. */
  add(entity, epoch, { seq, status, data }) {
    const states = this.#states.get(epoch);
    if (!states) throw new Error(`${entity} was stored in ${epoch}, which was never seen to begin`);
    if (!states.has(entity)) states.set(entity, [{ status: undefined, state: null }]);
    const known = states.get(entity);
    if (known.length !== seq) throw new Error(`${entity} was stored at ${seq} of ${epoch}, after ${known.length - 1}`);
    const last = known.at(-1);
    known.push({
      status: status ?? last.status,
      state: data === undefined ? last.state : FOLDS[modelOf(entity)](last.state, data),
      data,
    });
  }

  /** The state after a change, with the change's own data; `undefined` when there is no such change. */
  at(entity, epoch, seq) {
    return this.#states.get(epoch)?.get(entity)?.[seq];
  }

  /** The newest number of an entity. */
  head(entity) {
    return (this.#states.get(this.epoch)?.get(entity)?.length ?? 1) - 1;
  }

  /** All entities of the epoch that is current. */
  entities() {
    return [...(this.#states.get(this.epoch)?.keys() ?? [])];
  }
}
