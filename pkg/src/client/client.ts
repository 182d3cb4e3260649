// What the application calls, and what the core says. Each client has a copy of this folder of its own: the build wraps
// it into a function, so its variables are the client's, and what the application gave is imported from `#given`.
import { options, source } from '#given';
import {
  CLOSE,
  OUT_CANCEL_TOKEN,
  OUT_CHANGE,
  OUT_CLOSE,
  OUT_CONNECTION,
  OUT_DIAL,
  OUT_DISCARD,
  OUT_FAULT,
  OUT_FINAL,
  OUT_FORGOTTEN,
  OUT_GAP,
  OUT_GET_TOKEN,
  OUT_SEND,
  OUT_SYNC,
  STATS,
} from '../boundary.js';
import { codeOf, InorderError } from '../errors.js';
import { load } from '../load.js';
import type { Client, ClientStatus, ConnectionState, Stats } from '../public/api.js';
import { cancel } from './ask.js';
import { said } from './codec.js';
import { collect, sendCommands, sourceFailure } from './commands.js';
import { askToken, dial, drop, onTimeout, tokenCause } from './connection.js';
import { discard, drainAtOnce, enter, give, listenToCore, registers, wasm } from './core.js';
import { emit, eventsOf, follow, isClosed, report, stopCalling } from './delivery.js';
import {
  change,
  entityNames,
  fail,
  fetch,
  forget,
  forgetEnding,
  handleOf,
  keepAll,
  read,
  setSync,
  stall,
  tellFinal,
} from './entities.js';
import { endings } from './iterate.js';
import { connect, end, onTrap, setStatus, status, statusSource } from './start.js';
import { Readable, viewOf } from './views.js';

const CONNECTIONS: readonly ConnectionState[] = ['idle', 'connecting', 'live', 'offline', 'closed', 'stopped'];

/** What the core says, by the numbers of the boundary; `a` and `b` are the first registers: about what, and which. */
const OUTPUTS: Readonly<Record<number, (a: number, b: number, registers: Float64Array) => void>> = {
  [OUT_CHANGE]: (_a, _b, registers) => change(registers),
  [OUT_DISCARD]: (_a, _b, { 5: slot }) => fetch(slot!),
  [OUT_SYNC]: setSync,
  [OUT_GAP]: (handle, _, { 12: from, 13: to }) =>
    emit('gap', () => ({ entity: entityNames[handle]!, from: from!, to: to! })),
  [OUT_FINAL]: tellFinal,
  [OUT_FAULT](handle, fault) {
    const code = codeOf(fault);
    if (sourceFailure && code === 'server') fail(handle, 'source', sourceFailure.cause);
    else
      fail(handle, code, said ? new Error(`${said.code}: ${said.message}`) : code === 'token' ? tokenCause : undefined);
  },
  [OUT_FORGOTTEN]: forget,
  [OUT_CONNECTION]: (_, state, { 12: wait }) => setStatus(CONNECTIONS[state]!, wait),
  [OUT_DIAL]: dial,
  [OUT_CLOSE]: (_, code) => drop(code),
  [OUT_GET_TOKEN]: askToken,
  [OUT_CANCEL_TOKEN]: () => cancel(/^token/),
  [OUT_SEND]: collect,
};

listenToCore({
  output_: (kind, registers) => OUTPUTS[kind]!(registers[0]!, registers[1]!, registers),
  idle_() {
    forgetEnding();
    sendCommands();
  },
  timeout_: onTimeout,
  trap_: onTrap,
});

let counters: Stats | undefined;

function count(): void {
  wasm!.stats();
  const numbers = registers();
  counters = Object.fromEntries(STATS.split(' ').map((name, at) => [name, numbers[at]])) as unknown as Stats;
}

const { signal } = options;

function close(): void {
  if (isClosed) return;
  stopCalling();
  signal?.removeEventListener('abort', close);
  if (wasm) {
    enter(() => give(CLOSE));
    // Nothing is called any more, so this is safe within a callback.
    drainAtOnce();
    if (wasm) enter(count);
  }
  end(1000);
  discard();
  stall();
  setStatus('closed');
  for (const close of [...endings]) close();
}

/** The client that this copy is. */
export const client: Client<any> = {
  status: new Readable<ClientStatus>(
    (listener) => follow(statusSource, listener),
    () => status,
    status,
  ),

  entity: (name, options) => viewOf(String(name), options?.params, false),

  topic: (name, options) => viewOf(`topic/${name}`, options?.params, true),

  on(type, listener) {
    if (type === 'change') keepAll();
    if (!/^(change|connection|error|final|gap|sync)$/.test(type)) report('listener', `of '${type}' is never called`);
    return follow(eventsOf(type), listener);
  },

  stats() {
    if (wasm) enter(count);
    return counters;
  },

  held(name) {
    const handle = handleOf(name);
    return handle === undefined ? 0 : read(handle)[1]!;
  },

  connect() {
    if (isClosed) report('closed');
    else enter(connect);
  },

  reconnect: () => client.connect(),

  preload: () => (isClosed ? Promise.reject(new InorderError('closed')) : load(source).then(() => {})),

  close,
  [Symbol.dispose]: close,
};

if (signal?.aborted) close();
else signal?.addEventListener('abort', close);
