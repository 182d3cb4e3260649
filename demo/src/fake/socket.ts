import type { WebSocketLike } from 'inorder';

/** The other end of a socket that stays in the page. */
export interface Peer {
  /** The socket opened; the result hears what the client sends. */
  connect(socket: FakeSocket): Hearer | undefined;
}

/** What a peer does with a connection. */
export interface Hearer {
  hear(text: string): void;
  /** The client closed it. */
  left(): void;
}

type Handler = ((event: any) => void) | null;

const CONNECTING = 0;
const OPEN = 1;
const CLOSING = 2;
const CLOSED = 3;

/** How long a connection takes, in milliseconds. */
const DIAL_MS = 40;

/** A `WebSocket` whose server is an object. Handlers are called from tasks of their own, as a browser does. */
export class FakeSocket implements WebSocketLike {
  binaryType = 'blob';
  readyState = CONNECTING;
  onopen: Handler = null;
  onclose: Handler = null;
  onerror: Handler = null;
  #onmessage: Handler = null;
  #hearer: Hearer | undefined;

  constructor(
    peer: Peer,
    readonly url: string,
    readonly protocol = 'inorder.v1.json',
  ) {
    setTimeout(() => {
      if (this.readyState !== CONNECTING) return;
      this.#hearer = peer.connect(this);
      if (!this.#hearer) {
        this.break();
        return;
      }
      this.readyState = OPEN;
      this.onopen?.({ type: 'open' });
    }, DIAL_MS);
  }

  get onmessage(): Handler {
    return this.#onmessage;
  }

  set onmessage(handler: Handler) {
    this.#onmessage = handler;
  }

  send(text: string): void {
    if (this.readyState !== OPEN) return;
    setTimeout(() => this.#hearer?.hear(text), 0);
  }

  close(code = 1000): void {
    if (this.readyState >= CLOSING) return;
    this.readyState = CLOSING;
    this.#hearer?.left();
    this.#hearer = undefined;
    setTimeout(() => {
      this.readyState = CLOSED;
      this.onclose?.({ type: 'close', code, reason: '', wasClean: true });
    }, 0);
  }

  /** The peer sends a message. */
  receive(text: string): void {
    if (this.readyState === OPEN) this.#onmessage?.({ type: 'message', data: text });
  }

  /** The connection ends without a word. */
  break(code = 1006): void {
    if (this.readyState === CLOSED) return;
    this.readyState = CLOSED;
    this.#hearer = undefined;
    this.onerror?.({ type: 'error' });
    this.onclose?.({ type: 'close', code, reason: '', wasClean: false });
  }
}
