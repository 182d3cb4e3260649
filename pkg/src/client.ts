import * as B from './boundary.js';
import type { Core } from './boundary.js';
import { type Frame, type Parts, receive, split } from './codec.js';
import {
  Cell,
  EntityView,
  makeChange,
  NO_READERS,
  SourceStore,
  SYNCS,
  TopicCell,
  TopicView,
  type View,
} from './entity.js';
import { InorderError } from './errors.js';
import { load, loaded, type Instance, type Parts as Loaded } from './load.js';
import { type ReadyModel, type ReadyOptions, readOptions, STATUSES, wrongUrl } from './options.js';
import type {
  ClientEvents,
  ClientOptions,
  ClientStatus,
  ConnectionState,
  Entity,
  EntitySnapshot,
  ErrorCode,
  Client as PublicClient,
  Stats,
  Stop,
  Store,
  Topic,
  WebSocketClass,
  WebSocketLike,
} from './public/api.js';
import { isObject } from './reduce.js';
import { attach, detach, isListener, NOBODY, type Source, stop, type Subscription } from './store.js';

declare const VERSION: string;

/** The WebSocket subprotocol. */
export const SUBPROTOCOL = 'inorder.v1.json';

/** Epochs that get a number before those out of use are dropped. */
const EPOCHS = 1_024;

/** Clocks that part by more mean that the page slept (R28). */
const WAKE_AFTER = 2_000;

/** The clock is read for at most one message in this time. Silence is judged in seconds. */
const HEARD_PACE = 100;

/** Between flushes of a hidden page, which has no animation frames. */
const HIDDEN_FRAME = 100;

/** After a trap or a failed load: the first wait and the longest. */
const RETRY_BASE = 500;
const RETRY_CAP = 30_000;

const CONNECTIONS: readonly ConnectionState[] = ['idle', 'connecting', 'live', 'offline', 'closed', 'stopped'];

const NOTHING: Frame = Object.freeze({});

const none = (): void => {};

/** Its `then` is a microtask without a detour: `queueMicrotask` of a browser takes almost a microsecond. */
const RESOLVED = Promise.resolve();

/** One client: the only place where user code, sockets and the core meet. */
export class Client implements PublicClient<any> {
  // What the hot path reads stands first.
  core!: Core;
  accept!: Core['accept'];
  acceptWithId!: Core['accept_with_id'];
  id = 0;
  /** Entities by name. */
  readonly handles = new Map<string, number>();
  // Columns by handle: an entity that nobody looks at costs no object.
  modelOf: ReadyModel[] = [];
  states: unknown[] = [];
  cells: (Cell | undefined)[] = [];
  private names: string[] = [];
  /** 0: of no topic; else the topic's handle + 1, or several. */
  private owners: (number | number[])[] = [];
  /** Bytes of the frame in hand, its share of a batch. */
  bytes = 0;
  lastEpochName: unknown;
  lastEpoch = B.NONE;
  lastStatusName: unknown;
  lastStatus = 0;
  /** Raised when the socket of the frames in hand is no longer the one. */
  line = 0;
  /** How much more common duplicates are than other events, of late. */
  repeats = 0;
  /** Its server counts frames by `n`. */
  isCounted = false;
  readonly seedHigh: number;
  readonly seedLow: number;
  private registers!: Float64Array;
  private now = 0;
  private isHeard = false;
  private heardAt = 0;
  private draining = false;
  private again = false;
  private readonly sync: boolean;

  // Numbers for strings
  private readonly epochs = new Map<string, number>();
  private epochNames: (string | undefined)[] = [];
  private epochsFree: number[] = [];
  private epochsLimit = EPOCHS;
  private readonly statuses = new Map<string, number>();
  private statusNames: (string | undefined)[] = [undefined];

  // Payloads that the core holds
  private slab: Frame[] = [];
  private slabFree: number[] = [];
  readonly parts = new Map<string, Parts>();
  partBytes = 0;

  // Before the wasm is there
  private readonly early = new Map<string, Cell>();
  private instance: Instance | undefined;
  private loading: Promise<void> | undefined;
  private loadTries = 0;
  private traps = 0;
  private isWaiting = false;
  /** What a trap left. */
  private saved: ReadonlyMap<number, Saved> | undefined;

  /** `connect()` was called. */
  private wanted = false;

  // The connection
  private readonly ready: ReadyOptions;
  private socket: WebSocketLike | undefined;
  private dialing: AbortController | undefined;
  private prelude: Prelude | undefined;
  private token: string | undefined;
  private tokenCause: unknown;
  private readonly tokenCalls = new Map<number, AbortController>();
  private readonly sources = new Map<string, { readonly request: number; readonly abort: AbortController }>();
  private clocks = 0;
  /** Messages of a socket that answers inside `send`. */
  private inbox: { readonly line: number; readonly data: unknown }[] = [];
  /** The `error` frame in hand. */
  said: Frame | undefined;

  // Handing over
  private pending: Source[] = [];
  private scheduled: (() => void) | undefined;
  private readonly listeners = new Map<string, readonly Subscription[]>();
  private hasChangeListener = false;
  // Of the change in hand, if it came out of the core.
  private isReset = false;
  private skippedFrom = B.NONE;
  private skippedTo = B.NONE;
  readonly endings = new Set<() => void>();
  private readonly timers = new Set<ReturnType<typeof setTimeout>>();
  isClosed = false;
  private lastStats: Stats | undefined;

  private readonly statusSource: Source & { current: ClientStatus } = {
    subscriptions: NOBODY,
    pending: false,
    isMap: false,
    current: Object.freeze({ connection: 'idle' }),
    value() {
      return this.current;
    },
  };
  readonly status: Store<ClientStatus>;

  constructor(
    readonly options: ClientOptions<any>,
    private readonly loader: () => Promise<Loaded>,
  ) {
    this.ready = readOptions(options);
    this.sync = options.flush === 'sync';
    this.token = options.token;
    const seed = new Uint32Array(2);
    globalThis.crypto?.getRandomValues(seed);
    this.seedHigh = seed[0] || (Math.random() * 0x1_0000_0000) >>> 0;
    this.seedLow = seed[1] || (Math.random() * 0x1_0000_0000) >>> 0;
    this.status = new SourceStore(this, this.statusSource, this.statusSource.current);
    const { signal } = options;
    if (signal?.aborted) this.isClosed = true;
    else signal?.addEventListener('abort', this.close, { once: true });
    if (Symbol.dispose) (this as { [Symbol.dispose]?: () => void })[Symbol.dispose] = this.close;
  }

  declare [Symbol.dispose]: () => void;

  // --- The application's calls ---

  entity(name: any, options?: { readonly params?: unknown }): Entity<any, any> {
    return this.view(EntityView, String(name), options?.params);
  }

  topic(name: string, options?: { readonly params?: unknown }): Topic<any> {
    return this.view(TopicView, `topic/${name}`, options?.params);
  }

  private view<V extends View<any>>(
    type: new (client: Client, name: string, params: unknown) => V,
    name: string,
    params: unknown,
  ): V {
    const view = new type(this, name, params);
    const known = this.find(name)?.view;
    return known instanceof type && known.paramsText === view.paramsText ? known : view;
  }

  on<T extends keyof ClientEvents>(type: T, listener: (event: ClientEvents[T]) => void): Stop {
    if (!isListener(listener)) return this.refuseListener();
    const subscription: Subscription = { listener, on: true, seen: undefined };
    const change = (list: readonly Subscription[]) => {
      this.listeners.set(type, list);
      if (type === 'change') this.hasChangeListener = list.length > 0;
    };
    change([...(this.listeners.get(type) ?? NOBODY), subscription]);
    return stop(() => {
      subscription.on = false;
      change(this.listeners.get(type)!.filter((other) => other !== subscription));
    });
  }

  stats(): Stats | undefined {
    if (this.instance && !this.isClosed) this.enter(() => this.count());
    return this.lastStats;
  }

  private count(): void {
    const counters = this.instance!.glue.stats(this.id);
    this.lastStats = Object.fromEntries(B.STATS.map((name, at) => [name, counters[at]])) as unknown as Stats;
  }

  held(name: string): number {
    const handle = this.handles.get(name);
    if (handle === undefined) return 0;
    return this.look(handle) ? this.registers[1]! : 0;
  }

  connect(): void {
    if (this.refuseClosed()) return;
    this.wanted = true;
    if (this.instance) this.enter(() => this.put(B.CONNECT));
    else this.start();
  }

  reconnect(): void {
    this.connect();
  }

  preload(): Promise<void> {
    if (this.isClosed) return Promise.reject(this.closedError());
    return load(this.loader).then(none);
  }

  readonly close = (): void => {
    if (this.isClosed) return;
    this.isClosed = true;
    this.options.signal?.removeEventListener('abort', this.close);
    this.line++;
    for (const retry of this.timers) clearTimeout(retry);
    if (this.instance) {
      // Closed: nothing is called any more, so draining inside a callback is safe.
      const outer = this.draining;
      this.draining = false;
      this.enter(() => {
        this.put(B.CLOSE);
        this.count();
        this.leaveInstance();
        this.core.destroy(this.id);
      });
      this.draining = outer;
    }
    this.abandon();
    this.dropPrelude(1000);
    for (const cell of this.cells) {
      if (cell && cell.sync !== B.FINAL_SYNC && cell.sync !== B.JOINING) {
        cell.sync = B.STALE;
        cell.snapshot = undefined;
        if (cell instanceof TopicCell) cell.map = undefined;
      }
    }
    this.setConnection('closed');
    this.scheduled?.();
    for (const end of [...this.endings]) end();
    this.endings.clear();
  };

  // --- Subscribing ---

  /** The cell of a name, if there is one or the entity is known. */
  find(name: string): Cell | undefined {
    const handle = this.handles.get(name);
    return handle === undefined ? this.early.get(name) : this.cellOf(handle);
  }

  /** The cell of a handle, made when it is first looked at. */
  cellOf(handle: number): Cell {
    return (this.cells[handle] ??= this.makeCell(handle));
  }

  private makeCell(handle: number): Cell {
    const model = this.modelOf[handle]!;
    const cell = this.newCell(this.names[handle]!, model);
    cell.handle = handle;
    if (this.saved) {
      const saved = this.saved.get(handle);
      if (saved)
        this.fill(cell, saved.sync === B.FINAL_SYNC ? saved.sync : B.STALE, saved.epoch, saved.seq, saved.status);
    } else if (this.look(handle)) {
      const r = this.registers;
      this.fill(cell, r[0]!, r[2] === 0 ? B.NONE : r[3]!, r[4]!, r[5]!);
    }
    return cell;
  }

  private fill(cell: Cell, sync: number, epoch: number, seq: number, status: number): void {
    cell.sync = epoch < 0 ? B.JOINING : sync;
    cell.epoch = this.epochNames[epoch];
    cell.seq = epoch < 0 ? undefined : seq;
    cell.status = this.statusNames[status];
    cell.snapshot = undefined;
  }

  /** Has the registers say what is known of an entity. False: there is no core to ask. */
  private look(handle: number): boolean {
    if (this.isClosed || !this.instance) return false;
    this.enter(() => this.core.read(this.id, handle));
    this.numbers();
    return this.instance !== undefined;
  }

  private newCell(name: string, model: ReadyModel): Cell {
    return model.topic ? new TopicCell(this, name, model) : new Cell(this, name, model);
  }

  follow(view: View<any>, listener: any): Stop {
    if (!isListener(listener)) return this.refuseListener();
    const cell = this.join(view);
    if (!cell) {
      this.callOne(listener, view.getSnapshot());
      return stop(none);
    }
    // Who has no `next` wants the entity followed and nothing more: a map of all members is not made for that.
    const hears = typeof listener === 'function' || typeof listener.next === 'function';
    const subscription = hears ? attach(cell, listener) : undefined;
    if (subscription) this.call(cell, subscription);
    this.drain();
    return stop(() => {
      if (subscription) detach(cell, subscription);
      this.leave(cell);
    });
  }

  /** Counts one more user of an entity; the first subscribes. The caller drains. */
  join(view: View<any>): Cell | undefined {
    const { name, paramsText } = view;
    if (this.isClosed) {
      this.report((view.failure = this.closedError(name)));
      return undefined;
    }
    const model = this.modelFor(name);
    if (model instanceof InorderError) {
      if (!view.failure) this.report((view.failure = model));
      return undefined;
    }
    let cell = this.find(name);
    if (cell && cell.paramsText !== paramsText) {
      if (cell.uses > 0) {
        this.report(
          (view.failure = new InorderError(
            'params_conflict',
            `${name} is followed with other \`params\`: use the same, or end that subscription first.`,
            false,
            name,
          )),
        );
        return undefined;
      }
      // The position belongs to the old params.
      const { handle } = cell;
      if (handle >= 0) this.enter(() => this.give(B.RELEASE, handle));
      else this.early.delete(name);
      const again = this.draining;
      this.draining = false;
      this.drain();
      this.draining = again;
      cell = this.find(name);
    }
    view.failure = undefined;
    if (!cell) this.early.set(name, (cell = this.newCell(name, model)));
    cell.params = view.params;
    cell.paramsText = paramsText;
    cell.view ??= view;
    if (cell.uses++ === 0) {
      const found = cell;
      if (this.instance) this.enter(() => this.enroll(found));
      else this.start();
    }
    return cell;
  }

  /** One user less; the last unsubscribes. */
  leave(cell: Cell): void {
    if (--cell.uses > 0 || this.isClosed) return;
    if (cell.handle >= 0) this.enter(() => this.put(B.UNSUBSCRIBE, cell.handle));
    else if (this.early.get(cell.name) === cell) this.early.delete(cell.name);
  }

  private modelFor(name: string): ReadyModel | InorderError {
    const slash = name.indexOf('/');
    const kind = slash < 0 ? name : name.slice(0, slash);
    if (kind === 'topic' && slash > 0) return this.ready.topics;
    const model = this.ready.models.get(kind);
    if (model && name !== '') return model;
    return new InorderError(
      'unknown_model',
      `'${name}' has no model: the part before the first '/' must be one of ${[...this.ready.models.keys()].join(', ')}.`,
      false,
      name,
    );
  }

  /** Gives a cell its number in the core and subscribes. */
  private enroll(cell: Cell): void {
    if (cell.handle < 0) {
      this.early.delete(cell.name);
      const handle = this.handleFor(cell.name, cell.model);
      cell.handle = handle;
      this.cells[handle] = cell;
    }
    this.give(B.SUBSCRIBE, cell.handle);
  }

  private handleFor(name: string, model: ReadyModel): number {
    const known = this.handles.get(name);
    if (known !== undefined) return known;
    const handle = this.core.add_entity(this.id, model.id);
    this.handles.set(name, handle);
    this.names[handle] = name;
    this.modelOf[handle] = model;
    this.states[handle] = undefined;
    this.cells[handle] = undefined;
    this.owners[handle] = 0;
    return handle;
  }

  // --- Into the core ---

  /** The one wrapper around every entry into the wasm, and the only catch for its traps (R38). */
  private enter<A, C>(entry: (a: A, b: C) => unknown, a?: A, b?: C): void {
    try {
      this.now = 0;
      entry(a as A, b as C);
    } catch (cause) {
      this.trap(cause);
    }
  }

  /** The time of this entry. Read when it is first needed: a clean event needs none, and some clocks are slow. */
  private time(): number {
    return (this.now ||= performance.now());
  }

  /** Gives the core an input. */
  give(input: number, a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0, i = 0, j = 0): number {
    // After a trap there is no core for a while, and its number may be another client's.
    if (!this.instance) return 0;
    const r = this.numbers();
    r[0] = a;
    r[1] = b;
    r[2] = c;
    r[3] = d;
    r[4] = e;
    r[5] = f;
    r[6] = g;
    r[7] = h;
    r[8] = i;
    r[9] = j;
    return this.core.handle(this.id, input, this.time());
  }

  /** Gives the core an input and does what it says. */
  put(input: number, a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0): void {
    this.give(input, a, b, c, d, e, f, g);
    this.drain();
  }

  /** The registers; the view is made anew when the memory grew. */
  private numbers(): Float64Array {
    if (this.registers.length === 0) {
      this.registers = new Float64Array(this.core.memory.buffer, this.core.registers(), B.REGISTERS);
    }
    return this.registers;
  }

  badFrame(): void {
    this.put(B.BAD_FRAME);
  }

  /** A frame of an entity that nobody wants (R39). */
  unwanted(frame: Frame): void {
    this.put(typeof frame['entity'] === 'string' ? B.UNKNOWN : B.BAD_FRAME);
  }

  /** Stores a payload while the core has it. */
  store(frame: Frame): number {
    const slot = this.slabFree.pop() ?? this.slab.length;
    this.slab[slot] = frame;
    return slot;
  }

  private fetch(slot: number): Frame {
    if (slot < 0) return NOTHING;
    const frame = this.slab[slot]!;
    this.slab[slot] = NOTHING;
    this.slabFree.push(slot);
    return frame;
  }

  dropParts(key: string): void {
    const parts = this.parts.get(key);
    if (!parts) return;
    this.parts.delete(key);
    this.partBytes -= parts.bytes;
  }

  internEpoch(name: unknown): number {
    if (name == null) name = '';
    if (typeof name !== 'string') return B.NONE;
    let epoch = this.epochs.get(name);
    if (epoch === undefined) {
      if (this.epochs.size >= this.epochsLimit) this.sweepEpochs();
      epoch = this.epochsFree.pop() ?? this.epochNames.length;
      this.epochNames[epoch] = name;
      this.epochs.set(name, epoch);
    }
    this.lastEpochName = name;
    this.lastEpoch = epoch;
    return epoch;
  }

  /** Takes the numbers back of epochs that the core no longer knows. */
  private sweepEpochs(): void {
    const used = new Set<number>();
    for (let from = 0, left = 1; left > 0;) {
      left = this.give(B.EPOCHS, from);
      const r = this.numbers();
      const count = Math.min(left, r.length);
      for (let i = 0; i < count; i++) used.add(r[i]!);
      from += count;
      left -= count;
    }
    for (const [name, epoch] of this.epochs) {
      if (used.has(epoch)) continue;
      this.epochs.delete(name);
      this.epochNames[epoch] = undefined;
      this.epochsFree.push(epoch);
    }
    this.lastEpochName = undefined;
    this.lastEpoch = B.NONE;
    // All in use: do not sweep for each new one.
    this.epochsLimit = Math.max(EPOCHS, this.epochs.size * 2);
  }

  internStatus(name: unknown): number {
    if (name == null) return 0;
    if (typeof name !== 'string') return B.NONE;
    let status = this.statuses.get(name);
    if (status === undefined) {
      if (this.statusNames.length >= STATUSES) {
        // A hash is enough for the core, which only compares.
        let hash = this.seedLow;
        for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x9e3779b1);
        return (hash | 0x8000_0000) >>> 0;
      }
      status = this.statusNames.length;
      this.statusNames.push(name);
      this.statuses.set(name, status);
      for (const model of this.ready.models.values()) {
        if (model.terminal?.has(name)) model.ends[status] = 1;
      }
    }
    this.lastStatusName = name;
    this.lastStatus = status;
    return status;
  }

  // --- Changes ---

  /** The core committed an event on the short way. */
  applied(
    handle: number,
    model: ReadyModel,
    frame: Frame,
    seq: number,
    epoch: number,
    status: number,
    idHigh: number,
    idLow: number,
  ): void {
    this.draining = true;
    const cell = this.cells[handle];
    if (
      cell !== undefined &&
      cell.quick !== undefined &&
      this.sync &&
      model.plain &&
      model.ends[status] === 0 &&
      cell.sync === B.LIVE &&
      cell.readers === NO_READERS &&
      !this.hasChangeListener &&
      this.owners[handle] === 0
    ) {
      // Most events, and what `commit` would do with them.
      const { data } = frame;
      if (data !== undefined) this.states[handle] = data;
      cell.seq = seq;
      cell.note(cell.epoch, frame, false);
      cell.snapshot = undefined;
      try {
        cell.quick(cell.show());
      } catch (cause) {
        this.threw(cause);
      }
    } else if (!this.commit(handle, model, frame, false, epoch, seq, status, false)) {
      const data = frame['data'] === undefined ? 0 : 1;
      this.give(B.ROLLBACK, handle, epoch, seq - 1, seq, idHigh, idLow, status, data, this.bytes, this.store(frame));
      this.again = true;
    }
    this.draining = false;
    if (this.again) this.drain();
  }

  /** Shows a change that the core committed. False: user code threw, and nothing was changed (R36). */
  private commit(
    handle: number,
    model: ReadyModel,
    frame: Frame,
    whole: boolean,
    epoch: number,
    seq: number,
    status: number,
    locks: boolean,
  ): boolean {
    const cell = this.cells[handle];
    // Conflation never crosses a final state (R35).
    if (cell !== undefined && cell.pending && cell.sync === B.FINAL_SYNC) this.deliver(cell);
    const { data } = frame;
    let state = this.states[handle];
    try {
      if (whole || model.topic) state = this.replaced(handle, model, whole, data, locks);
      else if (data !== undefined) state = model.reduce === undefined ? data : model.reduce(state, data);
      if (model.judge !== undefined || status >= STATUSES)
        locks = this.isTerminal(handle, model, frame, whole, state, locks);
      else if (model.ends[status] !== 0) locks = true;
    } catch (cause) {
      return this.refuse(handle, seq, cause);
    }
    this.states[handle] = state;
    if (cell !== undefined) {
      cell.snapshot = undefined;
      if (seq === seq) cell.seq = seq;
      cell.note(this.epochNames[epoch], frame, whole);
    }
    if (locks) this.lock(handle, cell);
    if (this.hasChangeListener || (cell !== undefined && cell.readers !== NO_READERS)) {
      this.tell(handle, whole, frame, epoch, seq, status, state);
    }
    if (cell !== undefined) this.notify(cell);
    if (this.owners[handle] !== 0) this.touchTopics(handle);
    return true;
  }

  /** The state after a snapshot, or the nothing that a topic has in its place. */
  private replaced(handle: number, model: ReadyModel, whole: boolean, data: unknown, locks: boolean): unknown {
    if (model.topic) return this.regroup(handle, whole, data);
    // A `final` answer may bring no state: what is shown stays.
    return data !== undefined ? data : locks ? this.states[handle] : null;
  }

  private isTerminal(
    handle: number,
    model: ReadyModel,
    frame: Frame,
    whole: boolean,
    state: unknown,
    locks: boolean,
  ): boolean {
    if (locks) return true;
    const named: string | undefined = frame['status'] ?? undefined;
    if (model.judge === undefined) return model.terminal!.has(named!);
    return !!model.judge(named ?? (whole ? undefined : this.statusOf(handle, this.cells[handle])), state);
  }

  /** User code threw on a change. */
  private refuse(handle: number, seq: number, cause: unknown): false {
    const message = `\`reduce\` or \`terminal\` threw on % at ${seq}, see \`cause\`: mend it; a snapshot is asked for.`;
    this.fail(handle, 'reduce', message, true, cause, true);
    return false;
  }

  private lock(handle: number, cell: Cell | undefined): void {
    // Shown at once, not in a second call.
    if (cell !== undefined) cell.sync = B.FINAL_SYNC;
    this.give(B.LOCK, handle);
    this.again = true;
  }

  /** Hands a change to readers and `change` listeners. */
  private tell(
    handle: number,
    whole: boolean,
    frame: Frame,
    epoch: number,
    seq: number,
    status: number,
    state: unknown,
  ): void {
    const cell = this.cells[handle];
    const shown = cell ?? { epoch: this.epochNames[epoch], status: frame['status'] ?? this.statusNames[status] };
    const { isReset, skippedFrom, skippedTo } = this;
    const kind = whole ? 'snapshot' : 'event';
    const change = makeChange(shown, kind, frame, seq, state, isReset, skippedFrom, skippedTo);
    if (cell) {
      const { readers } = cell;
      for (const reader of readers) reader.push(change);
      if (cell.sync === B.FINAL_SYNC) for (const reader of readers) reader.end();
    }
    if (this.hasChangeListener) this.emit('change', { entity: this.names[handle]!, ...change });
  }

  private statusOf(handle: number, cell: Cell | undefined): string | undefined {
    if (cell) return cell.status;
    return this.look(handle) ? this.statusNames[this.registers[5]!] : undefined;
  }

  // --- Topics ---

  /** Applies a topic's change to its members. Throws when it can't be read. */
  private regroup(topic: number, whole: boolean, data: any): undefined {
    if (data === undefined && !whole) return undefined;
    const add: unknown = whole ? (data ?? []) : (data?.add ?? []);
    const remove: unknown = whole ? [] : (data?.remove ?? []);
    if (!isNames(add) || !isNames(remove)) {
      throw new TypeError('A topic is a list of names, its events are {add: [], remove: []}.');
    }
    for (const name of remove) {
      const member = this.handles.get(name);
      if (member !== undefined) this.removeMember(topic, member);
    }
    if (whole) {
      const names = new Set(add);
      this.owners.forEach((_, member) => {
        if (this.isMember(topic, member) && !names.has(this.names[member]!)) this.removeMember(topic, member);
      });
    }
    for (const name of add) {
      const model = this.modelFor(name);
      if (model instanceof InorderError) this.report(model);
      else if (!model.topic) this.addMember(topic, this.handleFor(name, model));
    }
    const cell = this.cells[topic] as TopicCell | undefined;
    if (cell) cell.map = undefined;
    return undefined;
  }

  private isMember(topic: number, member: number): boolean {
    const owner = this.owners[member]!;
    return typeof owner === 'number' ? owner === topic + 1 : owner.includes(topic + 1);
  }

  private addMember(topic: number, member: number): void {
    if (this.isMember(topic, member)) return;
    const owner = this.owners[member]!;
    this.owners[member] = owner === 0 ? topic + 1 : [...(typeof owner === 'number' ? [owner] : owner), topic + 1];
    const early = this.early.get(this.names[member]!);
    if (early) this.enroll(early);
    this.give(B.ADD_MEMBER, topic, member);
  }

  private removeMember(topic: number, member: number): void {
    if (!this.isMember(topic, member)) return;
    this.disown(topic, member);
    this.give(B.REMOVE_MEMBER, topic, member);
  }

  private disown(topic: number, member: number): void {
    const owner = this.owners[member]!;
    const left = typeof owner === 'number' ? [] : owner.filter((other) => other !== topic + 1);
    this.owners[member] = left.length > 1 ? left : (left[0] ?? 0);
  }

  /** The map of a topic: every member with its snapshot. */
  members(topic: number): ReadonlyMap<string, EntitySnapshot<any>> {
    const map = new Map<string, EntitySnapshot<any>>();
    if (topic >= 0) {
      for (let member = 0; member < this.owners.length; member++) {
        const owner = this.owners[member]!;
        if (owner === topic + 1 || (typeof owner !== 'number' && owner.includes(topic + 1))) {
          map.set(this.names[member]!, this.cellOf(member).show());
        }
      }
    }
    return map;
  }

  private touchTopics(member: number): void {
    const owner = this.owners[member]!;
    if (typeof owner === 'number') this.touchTopic(owner - 1);
    else for (const topic of owner) this.touchTopic(topic - 1);
  }

  private touchTopic(topic: number): void {
    const cell = this.cells[topic] as TopicCell | undefined;
    if (cell?.map === undefined) return;
    cell.map = undefined;
    this.notify(cell);
  }

  // --- Out of the core ---

  /** Does what the core says until it has nothing more to say. Inside itself it leaves that to the outer one. */
  drain(): void {
    if (this.draining) {
      this.again = true;
      return;
    }
    if (!this.instance) return;
    this.enter(drainAll, this);
  }

  /** Only through `drain`. */
  drainNow(): void {
    this.draining = true;
    do {
      this.again = false;
      // A callback may have trapped it.
      while (this.instance) {
        const output = this.core.poll(this.id, this.time());
        if (output === 0) break;
        this.output(output, this.numbers());
      }
      const next = this.inbox.shift();
      if (next) {
        this.again = true;
        if (next.line === this.line) {
          this.draining = false;
          receive(this, next.data);
          this.draining = true;
        }
      }
    } while (this.again);
    this.draining = false;
    if (this.instance && !this.isClosed) this.core.arm(this.id, this.time());
  }

  private output(output: number, r: Float64Array): void {
    const a = r[0]!;
    const b = r[1]!;
    switch (output) {
      case B.OUT_CHANGE:
        return this.change(r);
      case B.OUT_DISCARD:
        this.fetch(a);
        return;
      case B.OUT_SYNC:
        return this.setSync(a, b);
      case B.OUT_GAP:
        return this.emit('gap', { entity: this.names[a]!, from: b, to: r[2]! });
      case B.OUT_FINAL: {
        if (!this.listeners.get('final')?.length) return;
        const { status, seq, state } = this.cellOf(a).show();
        return this.emit('final', { entity: this.names[a]!, status, seq, state });
      }
      case B.OUT_FAULT:
        return this.fault(a, b);
      case B.OUT_FORGOTTEN:
        return this.forget(a);
      case B.OUT_CONNECTION:
        return this.setConnection(CONNECTIONS[a]!, b);
      case B.OUT_DIAL:
        return this.dial(a);
      case B.OUT_CLOSE:
        return this.hangUp(b);
      case B.OUT_GET_TOKEN:
        return this.getToken(a, b);
      case B.OUT_CANCEL_TOKEN:
        this.tokenCalls.get(a)?.abort();
        this.tokenCalls.delete(a);
        return;
      case B.OUT_SEND:
        return this.command(a, b, new Float64Array(this.core.memory.buffer, r[2]!, r[3]!));
    }
  }

  private change(r: Float64Array): void {
    const handle = r[0]!;
    const whole = r[1] === 1;
    const epoch = r[2]!;
    const prev = r[3]!;
    const seq = r[4]!;
    const status = r[5]!;
    const locks = r[9] === 1;
    const frame = this.fetch(r[10]!);
    const idHigh = r[11]!;
    const idLow = r[12]!;
    const bytes = r[13]!;
    this.isReset = r[6] === 1;
    this.skippedFrom = r[7]!;
    this.skippedTo = r[8]!;
    if (this.isClosed) return;
    const cell = this.cells[handle];
    // Shown together with its first state, not after it; the same when it is reopened.
    if (cell !== undefined && (cell.sync === B.JOINING || cell.sync === B.FINAL_SYNC)) {
      if (cell.pending && cell.sync === B.FINAL_SYNC) this.deliver(cell);
      cell.sync = this.syncOf(handle);
    }
    if (!this.commit(handle, this.modelOf[handle]!, frame, whole, epoch, seq, status, locks)) {
      const data = frame['data'] === undefined ? 0 : 1;
      const back = whole ? B.NONE : this.store(frame);
      this.give(B.ROLLBACK, handle, epoch, prev, seq, idHigh, idLow, status, data, bytes, back);
      if (cell !== undefined) this.setSync(handle, this.syncOf(handle));
    }
    this.isReset = false;
    this.skippedFrom = B.NONE;
  }

  private syncOf(handle: number): number {
    return this.look(handle) ? this.registers[0]! : B.STALE;
  }

  private setSync(handle: number, sync: number): void {
    const cell = this.cells[handle];
    if (cell !== undefined && cell.sync !== sync) {
      if (cell.pending && cell.sync === B.FINAL_SYNC) this.deliver(cell);
      cell.sync = sync;
      if (sync === B.LIVE || sync === B.FINAL_SYNC) cell.error = undefined;
      cell.snapshot = undefined;
      this.notify(cell);
      if (this.owners[handle] !== 0) this.touchTopics(handle);
      if (sync === B.FINAL_SYNC) for (const reader of cell.readers) reader.end();
    }
    if (this.listeners.get('sync')?.length) this.emit('sync', { entity: this.names[handle]!, sync: SYNCS[sync]! });
  }

  private fault(handle: number, code: number): void {
    const [kind, message, isShown = false] = FAULTS[code]!;
    const { said, tokenCause } = this;
    const isToken = kind === 'token';
    const cause = said ? new Error(`${said['code']}: ${said['message']}`) : isToken ? tokenCause : undefined;
    if (isToken) this.tokenCause = undefined;
    const retryable = kind !== 'stopped' && kind !== 'forbidden' && kind !== 'not_found';
    this.fail(handle, kind, message, retryable, cause, isShown);
  }

  /** Something is wrong: an `error` event, and in the entity's snapshot if that is where it belongs. */
  private fail(
    handle: number,
    code: ErrorCode,
    message: string,
    retryable: boolean,
    cause: unknown,
    isShown: boolean,
  ): void {
    const name = this.names[handle];
    const error = new InorderError(code, message.replace('%', name ?? 'this client'), retryable, name, cause);
    const cell = this.cells[handle];
    if (cell && isShown) {
      cell.error = error;
      cell.snapshot = undefined;
      this.notify(cell);
    }
    this.report(error);
  }

  private forget(handle: number): void {
    const cell = this.cells[handle];
    if (cell) {
      cell.handle = B.NONE;
      if (cell instanceof TopicCell) {
        this.owners.forEach((_, member) => this.isMember(handle, member) && this.disown(handle, member));
      }
    }
    const name = this.names[handle]!;
    if (this.handles.get(name) === handle) this.handles.delete(name);
    this.names[handle] = '';
    this.states[handle] = this.cells[handle] = undefined;
    this.owners[handle] = 0;
  }

  private setConnection(connection: ConnectionState, wait = B.NONE): void {
    const source = this.statusSource;
    source.current = Object.freeze(wait >= 0 ? { connection, retryAt: Math.round(Date.now() + wait) } : { connection });
    this.notify(source);
    this.emit('connection', source.current);
  }

  // --- The connection ---

  private dial(generation: number): void {
    this.line++;
    this.dialing?.abort();
    const dialing = (this.dialing = new AbortController());
    const { url } = this.options;
    if (typeof url !== 'function') return this.open(generation, url);
    const open = (url: unknown) => {
      if (dialing.signal.aborted) return;
      const wrong = wrongUrl(url);
      if (wrong) failed(new TypeError(`It must return ${wrong}.`));
      else this.enter(() => this.open(generation, url as string));
    };
    const failed = (cause: unknown) => {
      if (dialing.signal.aborted) return;
      this.report(new InorderError('url', '`url` failed, see `cause`: it is asked again.', true, undefined, cause));
      this.enter(() => this.put(B.CLOSED, generation, 1006));
    };
    attempt(() => url({ signal: dialing.signal })).then(open, failed);
  }

  private open(generation: number, url: string | URL): void {
    const { line, prelude } = this;
    this.prelude = undefined;
    const isCurrent = () => this.line === line;
    let socket: WebSocketLike;
    try {
      socket = prelude?.socket ?? this.makeSocket(url);
    } catch (cause) {
      this.report(
        new InorderError(
          'socket',
          'No socket, see `cause`: https pages need wss:, Node before 22 the option `WebSocket`.',
          true,
          undefined,
          cause,
        ),
      );
      return this.ended(generation, 1006);
    }
    this.socket = socket;
    this.instance!.glue.open_socket(
      this.id,
      socket,
      () => isCurrent() && this.enter(() => this.put(B.OPENED, generation)),
      (event) => {
        if (this.line === line) this.enter(this.message, event.data);
      },
      (event) => {
        if (isCurrent()) this.enter(() => this.ended(generation, event.code));
      },
      none,
    );
    if (!prelude) return;
    // What happened before the core was there.
    if (socket.readyState === 1) this.put(B.OPENED, generation);
    for (const data of prelude.messages) if (isCurrent()) this.message(data);
    if (prelude.code && isCurrent()) this.ended(generation, prelude.code);
  }

  private makeSocket(url: string | URL): WebSocketLike {
    const WebSocket = this.options.WebSocket ?? (globalThis.WebSocket as WebSocketClass);
    return new WebSocket(String(url), SUBPROTOCOL);
  }

  /** Begins the handshake while the wasm is still loading. */
  private dialEarly(): void {
    const { url, getToken } = this.options;
    if (getToken || typeof url === 'function') return;
    try {
      const socket = this.makeSocket(url);
      const prelude: Prelude = { socket, messages: [], code: 0 };
      socket.binaryType = 'arraybuffer';
      socket.onmessage = ({ data }) => prelude.messages.push(data);
      socket.onclose = ({ code }) => (prelude.code = code);
      socket.onerror = none;
      this.prelude = prelude;
    } catch {
      // The core dials again, and reports it then.
    }
  }

  /** A socket that the core did not ask for. */
  private dropPrelude(code: number): void {
    const { prelude } = this;
    this.prelude = undefined;
    if (prelude) hush(prelude.socket, code);
  }

  private ended(generation: number, code: number): void {
    this.socket = undefined;
    this.offLine();
    this.put(B.CLOSED, generation, code);
  }

  private hangUp(code: number): void {
    this.socket = undefined;
    this.offLine();
    this.core.close_socket(this.id, code);
  }

  /** What belongs to one socket ends with it. */
  private offLine(): void {
    this.line++;
    this.dialing?.abort();
    this.parts.clear();
    this.partBytes = 0;
    for (const { abort } of this.sources.values()) abort.abort();
    this.sources.clear();
  }

  private readonly message = (data: unknown): void => {
    if (!this.isHeard) this.hear();
    // A socket that answers inside `send`: its turn comes when the one in hand is done.
    if (this.draining) {
      this.inbox.push({ line: this.line, data });
      this.again = true;
    } else receive(this, data);
  };

  /** Notes when something was heard, for all that comes within the next moment. */
  private hear(): void {
    this.isHeard = true;
    this.heardAt = this.time();
    const timer = setTimeout(() => {
      this.isHeard = false;
      this.timers.delete(timer);
    }, HEARD_PACE);
    this.timers.add(timer);
  }

  private readonly timer = (): void => this.enter(this.onTimer);

  private readonly onTimer = (): void => {
    this.tellHeard();
    // The core sees by itself when the timer is late.
    this.put(this.hasDrifted() ? B.WAKE : B.TIMEOUT);
  };

  /** The core need not know of every message, but before it judges silence. */
  private tellHeard(): void {
    if (this.heardAt === 0 || !this.instance) return;
    this.core.handle(this.id, B.HEARD, this.heardAt);
    this.heardAt = 0;
  }

  /** Whether wall and monotonic clock parted since the last look: the machine slept. */
  private hasDrifted(): boolean {
    const apart = Date.now() - performance.now();
    const drift = Math.abs(apart - this.clocks);
    this.clocks = apart;
    return drift > WAKE_AFTER;
  }

  private readonly page = (event: Event): void => this.enter(this.onPage, event);

  private readonly onPage = (event: Event): void => {
    this.tellHeard();
    switch (event.type) {
      case 'online':
        return this.put(B.ONLINE);
      case 'offline':
        return this.put(B.OFFLINE);
      case 'resume':
        return this.put(B.WAKE);
      case 'pagehide':
        if ((event as PageTransitionEvent).persisted) this.put(B.PAGEHIDE);
        return;
      case 'pageshow':
        if ((event as PageTransitionEvent).persisted) this.put(B.PAGESHOW);
        return;
      case 'visibilitychange':
        if (isHidden()) {
          // A frame that was asked for would not come before the page is visible again.
          if (this.scheduled && this.options.flush === 'frame') {
            this.scheduled();
            this.schedule();
          }
          return;
        }
        if (this.hasDrifted()) this.give(B.WAKE);
        this.put(B.VISIBLE);
    }
  };

  private getToken(id: number, count: number): void {
    const abort = new AbortController();
    this.tokenCalls.set(id, abort);
    const answer = (ok: boolean) => {
      if (this.tokenCalls.delete(id)) this.enter(() => this.put(B.TOKEN, id, ok ? 1 : 0));
    };
    attempt(() => {
      const { getToken } = this.options;
      return getToken!({ signal: abort.signal, attempt: count });
    }).then(
      (token) => {
        if (abort.signal.aborted) return;
        if (typeof token === 'string') {
          this.token = token;
          answer(true);
        } else failed(new TypeError('It must return a string.'));
      },
      (cause) => failed(cause),
    );
    const failed = (cause: unknown) => {
      if (abort.signal.aborted) return;
      this.tokenCause = cause;
      answer(false);
    };
  }

  private sendText = (text: string): void => {
    try {
      this.socket?.send(text);
    } catch {
      // The socket is closing; its close event follows.
    }
  };

  /** Writes a command; `numbers` are as the driver's `commands.rs` lays them out. */
  private command(kind: number, request: number, numbers: Float64Array): void {
    const { token } = this;
    switch (kind) {
      case B.HELLO:
        return this.sendText(JSON.stringify({ type: 'hello', token, client: `inorder/${VERSION}` }));
      case B.AUTH:
        return this.sendText(JSON.stringify({ type: 'auth', token }));
      case B.PING:
        return this.sendText(`{"type":"ping","id":${request}}`);
      case B.SEND_SUBSCRIBE:
        return split('subscribe', request, 'entities', this.resumes(numbers), this.sendText);
      case B.SEND_REPLAY:
        return this.replays(request, numbers);
    }
    const list = Array.from(numbers, (handle) => this.names[handle]!);
    if (kind === B.SEND_SNAPSHOT && this.options.snapshotFrom) {
      for (const name of list) this.snapshotFrom(name, request);
      return;
    }
    const type = kind === B.SEND_UNSUBSCRIBE ? 'unsubscribe' : kind === B.SEND_SNAPSHOT ? 'snapshot' : 'heads';
    split(
      type,
      kind === B.SEND_UNSUBSCRIBE ? B.NONE : request,
      'entities',
      list.map((name) => JSON.stringify(name)),
      this.sendText,
    );
  }

  /** Each: handle, epoch or −1, seq, whether to add the cursor, how many are behind, each of those with its place. */
  private resumes(numbers: Float64Array): string[] {
    const items: string[] = [];
    for (let at = 0; at < numbers.length;) {
      const handle = numbers[at]!;
      const epoch = numbers[at + 1]!;
      const cell = this.cells[handle];
      const behind: unknown[] = [];
      for (let left = numbers[at + 4]!; left > 0; left--) {
        const member = at + 5 + behind.length * 3;
        const place = numbers[member + 1]!;
        const isPlaced = place >= 0;
        behind.push([
          this.names[numbers[member]!],
          isPlaced ? this.epochNames[place] : null,
          isPlaced ? numbers[member + 2] : null,
        ]);
      }
      items.push(
        JSON.stringify({
          entity: this.names[handle],
          ...(epoch >= 0 && { epoch: this.epochNames[epoch], after: numbers[at + 2] }),
          params: cell?.params,
          ...(numbers[at + 3] === 1 && { cursor: cell?.cursor }),
          ...(behind.length > 0 && { behind }),
        }),
      );
      at += 5 + behind.length * 3;
    }
    return items;
  }

  /** Each: handle, epoch, from, to or −1. */
  private replays(request: number, numbers: Float64Array): void {
    const items: string[] = [];
    const { replayFrom } = this.options;
    for (let at = 0; at < numbers.length; at += 4) {
      const entity = this.names[numbers[at]!]!;
      const epoch = this.epochNames[numbers[at + 1]!]!;
      const from = numbers[at + 2]!;
      const to = numbers[at + 3]!;
      const until = to >= 0 && { to };
      if (replayFrom) {
        this.ask(
          `replay ${entity}`,
          request,
          (signal) => replayFrom(entity, { epoch, from, ...until, signal }),
          (page: any) => ({
            type: 'replay',
            request,
            entity,
            epoch,
            done: true,
            ...page,
          }),
          entity,
        );
      } else items.push(JSON.stringify({ entity, epoch, from, ...until }));
    }
    if (items.length > 0) split('replay', request, 'ranges', items, this.sendText);
  }

  private snapshotFrom(entity: string, request: number): void {
    const { snapshotFrom } = this.options;
    this.ask(
      `snapshot ${entity}`,
      request,
      (signal) => snapshotFrom!(entity, { signal }),
      (answer: any) => ({
        ...answer,
        type: 'snapshot',
        request,
        entity,
      }),
      entity,
    );
  }

  /** Asks user code instead of the server; its answer is read like a frame. A retry of a call that is out is none. */
  private ask(
    key: string,
    request: number,
    call: (signal: AbortSignal) => unknown,
    frame: (answer: unknown) => object,
    entity: string,
  ): void {
    const out = this.sources.get(key);
    if (out?.request === request) return;
    out?.abort.abort();
    const abort = new AbortController();
    this.sources.set(key, { request, abort });
    const timer = setTimeout(() => {
      failed(new Error(`No answer within ${this.ready.user} ms.`));
      abort.abort();
    }, this.ready.user);
    const isOver = () => {
      clearTimeout(timer);
      if (this.sources.get(key)?.abort === abort) this.sources.delete(key);
      return abort.signal.aborted || this.isClosed;
    };
    const failed = (cause: unknown) => {
      if (isOver()) return;
      const name = key.startsWith('r') ? 'replayFrom' : 'snapshotFrom';
      this.report(new InorderError('source', `\`${name}\` failed for ${entity}: see \`cause\`.`, true, entity, cause));
      this.enter(this.message, JSON.stringify({ type: 'error', code: 'source', request, entity }));
    };
    attempt(() => call(abort.signal)).then((answer) => {
      if (isOver()) return;
      if (isObject(answer)) this.enter(this.message, JSON.stringify(frame(answer)));
      else failed(new TypeError('It must return an object.'));
    }, failed);
  }

  // --- Starting and traps ---

  private start(): void {
    if (this.loading || this.isClosed || this.isWaiting) return;
    if (loaded) {
      this.instance = loaded;
      this.enter(() => this.begin());
      return;
    }
    this.dialEarly();
    this.loading = bounded(load(this.loader), this.ready.user).then(
      (instance) => {
        if (this.isClosed || this.instance) return;
        this.instance = instance;
        this.loadTries = 0;
        this.enter(() => this.begin());
      },
      (cause: unknown) => {
        this.loading = undefined;
        if (this.isClosed) return;
        this.dropPrelude(4000);
        this.report(
          cause instanceof InorderError
            ? cause
            : new InorderError('load', 'Loading the wasm took too long: it is tried again.', true),
        );
        const wait = this.later(this.loadTries++, () => this.start());
        this.setConnection('offline', wait);
      },
    );
  }

  /** Calls back after a random wait that doubles with each try. */
  private later(tries: number, then: () => void): number {
    const bound = Math.min(RETRY_CAP, RETRY_BASE * 2 ** tries);
    const wait = bound / 2 + (Math.random() * bound) / 2;
    this.isWaiting = true;
    const retry = setTimeout(() => {
      this.timers.delete(retry);
      this.isWaiting = false;
      then();
    }, wait);
    this.timers.add(retry);
    return wait;
  }

  /** A new core. */
  private begin(): void {
    const instance = this.instance!;
    const { glue } = instance;
    this.core = instance.core;
    // From the exports' dictionary they would be looked up anew for each event.
    this.accept = this.core.accept;
    this.acceptWithId = this.core.accept_with_id;
    instance.clients.add(this);
    this.registers = new Float64Array(this.core.memory.buffer, this.core.registers(), B.REGISTERS);
    this.registers.set(this.ready.numbers);
    this.id = this.core.create(this.seedHigh, this.seedLow);
    for (const model of [this.ready.topics, ...this.ready.models.values()]) {
      this.numbers().set(model.numbers);
      model.id = this.core.add_model(this.id);
    }
    glue.attach(this.id, this.timer, typeof document === 'undefined' ? undefined : window, this.page);
    this.hasDrifted();
    const { saved } = this;
    this.saved = undefined;
    if (saved) this.restore(saved);
    for (const cell of [...this.early.values()]) if (cell.uses > 0) this.enroll(cell);
    if (this.wanted) this.give(B.CONNECT);
    this.drain();
    this.dropPrelude(4000);
  }

  private leaveInstance(): void {
    this.core.detach(this.id);
    this.instance!.clients.delete(this);
  }

  /** User calls that are out are void, and nothing waits any more. */
  private abandon(): void {
    this.offLine();
    this.socket = undefined;
    for (const abort of this.tokenCalls.values()) abort.abort();
    this.tokenCalls.clear();
    this.inbox = [];
    this.slab = [];
    this.slabFree = [];
  }

  /** The wasm trapped, or this code has a bug: throw the instance away and resume everything from a new one (R38). */
  private trap(cause: unknown): void {
    const { instance } = this;
    if (!instance) throw cause;
    const clients = [...instance.clients];
    const saved = clients.map((client) => client.salvage());
    try {
      instance.glue.__wbg_reset_state();
      instance.core = instance.glue.initSync();
    } catch (again) {
      cause = again;
    }
    clients.forEach((client, at) => client.revive(saved[at]!, cause));
  }

  /** Takes out of a broken instance what is worth keeping. */
  private salvage(): ReadonlyMap<number, Saved> {
    const { socket } = this;
    if (this.saved) return this.saved;
    const saved = new Map<number, Saved>();
    for (const [name, handle] of this.handles) {
      const entity: Saved = { name, handle, sync: 0, epoch: B.NONE, seq: 0, status: 0 };
      try {
        this.core.salvage(this.id, handle);
        const r = this.numbers();
        entity.sync = r[0]!;
        if (r[2] !== 0) {
          entity.epoch = r[3]!;
          entity.seq = r[4]!;
          entity.status = r[5]!;
        }
      } catch {
        // It joins anew.
      }
      saved.set(handle, entity);
    }
    try {
      this.core.detach(this.id);
    } catch {
      // Its listeners throw when they are called; nothing more can be done from here.
    }
    this.abandon();
    if (socket) hush(socket, 4000);
    return saved;
  }

  /** Starts over with what was saved, after a wait: the same frame may trap again. */
  private revive(saved: ReadonlyMap<number, Saved>, cause: unknown): void {
    this.instance = undefined;
    this.draining = this.again = false;
    this.saved = saved;
    this.report(
      new InorderError(
        'fault',
        'The wasm trapped and is started anew: please report this with its `cause`.',
        true,
        undefined,
        cause,
      ),
    );
    if (this.isClosed) return;
    for (const cell of this.cells) {
      if (cell && cell.sync !== B.FINAL_SYNC && cell.sync !== B.JOINING) this.setSync(cell.handle, B.STALE);
    }
    this.loading = undefined;
    const wait = this.later(this.traps++, () => this.start());
    this.setConnection('offline', wait);
  }

  /** Gives a new core the entities of the one that trapped, each with its position. */
  private restore(saved: ReadonlyMap<number, Saved>): void {
    const { states, cells, modelOf, owners } = this;
    const handles = new Map<number, number>();
    this.handles.clear();
    this.modelOf = [];
    this.states = [];
    this.cells = [];
    this.names = [];
    this.owners = [];
    for (const { name, handle, sync, epoch, seq, status } of saved.values()) {
      const again = this.handleFor(name, modelOf[handle]!);
      handles.set(handle, again);
      this.give(B.RESTORE, again, epoch, seq, status, sync === B.FINAL_SYNC ? 1 : 0);
      this.states[again] = states[handle];
      const cell = (this.cells[again] = cells[handle]);
      if (cell) cell.handle = again;
    }
    for (const handle of saved.keys()) {
      const member = handles.get(handle)!;
      const owner = owners[handle]!;
      for (const topic of typeof owner === 'number' ? (owner ? [owner] : []) : owner) {
        const again = handles.get(topic - 1);
        if (again !== undefined) this.addMember(again, member);
      }
      const cell = this.cells[member];
      if (cell && cell.uses > 0) this.give(B.SUBSCRIBE, member);
      // Nobody wants it: it would have been forgotten.
      else if (this.owners[member] === 0) this.give(B.RELEASE, member);
    }
  }

  // --- Handing over ---

  /** A source changed: call its listeners now or with the next flush (R35). */
  private notify(source: Source): void {
    if (source.subscriptions.length === 0 || this.isClosed) return;
    if (this.sync && !source.isMap) return this.deliver(source);
    if (source.pending) return;
    source.pending = true;
    this.pending.push(source);
    if (!this.scheduled) this.schedule();
  }

  private schedule(): void {
    let cancel = none;
    if (this.options.flush !== 'frame') {
      this.scheduled = this.unschedule;
      RESOLVED.then(this.flush);
      return;
    }
    if (isHidden() || typeof requestAnimationFrame !== 'function') {
      const timer = setTimeout(this.flush, HIDDEN_FRAME);
      cancel = () => clearTimeout(timer);
    } else {
      const frame = requestAnimationFrame(this.flush);
      cancel = () => cancelAnimationFrame(frame);
    }
    this.scheduled = () => {
      this.unschedule();
      cancel();
    };
  }

  private readonly unschedule = (): void => {
    this.scheduled = undefined;
  };

  private readonly flush = (): void => {
    if (!this.scheduled) return;
    this.scheduled = undefined;
    const { pending } = this;
    this.pending = [];
    for (const source of pending) if (source.pending) this.deliver(source);
  };

  /** Calls every listener that has not heard the current value. */
  private deliver(source: Source): void {
    source.pending = false;
    const value = source.value();
    const { subscriptions } = source;
    for (let i = 0; i < subscriptions.length; i++) {
      const subscription = subscriptions[i]!;
      if (!subscription.on || subscription.seen === value) continue;
      subscription.seen = value;
      const { listener } = subscription;
      try {
        if (typeof listener === 'function') listener(value);
        else listener.next?.(value);
      } catch (cause) {
        this.threw(cause);
      }
      if (this.isClosed) return;
    }
  }

  /** Calls one listener with the current value (R32). */
  call(source: Source, subscription: Subscription): void {
    subscription.seen = source.value();
    this.callOne(subscription.listener, subscription.seen);
  }

  private callOne(listener: any, value: unknown): void {
    try {
      if (typeof listener === 'function') listener(value);
      else listener.next?.(value);
    } catch (cause) {
      this.threw(cause);
    }
  }

  private threw(cause: unknown): void {
    const message = 'A listener threw, see `cause`: mend it; the others were called.';
    this.report(new InorderError('listener', message, false, undefined, cause));
  }

  private emit<T extends keyof ClientEvents>(type: T, event: ClientEvents[T]): void {
    const listeners = this.listeners.get(type);
    if (listeners === undefined || this.isClosed) return;
    for (const { listener, on } of listeners) if (on && !this.isClosed) this.callOne(listener, event);
  }

  /** Reports what went wrong: to `error` listeners, else to the logger. */
  report(error: InorderError): void {
    const listeners = this.listeners.get('error') ?? NOBODY;
    const { logger = console } = this.options;
    if (listeners.length === 0) return logger?.error(error);
    for (const { listener, on } of listeners) {
      if (!on) continue;
      try {
        if (typeof listener === 'function') listener(error);
        else listener.next?.(error);
      } catch (cause) {
        // Not to the listeners: they would go on for ever.
        logger?.error(cause);
      }
    }
  }

  closedError(entity?: string): InorderError {
    return new InorderError('closed', 'The client is closed: make a new one.', false, entity);
  }

  private refuseClosed(): boolean {
    if (this.isClosed) this.report(this.closedError());
    return this.isClosed;
  }

  refuseListener(): Stop {
    this.report(new InorderError('listener', 'A listener must be a function or have a function `next`.'));
    return stop(none);
  }
}

/** A socket from before the core was there, and what happened to it. */
interface Prelude {
  readonly socket: WebSocketLike;
  readonly messages: unknown[];
  code: number;
}

/** Closes a socket and hears no more of it. */
function hush(socket: WebSocketLike, code: number): void {
  socket.onopen = socket.onmessage = socket.onclose = null;
  socket.onerror = none;
  try {
    socket.close(code);
  } catch {
    // It was closed already.
  }
}

interface Saved {
  readonly name: string;
  readonly handle: number;
  sync: number;
  epoch: number;
  seq: number;
  status: number;
}

/** By the core's numbers: code, message with the entity for %, whether it is shown in the entity's snapshot. */
const FAULTS: readonly (readonly [ErrorCode, string, boolean?])[] = [
  ['bad_frame', 'An unusable frame came and was skipped: mend the server.'],
  ['bad_frame', 'A number absurdly far ahead of % came: mend the server, or see `maxAhead`.'],
  ['after_final', 'A change came for % after its final one: see `reopen` if that is meant.'],
  ['diverged', 'Two events of % have one number: mend the server; a snapshot decides.'],
  ['epoch_flapping', 'An old epoch of % came back: do two histories share one address?'],
  ['auth_failed', 'The token was refused twice: check `getToken`.'],
  ['token', '`getToken` failed, see `cause`: it is asked again.'],
  ['forbidden', '% is forbidden: check the token, then subscribe anew.', true],
  ['not_found', '% is not known: check the name, then subscribe anew.', true],
  ['server', 'The server failed on %, see `cause`: it is asked again.', true],
  ['failed', 'Five snapshots of % failed: it is tried again every 30 s.', true],
  ['stopped', 'The server said stop: `connect()` starts again.'],
];

const drainAll = (client: Client): void => client.drainNow();

const isNames = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((name) => typeof name === 'string');

const isHidden = (): boolean => typeof document !== 'undefined' && document.visibilityState === 'hidden';

/** Calls user code; what it throws is a rejection too. */
async function attempt<T>(call: () => T): Promise<Awaited<T>> {
  return await call();
}

/** Waits for user code, but not for ever (R23). */
function bounded<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('timeout')), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
