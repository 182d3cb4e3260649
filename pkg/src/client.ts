// One client: what the application calls, and what the core says. The only place where all parts meet.
import { cancel, makeAsk } from './ask.js';
import {
  CLOSE,
  CONNECT,
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
  RELEASE,
  STATS,
} from './boundary.js';
import { makeCodec } from './codec.js';
import { type Writer, write } from './commands.js';
import { makeConnection } from './connection.js';
import { makeCore } from './core.js';
import { makeEntities } from './entities.js';
import { type Host, Readable, View } from './entity.js';
import { closedError, FAULTS, InorderError } from './errors.js';
import { load, loaded } from './load.js';
import { makeNames } from './names.js';
import { readOptions } from './options.js';
import type { Client, ClientOptions, ClientStatus, ConnectionState, Stats, WasmSource } from './public/api.js';
import { isObject } from './reduce.js';
import { makeDelivery, makeSource, makeStop, none } from './store.js';

const CONNECTIONS: readonly ConnectionState[] = ['idle', 'connecting', 'live', 'offline', 'closed', 'stopped'];

/** After a trap or a failed load: the first wait and the longest. */
const RETRY_BASE = 500;
const RETRY_CAP = 30_000;

/** Makes a client; `wasm` is only asked for when it is needed. */
export function makeClient(options: ClientOptions<any>, wasm: WasmSource): Client<any> {
  const ready = readOptions(options);
  const { logger = console, signal } = options;
  const [seedHigh, seedLow] = globalThis.crypto.getRandomValues(new Uint32Array(2)) as unknown as [number, number];
  const delivery = makeDelivery(options.flush, logger);
  const core = makeCore({
    output_: (kind, registers) => OUTPUTS[kind]!(registers[0]!, registers[1]!, registers),
    timeout_: () => connection.timeout_(),
    trap_: (cause) => trap(cause),
  });
  const names = makeNames(core, ready.models_, seedHigh, seedLow);
  const entities = makeEntities(ready, core, names, delivery);
  const { replayFrom, snapshotFrom } = options;
  const codec = makeCodec(core, entities, names, { replay_: !!replayFrom, snapshot_: !!snapshotFrom });
  const ask = makeAsk(core, ready.user_);
  const connection = makeConnection(options, ready.codes_, core, codec, delivery, ask);
  /** `connect()` was called. */
  let isWanted = false;
  /** The wasm is loading, or a retry waits. */
  let isStarting = false;
  let tries = 0;
  let counters: Stats | undefined;
  let status: ClientStatus = Object.freeze({ connection: 'idle' });
  const statusSource = makeSource(() => status);

  const setStatus = (connection: ConnectionState, wait = -1) => {
    status = Object.freeze(wait < 0 ? { connection } : { connection, retryAt: Math.round(Date.now() + wait) });
    delivery.notify_(statusSource);
    delivery.emit_('connection', status);
  };

  // --- What the core says ---

  /** By the numbers of the boundary; `a` and `b` are the first registers. */
  const OUTPUTS: Readonly<Record<number, (a: number, b: number, r: Float64Array) => void>> = {
    [OUT_CHANGE]: (_a, _b, r) => entities.change_(r),
    [OUT_DISCARD]: (slot) => entities.fetch_(slot),
    [OUT_SYNC]: entities.setSync_,
    [OUT_GAP]: (handle, from, r) => delivery.emit_('gap', { entity: entities.names_[handle]!, from, to: r[2]! }),
    [OUT_FINAL](handle) {
      if (!delivery.events_.get('final')?.subscriptions_.length) return;
      const { status, seq, state } = entities.cellOf_(handle).show_();
      delivery.emit_('final', { entity: entities.names_[handle]!, status, seq, state });
    },
    [OUT_FAULT](handle, number) {
      const [code, message, isShown] = FAULTS[number]!;
      const { said_: said } = codec;
      const cause = said
        ? new Error(`${said.code}: ${said.message}`)
        : code === 'token'
          ? connection.tokenCause_
          : undefined;
      entities.fail_(handle, code, message, !/^(stopped|forbidden|not_found)$/.test(code), isShown, cause);
    },
    [OUT_FORGOTTEN]: entities.forget_,
    [OUT_CONNECTION]: (state, wait) => setStatus(CONNECTIONS[state]!, wait),
    [OUT_DIAL]: connection.dial_,
    [OUT_CLOSE]: (_generation, code) => connection.hangUp_(code),
    [OUT_GET_TOKEN]: connection.getToken_,
    [OUT_CANCEL_TOKEN]: connection.cancelToken_,
    [OUT_SEND](kind, request, r) {
      write(kind, request, new Float64Array(core.wasm_!.memory.buffer, r[2], r[3]), entities, names, writer);
    },
  };

  /** Asks user code instead of the server; its answer is read like a frame. */
  const askOwn = (
    what: 'replayFrom' | 'snapshotFrom',
    entity: string,
    request: number,
    call: (signal: AbortSignal) => PromiseLike<object>,
    frame: object,
  ) => {
    const name = `${what} ${entity}`;
    // A retry of a call that is out is none.
    if (asked.get(name) === request && core.ends_.has(name)) return;
    asked.set(name, request);
    const receive = (frame: object) => core.enter_(connection.receive_, JSON.stringify(frame));
    ask(
      name,
      async (signal) => {
        const answer = await call(signal);
        if (!isObject(answer)) throw new TypeError('It must return an object.');
        return answer;
      },
      (answer) => receive({ done: true, ...frame, ...answer, request, entity }),
      (cause) => {
        delivery.report_(
          new InorderError('source', `\`${what}\` failed for ${entity}, see \`cause\`: mend it.`, true, entity, cause),
        );
        receive({ type: 'error', code: 'source', request, entity });
      },
    );
  };
  const asked = new Map<string, number>();

  const writer: Writer = {
    send_: connection.send_,
    token_: () => connection.token_,
    replayFrom_:
      replayFrom &&
      ((entity, request, range) => {
        const { epoch } = range;
        const call = (signal: AbortSignal) =>
          replayFrom(entity, { ...(range as { epoch: string; from: number }), signal });
        askOwn('replayFrom', entity, request, call, { type: 'replay', epoch });
      }),
    snapshotFrom_:
      snapshotFrom &&
      ((entity, request) => {
        askOwn('snapshotFrom', entity, request, (signal) => snapshotFrom(entity, { signal }), { type: 'snapshot' });
      }),
  };

  // --- Starting, and starting anew ---

  const start = () => {
    if (isStarting) return;
    isStarting = true;
    if (loaded) return begin(loaded);
    connection.dialEarly_();
    ask(
      'load',
      () => load(() => wasm),
      begin,
      (cause) => {
        connection.hangUp_(4000);
        const error =
          cause instanceof InorderError
            ? cause
            : new InorderError('load', 'Loading the wasm took too long: it is tried again.', true);
        delivery.report_(error);
        if (error.retryable) return startLater();
        isStarting = false;
        setStatus('stopped');
      },
    );
  };

  /** After a random wait that doubles with each try. */
  const startLater = () => {
    const bound = Math.min(RETRY_CAP, RETRY_BASE * 2 ** tries++);
    const wait = bound / 2 + (Math.random() * bound) / 2;
    const timer = setTimeout(() => {
      isStarting = false;
      start();
    }, wait);
    core.ends_.set('start', () => clearTimeout(timer));
    setStatus('offline', wait);
  };

  const begin = (module: WebAssembly.Module) =>
    core.enter_(() => {
      core.begin_(module, seedHigh, seedLow, ready.numbers_);
      for (const model of ready.models_) {
        core.registers_().set(model.numbers_);
        core.wasm_!.add_model();
      }
      connection.attach_();
      entities.restore_();
      if (isWanted) core.give_(CONNECT);
      core.drain_();
      // One that the core did not ask for.
      if (!isDialed()) connection.hangUp_(4000);
    });

  /** Ends what belongs to an instance. */
  const leave = (code: number) => {
    connection.detach_();
    connection.hangUp_(code);
    for (const what of [...core.ends_.keys()]) cancel(core, what);
    core.end_();
  };

  /** Throws the instance away and resumes everything from a new one, after a wait: the same frame may trap again. */
  const trap = (cause: unknown) => {
    if (!core.wasm_) throw cause;
    entities.salvage_();
    leave(4000);
    delivery.report_(
      new InorderError(
        'fault',
        'The wasm trapped and starts anew: please report this with its `cause`.',
        true,
        undefined,
        cause,
      ),
    );
    if (delivery.isClosed_) return;
    entities.stall_();
    startLater();
  };

  // --- The application's calls ---

  const refuse = (entity?: string): InorderError => {
    const error = closedError(entity);
    delivery.report_(error);
    return error;
  };

  const host: Host = {
    endings_: new Set(),
    find_: entities.find_,
    drain_: core.drain_,

    follow_(view, listener) {
      if (!delivery.isListener_(listener)) return makeStop(none);
      const cell = host.join_(view);
      if (!cell) {
        const source = makeSource(view.getSnapshot);
        return delivery.follow_(source, listener);
      }
      const leave = () => host.leave_(cell);
      // Who has no `next` wants the entity followed and nothing more: a map of all members is not made for that.
      const isHeard = typeof listener === 'function' || typeof listener.next === 'function';
      const stop = isHeard ? delivery.follow_(cell, listener, leave) : makeStop(leave);
      core.drain_();
      return stop;
    },

    join_(view) {
      const { name, params_, paramsText_ } = view;
      if (delivery.isClosed_) {
        view.failure_ = refuse(name);
        return undefined;
      }
      const fail = (error: InorderError | undefined) => {
        // Once is enough, as it will not change.
        if (!view.failure_ || view.failure_ === error) delivery.report_(error!);
        view.failure_ ??= error;
        return undefined;
      };
      if (view.isBroken_) return fail(view.failure_);
      const kind = entities.kindOf_(name);
      if (typeof kind === 'object') return fail(kind);
      let cell = entities.find_(name);
      if (cell && cell.paramsText_ !== paramsText_) {
        if (cell.uses_ > 0) {
          const message = `${name} is followed with other \`params\`: use the same, or end that subscription first.`;
          delivery.report_((view.failure_ = new InorderError('params_conflict', message, false, name)));
          return undefined;
        }
        // The position belongs to the old params.
        const { handle_ } = cell;
        const { isBusy_ } = core;
        if (handle_ < 0) entities.byName_.delete(name);
        else core.enter_(() => core.give_(RELEASE, handle_));
        core.isBusy_ = false;
        core.drain_();
        core.isBusy_ = isBusy_;
        cell = entities.find_(name);
      }
      view.failure_ = undefined;
      const joined = (cell ??= entities.newCell_(name, kind));
      cell.params_ = params_;
      cell.paramsText_ = paramsText_;
      cell.view_ ??= view;
      if (cell.uses_++ === 0) {
        if (core.wasm_) core.enter_(entities.enter_, joined);
        else start();
      }
      return cell;
    },

    leave_(cell) {
      if (--cell.uses_ === 0 && !delivery.isClosed_) core.enter_(entities.leave_, cell);
    },
  };

  const view = (name: string, params: unknown, isTopic: boolean): any => {
    const made = new View(host, name, params, isTopic);
    const known = entities.find_(name)?.view_;
    return known && known.isTopic_ === isTopic && known.paramsText_ === made.paramsText_ && !made.isBroken_
      ? known
      : made;
  };

  const count = () => {
    core.wasm_!.stats();
    const registers = core.registers_();
    counters = Object.fromEntries(STATS.split(' ').map((name, at) => [name, registers[at]])) as unknown as Stats;
  };

  const close = () => {
    if (delivery.isClosed_) return;
    delivery.isClosed_ = true;
    signal?.removeEventListener('abort', close);
    if (core.wasm_) {
      // Closed: nothing is called any more, so draining inside a callback is safe.
      core.isBusy_ = false;
      core.put_(CLOSE);
      if (core.wasm_) core.enter_(count);
    }
    leave(1000);
    entities.stall_();
    setStatus('closed');
    delivery.close_();
    for (const end of [...host.endings_]) end();
  };

  const client: Client<any> = {
    status: new Readable<ClientStatus>(
      host,
      (listener) => (delivery.isListener_(listener) ? delivery.follow_(statusSource, listener) : makeStop(none)),
      () => status,
      status,
    ),

    entity: (name, options) => view(String(name), options?.params, false),

    topic: (name, options) => view(`topic/${name}`, options?.params, true),

    on(type, listener) {
      if (!delivery.isListener_(listener)) return makeStop(none);
      const source = delivery.events_.get(type) ?? makeSource();
      delivery.events_.set(type, source);
      return delivery.follow_(source, listener);
    },

    stats() {
      if (core.wasm_) core.enter_(count);
      return counters;
    },

    held(name) {
      const handle = entities.handleOf_(name);
      return handle === undefined ? 0 : entities.read_(handle)[1]!;
    },

    connect() {
      if (delivery.isClosed_) return void refuse();
      isWanted = true;
      if (core.wasm_) core.enter_(() => core.put_(CONNECT));
      else start();
    },

    reconnect() {
      client.connect();
    },

    preload: () => (delivery.isClosed_ ? Promise.reject(closedError()) : load(() => wasm).then(none)),

    close,
    [Symbol.dispose]: close,
  };
  if (signal?.aborted) close();
  else signal?.addEventListener('abort', close);
  return client;
}
