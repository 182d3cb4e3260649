// Numbers for strings: epochs and statuses cross the boundary as numbers.
import { EPOCHS, NONE, REGISTERS } from './boundary.js';
import type { Core } from './core.js';
import { type Model, STATUSES } from './options.js';

/** Epochs that get a number before those out of use are dropped. */
const LIMIT = 1_024;

/** What a string is known as, and back. */
export interface Names {
  /** The number of an epoch; −1 if it is no string. */
  epoch_(name: unknown): number;
  /** The number of a status; 0 for none, −1 if it is no string. */
  status_(name: unknown): number;
  readonly epochs_: (string | undefined)[];
  readonly statuses_: (string | undefined)[];
  /** Hashes an event's id; the result is in `high_` and `low_`. */
  fingerprint_(id: string): void;
  high_: number;
  low_: number;
}

export function makeNames(core: Core, models: readonly Model[], seedHigh: number, seedLow: number): Names {
  const epochs = new Map<string, number>();
  const statuses = new Map<string, number>();
  const free: number[] = [];
  let limit = LIMIT;
  // Most frames say the same as the one before.
  let lastEpochName: unknown = NONE;
  let lastEpoch = NONE;
  let lastStatusName: unknown;
  let lastStatus = 0;

  /** Takes the numbers back of epochs that the core no longer knows. */
  const sweep = () => {
    const used = new Set<number>();
    for (let from = 0, left = 1; left > 0; from += REGISTERS, left -= REGISTERS) {
      left = core.give_(EPOCHS, from);
      for (const epoch of core.registers_().subarray(0, left)) used.add(epoch);
    }
    for (const [name, epoch] of epochs) {
      if (used.has(epoch)) continue;
      epochs.delete(name);
      it.epochs_[epoch] = undefined;
      free.push(epoch);
    }
    // All in use: do not sweep for each new one.
    limit = Math.max(LIMIT, epochs.size * 2);
  };

  const it: Names = {
    epochs_: [],
    statuses_: [undefined],
    high_: 0,
    low_: 0,

    epoch_(name) {
      if (name === lastEpochName) return lastEpoch;
      const key = name ?? '';
      if (typeof key !== 'string') return NONE;
      let epoch = epochs.get(key);
      if (epoch === undefined) {
        if (epochs.size >= limit) sweep();
        epoch = free.pop() ?? it.epochs_.length;
        it.epochs_[epoch] = key;
        epochs.set(key, epoch);
      }
      lastEpochName = name;
      return (lastEpoch = epoch);
    },

    status_(name) {
      if (name === lastStatusName) return lastStatus;
      if (name == null) return 0;
      if (typeof name !== 'string') return NONE;
      let status = statuses.get(name);
      if (status === undefined) {
        status = it.statuses_.length;
        if (status >= STATUSES) {
          // A hash is enough for the core, which only compares.
          it.fingerprint_(name);
          return (it.low_ | 0x8000_0000) >>> 0;
        }
        it.statuses_.push(name);
        statuses.set(name, status);
        for (const model of models) model.ends_[status] = +model.terminal_.has(name);
      }
      lastStatusName = name;
      return (lastStatus = status);
    },

    // With the client's seed, so that no server can aim for two that are alike. Numbers cross the boundary at a
    // fortieth of a string's cost.
    fingerprint_(id) {
      let high = seedHigh;
      let low = seedLow;
      // Two units of 16 bits at a time; after the last one comes 0.
      for (let i = 0; i < id.length; i += 2) {
        const word = id.charCodeAt(i) | (i + 1 < id.length ? id.charCodeAt(i + 1) << 16 : 0);
        high = Math.imul(high ^ word, 0x9e3779b1);
        low = Math.imul(low ^ word, 0x85ebca6b);
        high ^= low >>> 15;
        low ^= high >>> 13;
      }
      it.high_ = high >>> 0;
      // 0 and 0 would mean "no id".
      it.low_ = (low | 1) >>> 0;
    },
  };
  return it;
}
