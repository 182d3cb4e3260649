// A clock that only the runner moves, in place of the timers, clocks and frames of Node or a page.

/** Where the monotonic clock starts, in ms. */
const START = 10_000;

/** Where the wall clock starts. */
const EPOCH = Date.UTC(2026, 0, 1);

/** Between animation frames, in ms. */
const FRAME = 16;

interface Timer {
  readonly due: number;
  readonly call: () => void;
  readonly isFrame: boolean;
}

/** Waits until nothing is left to do without time passing: a task of its own comes after all microtasks. */
const rest = ((): (() => Promise<void>) => {
  const { port1, port2 } = new MessageChannel();
  const waiting: (() => void)[] = [];
  port1.onmessage = () => waiting.shift()?.();
  (port1 as { unref?: () => void }).unref?.();
  return () =>
    new Promise((resolve) => {
      (port1 as { ref?: () => void }).ref?.();
      waiting.push(() => {
        (port1 as { unref?: () => void }).unref?.();
        resolve();
      });
      port2.postMessage(0);
    });
})();

/** Virtual time. While it is installed, everything on this page or in this process sees it. */
export class Clock {
  now = START;
  /** How far the wall clock went on while the machine slept. */
  private slept = 0;
  private readonly timers = new Map<number, Timer>();
  private count = 0;
  private readonly undo: (() => void)[] = [];

  /** Takes the place of the real clock. The random numbers of new clients follow from `seed`. */
  install(seed: number): void {
    const set = (call: () => void, ms = 0, isFrame = false): number => {
      this.timers.set(++this.count, { due: this.now + Math.max(0, Math.trunc(ms)), call, isFrame });
      return this.count;
    };
    const clear = (timer: number) => void this.timers.delete(timer);
    this.replace(globalThis, 'setTimeout', (call: () => void, ms?: number) => set(call, ms));
    this.replace(globalThis, 'clearTimeout', clear);
    this.replace(globalThis, 'requestAnimationFrame', (call: () => void) => set(call, FRAME, true));
    this.replace(globalThis, 'cancelAnimationFrame', clear);
    this.replace(performance, 'now', () => this.now);
    this.replace(Date, 'now', () => EPOCH + this.now + this.slept);
    this.replace(crypto, 'getRandomValues', (numbers: Uint32Array) => numbers.fill(Math.imul(seed, 0x9e37_79b1) >>> 0));
  }

  /** Puts something in place of a global, until `uninstall`. */
  replace(target: object, name: string, value: unknown): void {
    const known = Object.getOwnPropertyDescriptor(target, name);
    Object.defineProperty(target, name, { value, configurable: true, writable: true });
    this.undo.push(() => {
      if (known) Object.defineProperty(target, name, known);
      else delete (target as Record<string, unknown>)[name];
    });
  }

  uninstall(): void {
    for (const undo of this.undo.splice(0).reverse()) undo();
  }

  /** When the next timer is due. */
  next(): number | undefined {
    let next: number | undefined;
    for (const { due } of this.timers.values()) if (next === undefined || due < next) next = due;
    return next;
  }

  /** Calls the first timer that is due; false if none is. */
  fire(): boolean {
    const next = this.next();
    if (next === undefined || next > this.now) return false;
    for (const [id, { due, call }] of this.timers) {
      if (due !== next) continue;
      this.timers.delete(id);
      call();
      return true;
    }
    return false;
  }

  /** Draws the next frame now. */
  flushFrames(): void {
    for (const [id, { call, isFrame }] of [...this.timers]) if (isFrame && this.timers.delete(id)) call();
  }

  /** The machine sleeps: only the wall clock moves. */
  sleep(ms: number): void {
    this.slept += ms;
  }

  readonly rest = rest;
}
