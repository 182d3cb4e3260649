// What can be listened to, and who listens.
import type { Stop } from './public/api.js';

/** One listener of a source. */
export interface Subscription {
  readonly call_: (value: any) => void;
  isOn_: boolean;
  /** The value it was last called with, so that it never hears the same twice. */
  seen_: unknown;
}

/** Something with a current value and listeners. */
export interface Source {
  /** Its only listener: beside what it hears, not three objects away. */
  quick_: ((value: any) => void) | undefined;
  /** Whether it waits for the next flush. */
  isPending_: boolean;
  /** Replaced, never changed in place: a running loop keeps the list that it began with. */
  subscriptions_: readonly Subscription[];
  /** The current value, the same object until something changes. */
  readonly value_: (() => unknown) | undefined;
}

/** Makes a source that is no entity. */
export const makeSource = (value_: (() => unknown) | undefined): Source => ({
  quick_: undefined,
  isPending_: false,
  subscriptions_: [],
  value_,
});

/** Makes what `subscribe` and `on` return: a function that runs `end` once. */
export function makeStop(end: (() => void) | undefined): Stop {
  const stop: any = () => {
    const once = end;
    end = undefined;
    once?.();
  };
  stop.unsubscribe = stop;
  // Engines without explicit resource management lack the symbol.
  if (Symbol.dispose) stop[Symbol.dispose] = stop;
  return stop;
}
