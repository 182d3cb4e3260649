import type { Store, Sync } from '../public/api.js';

/** What ends with the client. */
export const endings = new Set<() => void>();

/**
 * An iterator over values that wait, for a reader that waits.
 *
 * `take` gives the next value that waits, or `undefined`. `begin` is called at once, unless `signal` is aborted; it may
 * `wake` and `close`, and returns what is to be called when it is over. What waits then may still be read, unless the
 * reader itself left.
 */
export function iterate<T>(
  signal: AbortSignal | undefined,
  take: () => T | undefined,
  begin: (wake: () => void, close: () => void) => (() => void) | void,
): AsyncIterableIterator<T> {
  /** More than one `next` may be out. */
  const waiting: ((result: IteratorResult<T>) => void)[] = [];
  let isEnded = false;
  let end: (() => void) | void;

  const wake = () => {
    while (waiting.length) {
      const value = take();
      if (value === undefined && !isEnded) return;
      waiting.shift()!({ done: value === undefined, value: value as T });
    }
  };
  const close = () => {
    if (isEnded) return;
    isEnded = true;
    signal?.removeEventListener('abort', close);
    endings.delete(close);
    end?.();
    wake();
  };
  const iterator: AsyncIterableIterator<T> = {
    next: () =>
      new Promise((resolve) => {
        waiting.push(resolve);
        wake();
      }),
    async return() {
      close();
      while (take() !== undefined);
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]: () => iterator,
  };
  if (signal?.aborted) isEnded = true;
  else {
    signal?.addEventListener('abort', close);
    endings.add(close);
    end = begin(wake, close);
    if (isEnded) end?.();
  }
  return iterator;
}

/** Iterates over the newest values of a store. A slow reader misses those between, never a final one. */
export function latest<T>(store: Store<T>, signal?: AbortSignal): AsyncIterableIterator<T> {
  let waiting: T[] = [];
  return iterate(
    signal,
    () => waiting.shift(),
    (wake) =>
      store.subscribe((value) => {
        waiting = waiting.filter((other) => (other as { sync?: Sync }).sync === 'final');
        waiting.push(value);
        wake();
      }),
  );
}
