// What ends with the client, and user code that is asked but not waited for without end (R23).
import { userTimeout } from './options.js';

/** What was begun, by what it is. */
const ends = new Map<string, () => void>();

export const isOut = (what: string): boolean => ends.has(what);

/** Ends what `what` matches. */
export function cancel(what: RegExp): void {
  for (const [name, end] of ends) {
    if (!what.test(name)) continue;
    ends.delete(name);
    end();
  }
}

/** Calls back after a while, unless it is cancelled or begun anew. */
export function wait(what: string, ms: number, then: () => void): void {
  ends.get(what)?.();
  const timer = setTimeout(() => {
    ends.delete(what);
    then();
  }, ms);
  ends.set(what, () => clearTimeout(timer));
}

/** Calls user code; then either `done` or `failed` follows, unless it is cancelled or asked anew. */
export function ask<T>(
  what: string,
  call: (signal: AbortSignal) => T | PromiseLike<T>,
  done: (value: T) => void,
  failed: (cause: unknown) => void,
): void {
  ends.get(what)?.();
  const abort = new AbortController();
  const settle =
    <V>(act: (value: V) => void) =>
    (value: V) => {
      if (ends.get(what) !== end) return;
      clearTimeout(timer);
      ends.delete(what);
      act(value);
    };
  const fail = settle(failed);
  const end = () => {
    clearTimeout(timer);
    abort.abort();
  };
  const timer = setTimeout(() => {
    fail(new Error(`No answer within ${userTimeout} ms.`));
    abort.abort();
  }, userTimeout);
  ends.set(what, end);
  // Within a promise, so that what is thrown is a failure too.
  new Promise<any>((resolve) => resolve(call(abort.signal))).then(settle(done), fail);
}
