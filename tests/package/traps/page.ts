// A page's window and document, as far as a client listens to them.
import { vi } from 'vitest';

class Events extends EventTarget {
  private readonly listening = new Set<unknown>();

  override addEventListener(...args: Parameters<EventTarget['addEventListener']>): void {
    this.listening.add(args[1]);
    super.addEventListener(...args);
  }

  override removeEventListener(...args: Parameters<EventTarget['removeEventListener']>): void {
    this.listening.delete(args[1]);
    super.removeEventListener(...args);
  }

  get listeners(): number {
    return this.listening.size;
  }
}

class Document extends Events {
  visibilityState = 'visible';
}

/** Stands in for a browser's page. */
export class Page {
  private readonly window = Object.assign(new Events(), { document: new Document() });

  constructor() {
    vi.stubGlobal('window', this.window);
    vi.stubGlobal('document', this.window.document);
  }

  /** Listeners that were added and not taken off. */
  get listeners(): number {
    return this.window.listeners + this.window.document.listeners;
  }

  /** Something happens, such as `online`, `hidden` or `pageshow`. */
  happen(what: string): void {
    const { document } = this.window;
    if (what === 'hidden' || what === 'visible') {
      document.visibilityState = what;
      document.dispatchEvent(new Event('visibilitychange'));
    } else if (what === 'resume') document.dispatchEvent(new Event(what));
    else this.window.dispatchEvent(Object.assign(new Event(what), { persisted: true }));
  }

  leave(): void {
    vi.unstubAllGlobals();
  }
}
