// Calls listeners, when and as often as `flush` says (R35), and reports errors.
import { options } from '#given';
import { InorderError } from '../errors.js';
import type { ClientEvents, ErrorCode, Listener, Stop } from '../public/api.js';
import { makeSource, makeStop, type Source, type Subscription } from '../store.js';

/** Milliseconds between flushes of a hidden page, which has no animation frames. */
const HIDDEN_FRAME = 100;

/** Its `then` is a microtask without a detour: `queueMicrotask` of a browser takes almost a microsecond. */
export const RESOLVED = Promise.resolve();

const { logger = console, flush } = options;

/** `flush: 'sync'` */
export const isSync = flush === 'sync';

/** The sources of `client.on`. */
const events = new Map<string, Source>();
const errors = eventsOf('error');
export const changes = eventsOf('change');

/** Nobody but those who wait for errors is called any more. */
export let isClosed = false;

/** What a listener did, in its error. */
export const THREW = 'failed, see `cause`';

let pending: Source[] = [];
let unschedule: (() => void) | undefined;

export const isHidden = (): boolean => typeof document !== 'undefined' && document.visibilityState === 'hidden';

export function eventsOf(type: string): Source {
  let source = events.get(type);
  if (!source) events.set(type, (source = makeSource(undefined)));
  return source;
}

/** A source changed: calls its listeners now or with the next flush. `isMap`: made once per task even if `sync`. */
export function notify(source: Source, isMap?: boolean): void {
  if (!source.subscriptions_[0] || isClosed) return;
  if (isSync && !isMap) return deliver(source, source.value_!());
  if (source.isPending_) return;
  source.isPending_ = true;
  pending.push(source);
  if (!unschedule) schedule();
}

function schedule(): void {
  unschedule = () => {};
  if (flush !== 'frame') RESOLVED.then(run);
  else if (isHidden() || typeof requestAnimationFrame !== 'function') {
    const timer = setTimeout(run, HIDDEN_FRAME);
    unschedule = () => clearTimeout(timer);
  } else {
    const frame = requestAnimationFrame(run);
    unschedule = () => cancelAnimationFrame(frame);
  }
}

function run(): void {
  const sources = pending;
  unschedule = undefined;
  pending = [];
  sources.forEach(deliverPending);
}

/** Calls those now who wait for the next flush. */
export function deliverPending(source: Source): void {
  if (source.isPending_) deliver(source, source.value_!());
}

/** A page that was hidden gets no frame for what waits. */
export function flushHidden(): void {
  if (!unschedule || flush !== 'frame') return;
  unschedule();
  schedule();
}

/** Calls every listener that has not heard the value. */
function deliver(source: Source, value: unknown): void {
  source.isPending_ = false;
  for (const subscription of source.subscriptions_) {
    if (isClosed && source !== errors) return;
    if (subscription.isOn_ && subscription.seen_ !== value) call(source, subscription, value);
  }
}

function call(source: Source, subscription: Subscription, value: unknown): void {
  subscription.seen_ = value;
  try {
    subscription.call_(value);
  } catch (cause) {
    // Not to the listeners of errors: they would go on for ever.
    if (source === errors) log(cause);
    else report('listener', THREW, cause);
  }
}

/** Calls the listeners of `client.on(type)`; `make` makes what they are told. */
export function emit<T extends keyof ClientEvents>(type: T, make: () => ClientEvents[T]): void {
  const source = eventsOf(type);
  if (source.subscriptions_[0]) deliver(source, make());
}

/** Reports what went wrong: to `error` listeners, else to the logger. */
export function report(what: InorderError | ErrorCode, about?: string, cause?: unknown): InorderError {
  const error = what instanceof InorderError ? what : new InorderError(what, about, cause);
  if (errors.subscriptions_[0]) deliver(errors, error);
  else log(error);
  return error;
}

function log(what: unknown): void {
  try {
    logger?.error(what);
  } catch {
    // There is nobody left to tell.
  }
}

/** Adds a listener and calls it at once (R32), if the source has a value. What is no listener is reported. */
export function follow(source: Source, listener: Listener<any>, leave?: () => void): Stop {
  const isFunction = typeof listener === 'function';
  if (!isFunction && (typeof listener !== 'object' || !listener))
    report('listener', 'must be a function or have `next`');
  // Who has no `next` wants the entity followed and nothing more: a map of all members is not made for that.
  if (!isFunction && !listener?.next) return makeStop(leave);
  const call_ = isFunction ? listener : (value: unknown) => listener.next?.(value);
  const subscription: Subscription = { call_, isOn_: true, seen_: undefined };
  relist(source, [...source.subscriptions_, subscription]);
  if (source.value_) call(source, subscription, source.value_());
  return makeStop(() => {
    subscription.isOn_ = false;
    relist(
      source,
      source.subscriptions_.filter((other) => other !== subscription),
    );
    leave?.();
  });
}

function relist(source: Source, list: readonly Subscription[]): void {
  source.subscriptions_ = list;
  source.quick_ = list.length === 1 ? list[0]!.call_ : undefined;
}

export function stopCalling(): void {
  isClosed = true;
  unschedule?.();
}
