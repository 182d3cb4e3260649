// How a client gets its instance of the wasm, and another one after a trap.
import { source } from '#given';
import { CONNECT } from '../boundary.js';
import { InorderError } from '../errors.js';
import { load, loaded } from '../load.js';
import { explain } from '../message.js';
import type { ClientStatus, ConnectionState } from '../public/api.js';
import { makeSource } from '../store.js';
import { ask, cancel, wait } from './ask.js';
import { dialEarly, dropEarly, forgetTold, hangUp, listenToPage } from './connection.js';
import { discard, drain, enter, give, instantiate, prepare, registers, wasm } from './core.js';
import { emit, isClosed, notify, report, RESOLVED } from './delivery.js';
import { isFollowed, restore, salvage, stall } from './entities.js';
import { seeds } from './names.js';
import { models, numbers } from './options.js';

/** Whether this is `inorder/debug`. */
declare const DEBUG: boolean;

/** After a trap or a failed load: the first wait and the longest. */
const RETRY_BASE = 500;
const RETRY_CAP = 30_000;

/** So long without one, and they are no longer counted. */
const PEACE = 60_000;

/** The wasm is loading, or a retry waits. */
let isStarting = false;
let tries = 0;
let lastTrouble = 0;
/** `connect()` was called. */
let isWanted = false;

export let status: ClientStatus = Object.freeze({ connection: 'idle' });
export const statusSource = makeSource(() => status);

export function setStatus(connection: ConnectionState, wait = -1): void {
  status = Object.freeze(wait < 0 ? { connection } : { connection, retryAt: Math.round(Date.now() + wait) });
  if (connection === 'live') forgetTold();
  notify(statusSource);
  emit('connection', () => status);
}

export function connect(): void {
  isWanted = true;
  if (wasm) {
    give(CONNECT);
    drain();
  } else start();
}

/** Starts at the end of the task: who leaves within it, as pages do that a server renders, wants nothing (R31). */
export function start(): void {
  if (isStarting) return;
  isStarting = true;
  RESOLVED.then(startNow);
}

function startNow(): void {
  isStarting = !isClosed && (isWanted || isFollowed());
  if (!isStarting) return;
  if (loaded) return begin(loaded);
  dialEarly();
  ask(
    'load',
    () => load(source),
    begin,
    (cause) => {
      const error = cause instanceof InorderError ? cause : new InorderError('load', undefined, cause);
      hangUp(4000);
      report(error);
      if (error.retryable) return startLater();
      isStarting = false;
      setStatus('stopped');
    },
  );
}

/** Starts after a random wait that doubles with each try. */
function startLater(): void {
  const now = performance.now();
  if (now - lastTrouble > PEACE) tries = 0;
  lastTrouble = now;
  const bound = Math.min(RETRY_CAP, RETRY_BASE * 2 ** tries++);
  const ms = (bound * (1 + Math.random())) / 2;
  wait('start', ms, startNow);
  setStatus('offline', ms);
}

function begin(module: WebAssembly.Module): void {
  enter(() => {
    instantiate(module, seeds, numbers);
    for (const model of models) {
      registers().set(model.numbers_);
      wasm!.add_model();
    }
    listenToPage('addEventListener');
    restore();
    if (isWanted) give(CONNECT);
    drain();
    dropEarly();
  });
}

/** Ends what belongs to the instance. */
export function end(code: number): void {
  listenToPage('removeEventListener');
  hangUp(code);
  cancel(/./);
  discard();
}

/** The wasm trapped, or this code has a bug: everything resumes from a new instance, after a wait (R38). */
export function onTrap(cause: unknown): void {
  if (!wasm) throw cause;
  if (DEBUG) cause = explain(cause, wasm);
  salvage();
  end(4000);
  report('fault', undefined, cause);
  if (isClosed) return;
  prepare(loaded!);
  stall();
  // The same frame may trap again.
  startLater();
}
