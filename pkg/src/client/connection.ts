// The one socket of a client, its address and token, and what the page tells.
import { options } from '#given';
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
} from '../boundary.js';
import type { ErrorCode, WebSocketLike } from '../public/api.js';
import { ask, cancel, wait } from './ask.js';
import { dropAllParts, receive } from './codec.js';
import { changeLine, enter, give, isBusy, later, line, put, time, wasm } from './core.js';
import { flushHidden, isHidden, report } from './delivery.js';
import { codes, wrongUrl } from './options.js';

/** The WebSocket subprotocol. */
const SUBPROTOCOL = 'inorder.v1.json';

/** Clocks that part by more mean that the page slept (R28). */
const WAKE_AFTER = 2_000;

/** The clock is read for at most one message in this time. Silence is judged in seconds. */
const HEARD_PACE = 100;

const { url, getToken } = options;

let socket: WebSocketLike | undefined;
/** Of a socket that the core has not asked for yet: tells it what happened. */
let adopt: ((generation: number) => void) | undefined;

/** What was told last of connections that can't be had; `false` once there was one. */
let told: ErrorCode | false | undefined;
/** Why the newest socket failed, where its class says so. */
let failure: unknown;

/** The token that came last. */
export let { token } = options;
/** Why there is none. */
export let tokenCause: unknown;

let heardAt = 0;
let isHeard = false;
/** Wall clock less monotonic clock. */
let apart = 0;

/** Tells why there is no connection: once, until there is one. */
function tell(code: ErrorCode, about?: string, cause?: unknown): void {
  if (told !== code) report((told = code), about, cause);
}

/** Tells that there never was a connection, unless why not was told. */
function tellSocket(): void {
  if (told === undefined) tell('socket', undefined, failure);
}

/** There is a connection. From now on one that ends is an outage: the status says so. */
export function forgetTold(): void {
  told = false;
}

// --- The socket ---

/** Opens a socket. Without a generation what happens to it waits until it is adopted. */
function open(address: string | URL, generation?: number): void {
  const WebSocket = options.WebSocket ?? globalThis.WebSocket;
  const before = line;
  const opened: WebSocketLike & { readonly protocol?: string } = new WebSocket(String(address), SUBPROTOCOL);
  // The application's class may have closed the client.
  if (line !== before) return silence(opened, 1000);
  const waiting: (() => void)[] = [];
  /** Only events of the socket in use count, and each leads through the core's wrapper. */
  const on =
    <E>(act: (event: E) => void) =>
    (event: E) => {
      if (socket !== opened) return;
      if (generation === undefined) waiting.push(() => socket === opened && act(event));
      else enter(act, event);
    };
  opened.binaryType = 'arraybuffer';
  opened.onopen = on(() => {
    const { protocol = SUBPROTOCOL } = opened;
    // Some browsers go on where the server chose none.
    if (protocol !== SUBPROTOCOL) tell('protocol', protocol);
    put(OPENED, generation!);
  });
  opened.onmessage = on(({ data }) => receiveMessage(data));
  opened.onclose = on(({ code }) => ended(generation!, code));
  // Some classes throw errors that nobody listens to.
  opened.onerror = (event) => (failure = event?.error);
  socket = opened;
  if (generation === undefined) {
    adopt = (given) => {
      adopt = undefined;
      generation = given;
      for (const act of waiting) act();
    };
  }
}

/** Begins the handshake while the wasm is still loading. */
export function dialEarly(): void {
  if (getToken || typeof url === 'function') return;
  try {
    open(url);
  } catch {
    // The core dials again, and it is reported then.
  }
}

/** Closes that socket if the core did not ask for one. */
export function dropEarly(): void {
  if (adopt) hangUp(4000);
}

export function dial(generation: number): void {
  // With a code that no socket has: why is known.
  const failed = () => ended(generation, 0);
  const openAt = (address: string | URL) => {
    try {
      open(address, generation);
    } catch (cause) {
      tell('socket', undefined, cause);
      failed();
    }
  };
  if (adopt) adopt(generation);
  else if (typeof url !== 'function') openAt(url);
  else {
    ask(
      'url',
      async (signal) => {
        const address = await url({ signal });
        const wrong = wrongUrl(address);
        if (wrong) throw new TypeError(`It must return ${wrong}.`);
        return address;
      },
      (address) => enter(openAt, address),
      (cause) => {
        report('url', undefined, cause);
        enter(failed);
      },
    );
  }
}

/** What belongs to one socket ends with it. */
function leave(): void {
  changeLine();
  isHeard = false;
  socket = adopt = undefined;
  dropAllParts();
  cancel(/^(url|replay|snapshot)/);
}

function ended(generation: number, code: number): void {
  const kind = Math.max(
    0,
    codes.findIndex((list) => list.includes(code)),
  );
  if (code && !kind) tellSocket();
  leave();
  put(CLOSED, generation, kind);
}

/** The core wants no more of the socket. */
export function drop(code: number): void {
  if (code > 1000) tellSocket();
  hangUp(code);
}

/** Closes the socket and hears no more of it. */
export function hangUp(code: number): void {
  const closing = socket;
  leave();
  if (closing) silence(closing, code);
}

function silence(socket: WebSocketLike, code: number): void {
  socket.onopen = socket.onmessage = socket.onclose = null;
  try {
    socket.close(code);
  } catch {
    // It was closed already.
  }
}

export function send(text: string): void {
  try {
    socket?.send(text);
  } catch {
    // The socket is closing; its close event follows.
  }
}

function stopHearing(): void {
  isHeard = false;
}

/** Reads a message, or an answer of user code. */
export function receiveMessage(data: unknown): void {
  if (!isHeard) {
    isHeard = true;
    heardAt = time();
    wait('heard', HEARD_PACE, stopHearing);
  }
  if (!isBusy) return receive(data);
  // A socket that answers inside `send`: its turn comes when the one in hand is done.
  const before = line;
  later(() => before === line && receive(data));
}

// --- The token ---

export function askToken(id: number, attempt: number): void {
  const answer = (given: string | undefined, cause?: unknown) => {
    token = given ?? token;
    tokenCause = cause;
    enter(() => put(TOKEN, id, given === undefined ? 0 : 1));
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
}

// --- Time and page ---

/** The core need not know of every message, but before it judges silence. */
function tellHeard(): void {
  if (heardAt) wasm?.handle(HEARD, heardAt);
  heardAt = 0;
}

/** Whether the clocks parted since the last look: the machine slept. */
function hasDrifted(): boolean {
  const before = apart;
  apart = Date.now() - performance.now();
  return Math.abs(apart - before) > WAKE_AFTER;
}

/** The core's deadline has come. */
export function onTimeout(): void {
  tellHeard();
  // The core sees by itself when the timer is late.
  put(hasDrifted() ? WAKE : TIMEOUT);
}

const PAGE_EVENTS: Readonly<Record<string, number>> = {
  online: ONLINE,
  offline: OFFLINE,
  pagehide: PAGEHIDE,
  pageshow: PAGESHOW,
  resume: WAKE,
  visibilitychange: VISIBLE,
};

function onPage(event: Event): void {
  const input = PAGE_EVENTS[event.type]!;
  tellHeard();
  // A socket that closes with its page did not fail.
  if (input === PAGEHIDE) told ??= false;
  if (input === VISIBLE) {
    // A frame that was asked for would not come before the page is visible again.
    if (isHidden()) return flushHidden();
    if (hasDrifted()) give(WAKE);
  }
  // The other page events have no such property.
  if ((event as PageTransitionEvent).persisted !== false) put(input);
}

const onPageEvent = (event: Event) => enter(onPage, event);

/** Listens to the page, or no more. */
export function listenToPage(method: 'addEventListener' | 'removeEventListener'): void {
  hasDrifted();
  if (typeof document === 'undefined') return;
  for (const type of Object.keys(PAGE_EVENTS)) (/^[rv]/.test(type) ? document : window)[method](type, onPageEvent);
}
