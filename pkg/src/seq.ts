import { NONE } from './boundary.js';

/** A number on the wire: a safe integer from 0, or the same as decimal digits; else −1 (R11). */
export function parseSeq(value: unknown): number {
  const number = typeof value === 'string' && /^\d{1,16}$/.test(value) ? +value : value;
  return Number.isSafeInteger(number) && (number as number) >= 0 ? (number as number) : NONE;
}
