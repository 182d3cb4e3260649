// Numbers for strings: epochs and statuses cross the boundary as numbers.
import { EPOCHS, NONE, REGISTERS } from '../boundary.js';
import { give, registers } from './core.js';
import { models, STATUSES } from './options.js';

/** Epochs that get a number before those out of use are dropped. */
const LIMIT = 1_024;

const [seedHigh, seedLow] = crypto.getRandomValues(new Uint32Array(2)) as unknown as [number, number];
export const seeds = [seedHigh, seedLow] as const;

export const epochNames: (string | undefined)[] = [];
const epochs = new Map<string, number>();
const freeEpochs: number[] = [];
let limit = LIMIT;
// Most frames say the same as the one before.
let lastEpochName: unknown = NONE;
let lastEpoch = NONE;

export const statusNames: (string | undefined)[] = [undefined];
const statuses = new Map<string, number>();
let lastStatusName: unknown;
let lastStatus = 0;

/** The number of an epoch; −1 if it is no string. */
export function epochOf(name: unknown): number {
  if (name === lastEpochName) return lastEpoch;
  const key = name ?? '';
  if (typeof key !== 'string') return NONE;
  let epoch = epochs.get(key);
  if (epoch === undefined) {
    if (epochs.size >= limit) sweepEpochs();
    epoch = freeEpochs.pop() ?? epochNames.length;
    epochNames[epoch] = key;
    epochs.set(key, epoch);
  }
  lastEpochName = name;
  return (lastEpoch = epoch);
}

/** Takes the numbers back of epochs that the core no longer knows. */
function sweepEpochs(): void {
  const used = new Set<number>();
  for (let from = 0, left = 1; left > 0; from += REGISTERS, left -= REGISTERS) {
    left = give(EPOCHS, from);
    for (const epoch of registers().subarray(0, left)) used.add(epoch);
  }
  for (const [name, epoch] of epochs) {
    if (!used.has(epoch)) {
      epochs.delete(name);
      freeEpochs.push(epoch);
    }
  }
  // All in use: do not sweep for each new one.
  limit = Math.max(LIMIT, epochs.size * 2);
}

/** The number of a status; 0 for none, −1 if it is no string. */
export function statusOf(name: unknown): number {
  if (name === lastStatusName) return lastStatus;
  if (name == null) return 0;
  if (typeof name !== 'string') return NONE;
  let status = statuses.get(name);
  if (status === undefined) {
    status = statusNames.length;
    if (status >= STATUSES) {
      // A hash is enough for the core, which only compares.
      fingerprint(name);
      return (hashLow | 0x8000_0000) >>> 0;
    }
    statusNames.push(name);
    statuses.set(name, status);
    for (const model of models) model.ends_[status] = +model.terminal_.has(name);
  }
  lastStatusName = name;
  return (lastStatus = status);
}

/** The halves of the last fingerprint. */
export let hashHigh = 0;
export let hashLow = 0;

/**
 * Hashes an event's id, with the client's seed, so that no server can aim for two that are alike. Numbers cross the
 * boundary at a fortieth of a string's cost.
 */
export function fingerprint(id: string): void {
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
  hashHigh = high >>> 0;
  // 0 and 0 would mean "no id".
  hashLow = (low | 1) >>> 0;
}
