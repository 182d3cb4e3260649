// What can be listened to, and who listens.
import { InorderError } from './errors.js';
import type { Listener, Stop } from './public/api.js';

/** One listener of a source. */
export interface Subscription {
  readonly call_: (value: any) => void;
  isOn_: boolean;
  /** The value it was last called with, so that it never hears the same twice. */
  seen_: unknown;
}

/** Something with a current value and listeners. */
export interface Source {
  /** Replaced, never changed in place: a running loop keeps the list that it began with. */
  subscriptions_: readonly Subscription[];
  /** Whether it waits for the next flush. */
  isPending_: boolean;
  /** Its only listener: beside what it hears, not three objects away. */
  quick_: ((value: any) => void) | undefined;
  /** The current value, the same object until something changes. */
  value_(): unknown;
}

export const NOBODY: readonly Subscription[] = [];

export const none = (): void => {};

/** A source that is not an entity. */
export const makeSource = (value: () => unknown = none): Source => ({
  subscriptions_: NOBODY,
  isPending_: false,
  quick_: undefined,
  value_: value,
});

/** Makes what `subscribe` and `on` return: a function that runs `end` once. */
export function makeStop(end: () => void): Stop {
  const stop: any = () => {
    const once = end;
    end = none;
    once();
  };
  stop.unsubscribe = stop;
  // Engines without explicit resource management lack the symbol.
  if (Symbol.dispose) stop[Symbol.dispose] = stop;
  return stop;
}

/** Milliseconds between flushes of a hidden page, which has no animation frames. */
const HIDDEN_FRAME = 100;

/** Its `then` is a microtask without a detour: `queueMicrotask` of a browser takes almost a microsecond. */
const RESOLVED = Promise.resolve();

export const isHidden = (): boolean => typeof document !== 'undefined' && document.visibilityState === 'hidden';

/** Calls listeners, when and as often as `flush` says (R35). */
export interface Delivery {
  /** `flush: 'sync'` */
  readonly isSync_: boolean;
  readonly errors_: Source;
  readonly changes_: Source;
  /** The sources of `client.on`, by type. */
  readonly events_: Map<string, Source>;
  /** Nobody but those who wait for errors is called any more. */
  isClosed_: boolean;
  /** A source changed: calls its listeners now or with the next flush. `isMap`: made once per task even if `sync`. */
  notify_(source: Source, isMap?: boolean): void;
  /** Calls every listener that has not heard the value. */
  deliver_(source: Source, value?: unknown): void;
  /** Calls the listeners of `client.on(type)`. */
  emit_(type: string, event: unknown): void;
  /** Reports what went wrong: to `error` listeners, else to the logger. */
  report_(error: InorderError): void;
  /** A listener threw. */
  threw_(cause: unknown, source?: Source): void;
  /** Adds a listener and calls it at once (R32); sources of `client.on` have nothing to say yet. */
  follow_(source: Source, listener: Listener<any>, leave?: () => void): Stop;
  /** Whether something can be called as a listener; if not, that is reported. */
  isListener_(listener: unknown): boolean;
  /** A page that was hidden gets no frame for what waits. */
  hide_(): void;
  close_(): void;
}

export function makeDelivery(
  flush: string | undefined,
  logger: { error(...values: unknown[]): void } | null | undefined,
): Delivery {
  let pending: Source[] = [];
  let cancel: (() => void) | undefined;
  const errors = makeSource();
  const changes = makeSource();

  const run = () => {
    if (!cancel) return;
    cancel = undefined;
    const sources = pending;
    pending = [];
    for (const source of sources) if (source.isPending_) it.deliver_(source);
  };

  const schedule = () => {
    cancel = none;
    if (flush !== 'frame') RESOLVED.then(run);
    else if (isHidden() || typeof requestAnimationFrame !== 'function') {
      const timer = setTimeout(run, HIDDEN_FRAME);
      cancel = () => clearTimeout(timer);
    } else {
      const frame = requestAnimationFrame(run);
      cancel = () => cancelAnimationFrame(frame);
    }
  };

  const relist = (source: Source, list: readonly Subscription[]) => {
    source.subscriptions_ = list;
    source.quick_ = list.length === 1 ? list[0]!.call_ : undefined;
  };

  const call = (source: Source, subscription: Subscription, value: unknown) => {
    subscription.seen_ = value;
    try {
      subscription.call_(value);
    } catch (cause) {
      it.threw_(cause, source);
    }
  };

  const it: Delivery = {
    isSync_: flush === 'sync',
    isClosed_: false,
    errors_: errors,
    changes_: changes,
    events_: new Map([
      ['error', errors],
      ['change', changes],
    ]),

    notify_(source, isMap) {
      if (!source.subscriptions_.length || it.isClosed_) return;
      if (it.isSync_ && !isMap) return it.deliver_(source);
      if (source.isPending_) return;
      source.isPending_ = true;
      pending.push(source);
      if (!cancel) schedule();
    },

    deliver_(source, value = source.value_()) {
      source.isPending_ = false;
      for (const subscription of source.subscriptions_) {
        if (it.isClosed_ && source !== errors) return;
        if (subscription.isOn_ && subscription.seen_ !== value) call(source, subscription, value);
      }
    },

    emit_(type, event) {
      const source = it.events_.get(type);
      if (source) it.deliver_(source, event);
    },

    report_(error) {
      if (errors.subscriptions_.length) it.deliver_(errors, error);
      else logger?.error(error);
    },

    threw_(cause, source) {
      // Not to the listeners of errors: they would go on for ever.
      if (source === errors) logger?.error(cause);
      else it.report_(new InorderError('listener', 'A listener threw, see `cause`: mend it.', false, undefined, cause));
    },

    follow_(source, listener, leave = none) {
      const call_ = typeof listener === 'function' ? listener : (value: unknown) => listener.next?.(value);
      const subscription: Subscription = { call_, isOn_: true, seen_: undefined };
      relist(source, [...source.subscriptions_, subscription]);
      if (source.value_ !== none) call(source, subscription, source.value_());
      return makeStop(() => {
        subscription.isOn_ = false;
        relist(
          source,
          source.subscriptions_.filter((other) => other !== subscription),
        );
        leave();
      });
    },

    isListener_(listener) {
      const is = typeof listener === 'function' || (typeof listener === 'object' && listener !== null);
      if (!is) it.report_(new InorderError('listener', 'A listener must be a function or have a function `next`.'));
      return is;
    },

    hide_() {
      if (!cancel || flush !== 'frame') return;
      cancel();
      schedule();
    },

    close_() {
      it.isClosed_ = true;
      cancel?.();
      cancel = undefined;
    },
  };
  return it;
}
