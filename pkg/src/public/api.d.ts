/// <reference lib="esnext.disposable" />

/**
 * How far the shown state can be trusted.
 *
 * `joining`: no position yet. `live`: confirmed on this connection, nothing missing. `recovering`: connected, something
 * missing or unconfirmed. `stale`: disconnected. `final`: locked, outlives disconnects. `failed`: given up for now, the
 * snapshot's `error` says why.
 */
export type Sync = 'joining' | 'live' | 'recovering' | 'stale' | 'final' | 'failed';

/** What is known of an entity. Frozen, and the same object until something changes. */
export interface EntitySnapshot<S = unknown> {
  /** `undefined` before the first position; `null` for an entity that has no events yet. */
  readonly state: S | null | undefined;
  readonly sync: Sync;
  /** The number of the last change in `state`; `undefined` before the first position. */
  readonly seq: number | undefined;
  /** The incarnation of the numbering; `''` where the server gives none. */
  readonly epoch: string | undefined;
  readonly status: string | undefined;
  /** When the last change happened, as its producer wrote it. For display, never compared. */
  readonly at?: unknown;
  /** What is wrong with this entity, until it is right again. */
  readonly error?: InorderError;
}

/** One step of an entity, as `changes()` yields it. */
export interface Change<S = unknown, E = unknown> {
  /** `snapshot`: the state was replaced as a whole. */
  readonly kind: 'event' | 'snapshot';
  /** `undefined` only for numberless events of a model with `continuity: 'none'`. */
  readonly seq: number | undefined;
  readonly epoch: string | undefined;
  /** The event's `data`. */
  readonly event?: E;
  /** The producer's id of the event. */
  readonly id?: string;
  /** The state after the change. */
  readonly state: S | null;
  readonly status?: string;
  /** The position went back or changed its epoch: what was shown before is void. */
  readonly reset?: true;
  /** The numbers that were passed over, first and last. */
  readonly skipped?: readonly [from: number, to: number];
  readonly at?: unknown;
}

/** Ends what a `subscribe` or `on` began: call it, call `.unsubscribe()`, or let `using` do it. */
export interface Stop extends Disposable {
  (): void;
  readonly unsubscribe: () => void;
}

/** A function, or an object with `next`. What it returns is ignored. */
export type Listener<T> = ((value: T) => void) | { readonly next?: ((value: T) => void) | undefined };

/**
 * A readable thing: an entity, a topic, the client's status.
 *
 * Its methods are bound, so they can be handed over as they are (`useSyncExternalStore(s.subscribe, s.getSnapshot)`).
 * It is also an observable for libraries that look for `Symbol.observable`.
 */
export interface Store<T> extends AsyncIterable<T> {
  /** Calls `listener` at once with the current value and then after changes, as `flush` says. */
  readonly subscribe: (listener: Listener<T>) => Stop;
  /** The current value; the same object until something changes. */
  readonly getSnapshot: () => T;
  /** The value that a server renders. */
  readonly getServerSnapshot: () => T;
  /** Yields the current value, then the newest one after each change; ends when the client is closed. */
  [Symbol.asyncIterator](): AsyncIterableIterator<T>;
}

/** Something that can be waited for until `signal` says otherwise. */
export interface Abortable {
  readonly signal?: AbortSignal | undefined;
}

/** One thing with a history: a job, a deployment, an order book. */
export interface Entity<S = unknown, E = unknown> extends Store<EntitySnapshot<S>> {
  readonly name: string;
  /**
   * Resolves once, with the final snapshot. Subscribes while it waits.
   *
   * Rejects with the signal's reason, with `closed` when the client is closed, and with the entity's error when it
   * failed for good (`forbidden`, `not_found`).
   */
  finished(options?: Abortable): Promise<EntitySnapshot<S>>;
  /**
   * Yields the current state as a snapshot, then every change in order; ends after the final one or `close()`.
   *
   * At most 1,000 changes wait for the reader. One that is slower keeps those and then gets one snapshot marked
   * `skipped`.
   */
  changes(options?: Abortable): AsyncIterableIterator<Change<S, E>>;
}

/** A set of entities that the server keeps, `topic/NAME` on the wire. */
export interface Topic<S = unknown> extends Store<ReadonlyMap<string, EntitySnapshot<S>>> {
  readonly name: string;
  /** How far the membership can be trusted. */
  readonly sync: Sync;
  /** What is wrong with the topic itself. */
  readonly error: InorderError | undefined;
}

/** `offline`: the next dial is armed. `stopped`: the server said stop, or a policy forbids wasm; `connect()` starts again. */
export type ConnectionState = 'idle' | 'connecting' | 'live' | 'offline' | 'closed' | 'stopped';

/** The state of the connection. Frozen, and the same object until it changes. */
export interface ClientStatus {
  readonly connection: ConnectionState;
  /** When the next dial is due, in milliseconds since 1970 like `Date.now()`. Only while `offline`. */
  readonly retryAt?: number;
}

/** Why something went wrong, for machines. `docs/errors.md` lists each with what to do. */
export type ErrorCode =
  | 'invalid_option'
  | 'unknown_model'
  | 'params'
  | 'params_conflict'
  | 'closed'
  | 'bad_frame'
  | 'after_final'
  | 'diverged'
  | 'epoch_flapping'
  | 'auth_failed'
  | 'forbidden'
  | 'not_found'
  | 'failed'
  | 'server'
  | 'stopped'
  | 'listener'
  | 'reduce'
  | 'token'
  | 'url'
  | 'socket'
  | 'protocol'
  | 'source'
  | 'load'
  | 'fault';

/** What is thrown for wrong options and reported for everything else. Its message says what to do. */
export declare class InorderError extends Error {
  private constructor();
  readonly name: 'InorderError';
  readonly code: ErrorCode;
  /** Whether the client goes on trying by itself. */
  readonly retryable: boolean;
  readonly entity?: string;
  override readonly cause?: unknown;
}

/** How the entities of one kind behave. */
export interface ModelOptions<S = unknown, E = S> {
  /** Statuses after which the state is final, or a function that judges. Default: completed, failed, cancelled. */
  readonly terminal?: readonly string[] | ((status: string | undefined, state: S | null) => boolean) | undefined;
  /**
   * How an event's data changes the state. `'replace'` (default): data is the whole state. `'merge'`: RFC 7396.
   * A function must return a new state and must not change the old one.
   */
  readonly reduce?: 'replace' | 'merge' | ((state: S | null, event: E) => S) | undefined;
  /** `'replay'` (default): every change in order. `'snapshot'`: the current state instead. `'skip'`: the newest wins. */
  readonly onGap?: 'replay' | 'snapshot' | 'skip' | undefined;
  /** How events follow each other: `'+1'` (default), `'range'`, `'prev'` or `'none'` (arrival order). */
  readonly continuity?: '+1' | 'range' | 'prev' | 'none' | undefined;
  /** `'absolute'`: a range that begins before the position may be applied. */
  readonly overlap?: 'absolute' | undefined;
  /** `'epoch'`: a new epoch reopens a final entity. Default: `'never'`. */
  readonly reopen?: 'never' | 'epoch' | undefined;
  /** An event or pushed snapshot with this number means that everything before is void. Off by default. */
  readonly resetSeq?: number | undefined;
  /** Event ids remembered per entity (32); 0 for none. */
  readonly ids?: number | undefined;
  /** `'whole'`: nothing of a replay is shown before all of it came. */
  readonly replay?: 'whole' | undefined;
}

declare const types: unique symbol;
// Without this, a declaration file exports everything that it declares.
export {};

/** A model, made by {@link model}. */
export interface Model<S = unknown, E = unknown> extends ModelOptions<any, any> {
  readonly [types]?: (event: E) => S;
}

/** Models by name: the part of an entity's name before the first `/`. */
export type Models = Readonly<Record<string, Model<any, any>>>;

/** The entity names that a set of models knows. */
export type EntityName<M> = (keyof M & string) | `${keyof M & string}/${string}`;

/** The model of an entity name. */
export type ModelOf<M, N extends string> = N extends keyof M
  ? M[N]
  : N extends `${infer K}/${string}`
    ? K extends keyof M
      ? M[K]
      : never
    : never;

/** The state of a model. */
export type StateOf<T> = T extends Model<infer S, any> ? S : never;

/** The event data of a model. */
export type EventOf<T> = T extends Model<any, infer E> ? E : never;

/** Asked of user code when the server's replay or snapshot is not to be used. */
export interface ReplayRequest extends Abortable {
  readonly epoch: string;
  readonly from: number;
  /** Absent: up to the newest. */
  readonly to?: number;
  readonly signal: AbortSignal;
}

/** Some changes of one entity. */
export interface ReplayPage {
  readonly events: readonly object[];
  readonly vacant?: readonly (readonly [from: number, to: number])[];
  /** Whether all that was asked for has come. Default: true. */
  readonly done?: boolean;
}

/** The whole state of one entity as of a position. */
export interface SnapshotAnswer {
  readonly epoch?: string;
  readonly seq: number | string;
  readonly status?: string | null;
  readonly at?: unknown;
  readonly data: unknown;
}

/** A `WebSocket` class; `undefined` uses the global one. */
export type WebSocketClass = new (url: string, protocols?: string | string[]) => WebSocketLike;

/** The part of a `WebSocket` that is used. */
export interface WebSocketLike {
  binaryType: string;
  readonly readyState: number;
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}

/** The wasm as the caller has it. */
export type WasmSource =
  | BufferSource
  | WebAssembly.Module
  | Response
  | URL
  | string
  | Promise<BufferSource | WebAssembly.Module | Response | URL | string>
  | (() => WasmSource);

/** Where messages for people go. `console` fits. */
export interface Logger {
  error(...values: unknown[]): void;
  warn(...values: unknown[]): void;
}

/** All options; only `url` and `models` are needed. Times are milliseconds. */
export interface ClientOptions<M extends Models = Models> {
  /** `ws:` or `wss:`, or a function that finds it before each dial. */
  readonly url:
    string | URL | ((context: { readonly signal: AbortSignal }) => string | URL | PromiseLike<string | URL>);
  readonly models: M;
  /** Asked before every dial. A failure is a failed attempt. */
  readonly getToken?:
    ((context: { readonly signal: AbortSignal; readonly attempt: number }) => string | PromiseLike<string>) | undefined;
  /** A token that is kept for ever, where there is no `getToken`. */
  readonly token?: string | undefined;
  /** Fetches missing changes from elsewhere than the socket. */
  readonly replayFrom?: ((entity: string, request: ReplayRequest) => PromiseLike<ReplayPage>) | undefined;
  /** Fetches the current state from elsewhere than the socket. */
  readonly snapshotFrom?:
    ((entity: string, request: { readonly signal: AbortSignal }) => PromiseLike<SnapshotAnswer>) | undefined;
  /** When listeners are called: once per entity and task (default), at every change, or once per animation frame. */
  readonly flush?: 'microtask' | 'sync' | 'frame' | undefined;
  readonly WebSocket?: WebSocketClass | undefined;
  /** Closes the client. */
  readonly signal?: AbortSignal | undefined;
  /** Errors that no `error` listener takes are logged here. Default: `console`; `null`: nowhere. */
  readonly logger?: Logger | null | undefined;
  /** The wasm, for `inorder/slim` or to serve it yourself. */
  readonly wasm?: WasmSource | undefined;
  readonly timeout?:
    | {
        /** From dial to `welcome` (15,000). */
        readonly connect?: number | undefined;
        /** From `subscribe` to its answer (5,000). */
        readonly subscribe?: number | undefined;
        /** From `replay` to each page (3,000). */
        readonly replay?: number | undefined;
        /** From `snapshot` to its answer (5,000). */
        readonly snapshot?: number | undefined;
        /** From a ping that probes to its pong (5,000). */
        readonly probe?: number | undefined;
        /** For everything awaited from your code (15,000). */
        readonly user?: number | undefined;
      }
    | undefined;
  /** `replay`: replay requests before a snapshot is asked for instead (2). */
  readonly tries?: { readonly replay?: number | undefined } | undefined;
  /** Waits between dials: uniform in [`min`, bound]; the bound starts at `base`, grows by `factor`, ends at `cap`. */
  readonly backoff?:
    | {
        readonly min?: number | undefined;
        readonly base?: number | undefined;
        readonly factor?: number | undefined;
        readonly cap?: number | undefined;
        /** A connection that lasted this long resets the count (5,000). */
        readonly stable?: number | undefined;
      }
    | undefined;
  /** Close codes by class; each list replaces its default. */
  readonly codes?:
    | {
        readonly resume?: readonly number[] | undefined;
        /** Forget the positions, keep what is shown (4009). */
        readonly anew?: readonly number[] | undefined;
        /** Get a new token and dial at once (4401). */
        readonly auth?: readonly number[] | undefined;
        /** Schedule nothing until `connect()` (4400, 4403). */
        readonly stop?: readonly number[] | undefined;
      }
    | undefined;
  /** `max`: entities with a recovery request out at a time (16). */
  readonly requests?: { readonly max?: number | undefined } | undefined;
  /** `max`: bad frames on one socket before it is closed (20). */
  readonly badFrames?: { readonly max?: number | undefined } | undefined;
  readonly gap?:
    | {
        /** How long simple reordering may take before anything is asked (100). */
        readonly grace?: number | undefined;
        /** Held events per entity (1,000). */
        readonly maxEvents?: number | undefined;
        /** Bytes of frame text held per entity (1 MiB). */
        readonly maxBytes?: number | undefined;
      }
    | undefined;
  /** The largest believable distance between position and event (100,000). */
  readonly maxAhead?: number | undefined;
  /** How long an entity outlives its last subscriber (1,000). */
  readonly linger?: number | undefined;
  /** Event ids remembered per entity (32), for models that do not say. */
  readonly ids?: number | undefined;
  /** Ping at this interval whatever arrives. Default: 25,000 where no heartbeat is promised. */
  readonly ping?: number | undefined;
  /** How often quiet entities are checked where the server can't send heads (30,000). */
  readonly reconcile?: number | undefined;
}

/** What `client.on` reports. */
export interface ClientEvents {
  /** An entity became final: once per entity, the transition that matters. Also of one that had ended before it was joined. */
  final: {
    readonly entity: string;
    readonly status: string | undefined;
    readonly seq: number | undefined;
    readonly state: unknown;
  };
  /** Changes are missing: from and to are the first and last number. */
  gap: { readonly entity: string; readonly from: number; readonly to: number };
  /** Every change of every entity that is followed, in order. */
  change: Change & { readonly entity: string };
  sync: { readonly entity: string; readonly sync: Sync };
  connection: ClientStatus;
  error: InorderError;
}

/** Counters since the client was made; numbers only grow. */
export interface Stats {
  /** Events applied, those that changed nothing to show included. */
  readonly applied: number;
  /** Snapshots adopted. */
  readonly adopted: number;
  /** Events dropped because their number was covered already. */
  readonly duplicates: number;
  /** Events that used a number and changed nothing. */
  readonly silent: number;
  /** Events held back at least once. */
  readonly held: number;
  /** Events dropped from a full buffer. */
  readonly overflowed: number;
  /** Gaps opened. */
  readonly gaps: number;
  /** Replay requests, one per entity and try. */
  readonly replays: number;
  /** Snapshot requests, one per entity and try; joins are not among them. */
  readonly snapshots: number;
  /** Snapshots dropped because they were behind. */
  readonly stale: number;
  /** Changes refused because the entity was final. */
  readonly afterFinal: number;
  /** Frames of retired epochs that were dropped. */
  readonly retired: number;
  /** Histories that forked. */
  readonly diverged: number;
  /** Positions that went back or changed their epoch. */
  readonly resets: number;
  /** Frames that could not be read or carried no usable number. */
  readonly badFrames: number;
  /** Frames of entities that nobody wants. */
  readonly unknown: number;
  /** Answers that nobody waited for any more. */
  readonly unwanted: number;
  /** Dials. */
  readonly dials: number;
  /** Sockets closed by the client to replace them. */
  readonly replaced: number;
}

/** Follows entities over one WebSocket. Made by {@link createClient}. */
export interface Client<M extends Models = Models> extends Disposable {
  /** The connection's state, and when the next attempt is due. */
  readonly status: Store<ClientStatus>;
  /**
   * An entity by its name. Cheap; nothing is sent before somebody subscribes.
   *
   * Subscribers to one entity share one subscription. `params` go to the server with it; other `params` while others
   * subscribe are refused (`params_conflict`).
   */
  entity<const N extends EntityName<M>>(
    name: N,
    options?: { readonly params?: unknown },
  ): Entity<StateOf<ModelOf<M, N>>, EventOf<ModelOf<M, N>>>;
  /** A topic: the snapshots of all its members by name. */
  topic<K extends keyof M & string = keyof M & string>(
    name: string,
    options?: { readonly params?: unknown },
  ): Topic<StateOf<M[K]>>;
  /** Calls `listener` whenever it happens. */
  on<T extends keyof ClientEvents>(type: T, listener: (event: ClientEvents[T]) => void): Stop;
  /** What was done and not done so far, or `undefined` before the wasm is loaded. */
  stats(): Stats | undefined;
  /** How many events of an entity wait for an earlier one. */
  held(name: string): number;
  /** Connects without waiting for a subscriber; after `stopped`, starts again. */
  connect(): void;
  /** Dials now instead of waiting for `retryAt`. */
  reconnect(): void;
  /** Loads and compiles the wasm. Resolves when that is done. */
  preload(): Promise<void>;
  /** Ends everything. Nothing is called afterwards, and no listener on the page remains. */
  close(): void;
}
