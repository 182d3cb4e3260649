// The window and the document that a client listens to: the real ones in a browser, stand-ins in Node.
import type { Clock } from './clock.js';

/** The page around a client, its events in the hands of a case. */
export class Page {
  private readonly window: EventTarget;
  private readonly document: EventTarget;
  private readonly listening = new Set<string>();
  private visibility = 'visible';
  private readonly ids = new WeakMap<object, number>();
  private count = 0;

  constructor(clock: Clock) {
    const real = globalThis as { window?: EventTarget; document?: EventTarget };
    const isReal = real.document !== undefined;
    this.window = real.window ?? new EventTarget();
    this.document = real.document ?? new EventTarget();
    clock.replace(this.document, 'visibilityState', undefined);
    Object.defineProperty(this.document, 'visibilityState', { configurable: true, get: () => this.visibility });
    if (!isReal) {
      clock.replace(this.window, 'document', this.document);
      clock.replace(globalThis, 'window', this.window);
      clock.replace(globalThis, 'document', this.document);
    }
    this.watch(clock, this.window);
    this.watch(clock, this.document);
  }

  /** How many listeners were added and not taken off. */
  get listeners(): number {
    return this.listening.size;
  }

  private id(object: object): number {
    let id = this.ids.get(object);
    if (id === undefined) this.ids.set(object, (id = ++this.count));
    return id;
  }

  private watch(clock: Clock, target: EventTarget): void {
    const add = target.addEventListener.bind(target);
    const remove = target.removeEventListener.bind(target);
    const key = (type: string, listener: object) => `${this.id(target)} ${type} ${this.id(listener)}`;
    clock.replace(target, 'addEventListener', (type: string, listener: any, options?: any) => {
      this.listening.add(key(type, listener));
      add(type, listener, options);
    });
    clock.replace(target, 'removeEventListener', (type: string, listener: any, options?: any) => {
      this.listening.delete(key(type, listener));
      remove(type, listener, options);
    });
  }

  /** `hidden`, `visible`, `online`, `offline` or `resume` happens. */
  happen(what: string): void {
    if (what === 'online' || what === 'offline') this.window.dispatchEvent(new Event(what));
    else if (what === 'resume') this.document.dispatchEvent(new Event(what));
    else {
      this.visibility = what;
      this.document.dispatchEvent(new Event('visibilitychange'));
    }
  }
}
