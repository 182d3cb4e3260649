import type { Core } from './core.js';

/** Calls user code, but does not wait for ever (R23). */
export interface Ask {
  /**
   * Calls `call`; then either `done` or `failed` follows, unless it is cancelled or asked anew.
   *
   * `what` names it: one call of a name is out at a time.
   */
  <T>(
    what: string,
    call: (signal: AbortSignal) => T | PromiseLike<T>,
    done: (value: T) => void,
    failed: (cause: unknown) => void,
  ): void;
}

/** Ends what was begun under a name. */
export function cancel({ ends_: ends }: Core, what: string): void {
  ends.get(what)?.();
  ends.delete(what);
}

export function makeAsk(core: Core, ms: number): Ask {
  return (what, call, done, failed) => {
    cancel(core, what);
    const abort = new AbortController();
    const settle =
      <T>(act: (value: T) => void) =>
      (value: T) => {
        if (core.ends_.get(what) !== end) return;
        clearTimeout(timer);
        core.ends_.delete(what);
        act(value);
      };
    const fail = settle(failed);
    const timer = setTimeout(() => {
      fail(new Error(`No answer within ${ms} ms.`));
      abort.abort();
    }, ms);
    const end = () => {
      clearTimeout(timer);
      abort.abort();
    };
    core.ends_.set(what, end);
    // Within a promise, so that what is thrown is a failure too.
    new Promise<any>((resolve) => resolve(call(abort.signal))).then(settle(done), fail);
  };
}
