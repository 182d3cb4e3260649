import type { Listener, Stop } from './public/api.js';

/** One listener of a source. */
export interface Subscription {
  /** The listener as it was given: a function or an object with `next`. */
  readonly listener: Listener<any>;
  on: boolean;
  /** The value it was last called with, so that it never hears the same twice. */
  seen: unknown;
}

/** Something with a current value and listeners. */
export interface Source {
  /** Replaced, never changed in place: a running loop keeps the list that it began with. */
  subscriptions: readonly Subscription[];
  /** Whether it waits for the next flush. */
  pending: boolean;
  /** A map of many entities: made once per task even with `flush: 'sync'`. */
  readonly isMap: boolean;
  /** The listener, where there is one and it is a function: beside what it hears, not three objects away. */
  quick?: ((value: any) => void) | undefined;
  /** The current value, the same object until something changes. */
  value(): unknown;
}

export const NOBODY: readonly Subscription[] = [];

/** Adds a listener to a source. */
export function attach(source: Source, listener: Listener<any>): Subscription {
  const subscription = { listener, on: true, seen: undefined };
  relist(source, source.subscriptions.concat(subscription));
  return subscription;
}

function relist(source: Source, list: readonly Subscription[]): void {
  source.subscriptions = list;
  const listener = list.length === 1 ? list[0]!.listener : undefined;
  source.quick = typeof listener === 'function' ? listener : undefined;
}

/** Takes a listener off a source; it is not called again, even by a loop that is running. */
export function detach(source: Source, subscription: Subscription): void {
  subscription.on = false;
  relist(
    source,
    source.subscriptions.filter((other) => other !== subscription),
  );
}

/** Makes what `subscribe` and `on` return: a function that runs `end` once. */
export function stop(end: () => void): Stop {
  let ended = false;
  const stop = () => {
    if (!ended) {
      ended = true;
      end();
    }
  };
  stop.unsubscribe = stop;
  // Engines without explicit resource management lack the symbol.
  if (Symbol.dispose) (stop as { [Symbol.dispose]?: () => void })[Symbol.dispose] = stop;
  return stop as unknown as Stop;
}

/** Whether something can be called as a listener. */
export function isListener(listener: unknown): listener is Listener<any> {
  return typeof listener === 'function' || (typeof listener === 'object' && listener !== null);
}

/** What both kinds of iterator need: values that wait, and a reader that waits. */
export class Queue<T> implements AsyncIterableIterator<T> {
  /** The reader waits for each value; more than one `next` may be out. */
  private readonly waiting: ((result: IteratorResult<T>) => void)[] = [];
  private ended = false;

  /** `take` gives the next value that waits, or `undefined`; `end` is called once when it is over. */
  constructor(
    private readonly take: () => T | undefined,
    private readonly end: () => void,
    private readonly signal?: AbortSignal,
  ) {
    if (signal?.aborted) this.close();
    else signal?.addEventListener('abort', this.close);
  }

  /** Hands what waits to whoever waits for it. */
  wake(): void {
    while (this.waiting.length > 0) {
      const value = this.take();
      if (value === undefined) break;
      this.waiting.shift()!({ done: false, value });
    }
  }

  /** Ends it: what waits may still be read, unless the reader itself left. */
  readonly close = (): void => {
    if (this.ended) return;
    this.ended = true;
    this.signal?.removeEventListener('abort', this.close);
    this.end();
    this.wake();
    for (const resolve of this.waiting.splice(0)) resolve({ done: true, value: undefined });
  };

  next(): Promise<IteratorResult<T>> {
    const value = this.take();
    if (value !== undefined) return Promise.resolve({ done: false, value });
    if (this.ended) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  return(): Promise<IteratorResult<T>> {
    this.close();
    while (this.take() !== undefined);
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
