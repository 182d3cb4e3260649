// A WebSocket without a network: what is fed arrives at once, what is sent goes to a server in the page.

const opened = new Map();

/** The socket that a client has opened to an address. */
export const socketTo = (url) => opened.get(url);

const servers = new Map();

/** Makes a server answer at an address. */
export const serve = (url, server) => servers.set(url, server);

export class FakeSocket {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSING = 2;
  static CLOSED = 3;

  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  binaryType = 'blob';
  readyState = 0;
  bufferedAmount = 0;
  protocol = '';
  listeners = { open: [], message: [], close: [], error: [] };

  constructor(url, protocols) {
    this.url = String(url);
    this.protocol = typeof protocols === 'string' ? protocols : (protocols?.[0] ?? '');
    // Clients may add to the address.
    const key = [...servers.keys()].find((known) => this.url.startsWith(known));
    this.server = servers.get(key);
    opened.set(key, this);
    setTimeout(() => {
      if (this.readyState !== 0) return;
      this.readyState = 1;
      this.dispatch('open', {});
      this.server.opened?.(this);
    });
  }

  addEventListener(type, listener) {
    this.listeners[type].push(listener);
  }

  removeEventListener(type, listener) {
    this.listeners[type] = this.listeners[type].filter((other) => other !== listener);
  }

  dispatch(type, event) {
    this[`on${type}`]?.(event);
    for (const listener of this.listeners[type]) listener(event);
  }

  /** A message arrives. */
  receive(text) {
    const event = { data: text };
    if (this.onmessage !== null) this.onmessage(event);
    const { message } = this.listeners;
    for (let i = 0; i < message.length; i++) message[i](event);
  }

  send(text) {
    this.server.sent(this, text);
  }

  close(code = 1000) {
    if (this.readyState >= 2) return;
    this.readyState = 3;
    setTimeout(() => this.dispatch('close', { code, reason: '', wasClean: true }));
  }
}
