// The one socket of a client, its address and token, and what the page tells.
import { type Ask, cancel } from './ask.js';
import {
  CLOSED,
  HEARD,
  OFFLINE,
  ONLINE,
  OPENED,
  PAGEHIDE,
  PAGESHOW,
  TIMEOUT,
  TOKEN,
  VISIBLE,
  WAKE,
} from './boundary.js';
import type { Codec } from './codec.js';
import type { Core } from './core.js';
import { InorderError } from './errors.js';
import { wrongUrl } from './options.js';
import type { ClientOptions, WebSocketLike } from './public/api.js';
import { type Delivery, isHidden, none } from './store.js';

/** The WebSocket subprotocol. */
const SUBPROTOCOL = 'inorder.v1.json';

/** Clocks that part by more mean that the page slept (R28). */
const WAKE_AFTER = 2_000;

/** The clock is read for at most one message in this time. Silence is judged in seconds. */
const HEARD_PACE = 100;

/** The class of close code 1000. */
const NORMAL = 4;

export interface Connection {
  /** The token that came last. */
  token_: string | undefined;
  /** Why there is none. */
  tokenCause_: unknown;
  /** Begins the handshake while the wasm is still loading. */
  dialEarly_(): void;
  dial_(generation: number): void;
  /** Closes the socket and hears no more of it. */
  hangUp_(code: number): void;
  getToken_(id: number, attempt: number): void;
  cancelToken_(): void;
  send_(text: string): void;
  /** Reads a message, or an answer of user code. */
  receive_(data: unknown): void;
  /** The core's deadline has come. */
  timeout_(): void;
  /** Listens to the page. */
  attach_(): void;
  detach_(): void;
}

export function makeConnection(
  options: ClientOptions<any>,
  codes: readonly (readonly number[])[],
  core: Core,
  codec: Codec,
  delivery: Delivery,
  ask: Ask,
): Connection {
  const { url, getToken } = options;
  /** Of a socket that the core does not know yet: what happened to it. */
  let early: ((generation: number) => void) | undefined;
  let heardAt = 0;
  /** Wall clock less monotonic clock. */
  let apart = 0;

  const report = (code: 'url' | 'socket' | 'protocol', message: string, cause?: unknown) =>
    delivery.report_(new InorderError(code, message, true, undefined, cause));

  /** What belongs to one socket ends with it. */
  const leave = () => {
    core.socket_ = early = undefined;
    codec.dropParts_();
    for (const what of [...core.ends_.keys()]) if (/^(url|r|s)/.test(what)) cancel(core, what);
  };

  const ended = (generation: number, code: number) => {
    leave();
    const found = codes.findIndex((list) => list.includes(code));
    core.put_(CLOSED, generation, found >= 0 ? found : code === 1000 ? NORMAL : 0);
  };

  const failed = (generation: number) => core.enter_(() => ended(generation, 1006));

  /** Opens a socket. Without a generation what happens is kept until `early` gives one. */
  const open = (address: string | URL, generation?: number) => {
    const WebSocket = options.WebSocket ?? globalThis.WebSocket;
    const socket: WebSocketLike & { readonly protocol?: string } = new WebSocket(String(address), SUBPROTOCOL);
    const waiting: (() => void)[] = [];
    /** Only events of the socket in use count, and each leads through the core's wrapper. */
    const on =
      <E>(act: (event: E) => void) =>
      (event: E) => {
        if (core.socket_ !== socket) return;
        if (generation === undefined) waiting.push(() => act(event));
        else core.enter_(act, event);
      };
    socket.binaryType = 'arraybuffer';
    socket.onopen = on(() => {
      // Some browsers go on where the server chose none.
      if ((socket.protocol ?? SUBPROTOCOL) !== SUBPROTOCOL) {
        report('protocol', `The server does not speak ${SUBPROTOCOL} (it chose '${socket.protocol}'): check \`url\`.`);
      }
      core.put_(OPENED, generation!);
    });
    socket.onmessage = on(({ data }) => it.receive_(data));
    socket.onclose = on(({ code }) => ended(generation!, code));
    // Some classes throw errors that nobody listens to.
    socket.onerror = none;
    core.socket_ = socket;
    early = (given) => {
      generation = given;
      early = undefined;
      for (const act of waiting) if (core.socket_ === socket) act();
    };
    if (generation !== undefined) early = undefined;
  };

  const tellHeard = () => {
    // The core need not know of every message, but before it judges silence.
    if (heardAt > 0) core.wasm_!.handle(HEARD, heardAt);
    heardAt = 0;
  };

  /** Whether the clocks parted since the last look: the machine slept. */
  const hasDrifted = () => {
    const before = apart;
    apart = Date.now() - performance.now();
    return Math.abs(apart - before) > WAKE_AFTER;
  };

  const EVENTS: Readonly<Record<string, (event: { readonly persisted?: boolean }) => void>> = {
    online: () => core.put_(ONLINE),
    offline: () => core.put_(OFFLINE),
    pagehide: (event) => event.persisted && core.put_(PAGEHIDE),
    pageshow: (event) => event.persisted && core.put_(PAGESHOW),
    resume: () => core.put_(WAKE),
    visibilitychange() {
      // A frame that was asked for would not come before the page is visible again.
      if (isHidden()) return delivery.hide_();
      if (hasDrifted()) core.give_(WAKE);
      core.put_(VISIBLE);
    },
  };

  const onPage = (event: Event) =>
    core.enter_(() => {
      if (!core.wasm_) return;
      tellHeard();
      EVENTS[event.type]!(event as PageTransitionEvent);
    });

  const listen = (method: 'addEventListener' | 'removeEventListener') => {
    if (typeof document === 'undefined') return;
    for (const type of Object.keys(EVENTS)) (/^(r|v)/.test(type) ? document : window)[method](type, onPage);
  };

  const it: Connection = {
    token_: options.token,
    tokenCause_: undefined,

    dialEarly_() {
      if (getToken || typeof url === 'function') return;
      try {
        open(url);
      } catch {
        // The core dials again, and it is reported then.
      }
    },

    dial_(generation) {
      if (early) return early(generation);
      const dial = (address: string | URL) => {
        try {
          open(address, generation);
        } catch (cause) {
          report(
            'socket',
            'No socket, see `cause`: https pages need wss:, Node before 22 the option `WebSocket`.',
            cause,
          );
          ended(generation, 1006);
        }
      };
      if (typeof url !== 'function') return dial(url);
      ask(
        'url',
        async (signal) => {
          const address = await url({ signal });
          const wrong = wrongUrl(address);
          if (wrong) throw new TypeError(`It must return ${wrong}.`);
          return address;
        },
        (address) => core.enter_(dial, address),
        (cause) => {
          report('url', '`url` failed, see `cause`: it is asked again.', cause);
          failed(generation);
        },
      );
    },

    hangUp_(code) {
      const { socket_: socket } = core;
      leave();
      if (!socket) return;
      socket.onopen = socket.onmessage = socket.onclose = null;
      try {
        socket.close(code);
      } catch {
        // It was closed already.
      }
    },

    getToken_(id, attempt) {
      const answer = (token: string | undefined, cause?: unknown) => {
        it.token_ = token ?? it.token_;
        it.tokenCause_ = cause;
        core.enter_(() => core.put_(TOKEN, id, token === undefined ? 0 : 1));
      };
      ask(
        'token',
        async (signal) => {
          const token = await getToken!({ signal, attempt });
          if (typeof token !== 'string') throw new TypeError('It must return a string.');
          return token;
        },
        answer,
        (cause) => answer(undefined, cause),
      );
    },

    cancelToken_() {
      cancel(core, 'token');
    },

    send_(text) {
      try {
        core.socket_?.send(text);
      } catch {
        // The socket is closing; its close event follows.
      }
    },

    receive_(data) {
      const { socket_: socket } = core;
      if (!core.ends_.has('heard')) {
        heardAt = core.time_();
        const timer = setTimeout(() => core.ends_.delete('heard'), HEARD_PACE);
        core.ends_.set('heard', () => clearTimeout(timer));
      }
      // A socket that answers inside `send`: its turn comes when the one in hand is done.
      if (!core.isBusy_) codec.receive_(data);
      else core.later_(() => socket === core.socket_ && codec.receive_(data));
    },

    timeout_() {
      tellHeard();
      // The core sees by itself when the timer is late.
      core.put_(hasDrifted() ? WAKE : TIMEOUT);
    },

    attach_() {
      hasDrifted();
      listen('addEventListener');
    },

    detach_() {
      listen('removeEventListener');
    },
  };
  return it;
}
