// A scripted server: a WebSocket class whose other end is the test, and a clock that the test moves.
import { afterEach, beforeAll, vi } from 'vitest';
import { createClient, model } from '../../pkg/dist/index.js';
import type { Client, ClientOptions, InorderError, Model } from '../../pkg/dist/index.js';
import { OUT_FORGOTTEN, SNAPSHOT } from '../../pkg/src/boundary.js';

/** The wasm of one client, with what happened at the boundary. */
export class Wasm {
  /** The newest comes last. */
  static readonly all: Wasm[] = [];

  readonly exports: Record<string, any>;
  /** Entities that the core was told of, less those that it forgot. */
  known = 0;
  /** The largest numbers that were given to entities and epochs. */
  lastEntity = -1;
  lastEpoch = -1;
  /** How often it was asked what is known of an entity. */
  reads = 0;

  constructor(exports: any) {
    const register = (at: number) => new Float64Array(exports.memory.buffer, exports.registers(), 64)[at]!;
    this.exports = {
      ...exports,
      add_entity: (model: number) => {
        const entity = exports.add_entity(model);
        this.known++;
        this.lastEntity = Math.max(this.lastEntity, entity);
        return entity;
      },
      handle: (input: number, now: number) => {
        if (input === SNAPSHOT) this.lastEpoch = Math.max(this.lastEpoch, register(2));
        return exports.handle(input, now);
      },
      poll: (now: number) => {
        const output = exports.poll(now);
        if (output === OUT_FORGOTTEN) this.known--;
        return output;
      },
      read: (entity: number) => {
        this.reads++;
        exports.read(entity);
      },
    };
    Wasm.all.push(this);
  }

  /** Makes it trap, as a bug would: within a call of the application. */
  trap(client: Pick<Client<any>, 'held'>, entity = 'job/1'): void {
    const { read } = this.exports;
    // Once: what is read to save the entities does not trap again.
    this.exports['read'] = () => {
      this.exports['read'] = read;
      unreachable();
    };
    client.held(entity);
  }
}

const { Instance } = WebAssembly;

/** A module with one function, `u`, that traps as a panic does. */
const TRAP = [
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 0x75, 0, 0, 10, 5, 1, 3, 0, 0, 11,
];
const unreachable = new Instance(new WebAssembly.Module(new Uint8Array(TRAP))).exports['u'] as () => void;

WebAssembly.Instance = class {
  readonly exports: any;

  constructor(module: WebAssembly.Module, imports?: WebAssembly.Imports) {
    this.exports = new Wasm(new Instance(module, imports).exports).exports;
  }
} as never;

/** A frame, with any fields. */
export type Frame = Record<string, any>;

/** One socket of the client under test. */
export class Socket {
  binaryType = 'blob';
  readyState = 0;
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  onerror: ((event: any) => void) | null = null;
  readonly sent: Frame[] = [];
  readonly texts: string[] = [];
  closed: number | undefined;

  constructor(
    readonly url: string,
    readonly protocols?: string | string[],
  ) {}

  send(text: string): void {
    this.texts.push(text);
    this.sent.push(JSON.parse(text));
    if (this.answers) this.answer(JSON.parse(text));
  }

  close(code?: number): void {
    this.readyState = 3;
    this.closed = code ?? 1005;
  }

  /** Whether pings are answered inside `send`, as no real socket would. */
  answers = true;

  private answer(frame: Frame): void {
    if (frame['type'] === 'ping') this.say({ type: 'pong', id: frame['id'] });
  }

  open(welcome: Frame | null = {}): void {
    this.readyState = 1;
    this.onopen?.({});
    if (welcome) this.say({ type: 'welcome', can: ['replay', 'snapshot', 'heads'], ...welcome });
  }

  /** One message with these frames: a batch if there are several. */
  say(...frames: Frame[]): void {
    this.raw(JSON.stringify(frames.length === 1 ? frames[0] : frames));
  }

  raw(data: unknown): void {
    this.onmessage?.({ data });
  }

  end(code: number): void {
    this.readyState = 3;
    this.onclose?.({ code });
  }

  /** The frames of a type that the client sent. */
  of(type: string): Frame[] {
    return this.sent.filter((frame) => frame['type'] === type);
  }

  /** The latest request of a type. */
  request(type: string): number {
    return this.of(type).at(-1)?.['request'];
  }

  /** An event of `job/1` in epoch E. */
  event(seq: number | string, data?: unknown, more: Frame = {}): void {
    this.say({ type: 'event', entity: 'job/1', epoch: 'E', seq, ...(data !== undefined && { data }), ...more });
  }

  /** A snapshot that answers the latest `subscribe`. */
  snapshot(entity: string, seq: number, data: unknown, more: Frame = {}): void {
    this.say({ type: 'snapshot', request: this.request('subscribe'), entity, epoch: 'E', seq, data, ...more });
  }
}

/** Any state, for tests. */
export type Data = Record<string, any>;

const clients: Client<any>[] = [];

/** A client with its sockets and the errors that it reported. */
export class World<M extends Record<string, Model<any, any>> = { job: Model<Data, Data> }> {
  readonly sockets: Socket[] = [];
  readonly errors: InorderError[] = [];
  readonly client: Client<M>;

  constructor(options: Partial<ClientOptions<any>> = {}) {
    const { sockets } = this;
    class WebSocket extends Socket {
      constructor(url: string, protocols?: string | string[]) {
        super(url, protocols);
        sockets.push(this);
      }
    }
    this.client = createClient({
      url: 'ws://server.test/ws',
      models: { job: model<Data, Data>() },
      flush: 'sync',
      logger: null,
      WebSocket,
      ...options,
    } as ClientOptions<any>) as Client<any>;
    clients.push(this.client);
    this.client.on('error', (error) => this.errors.push(error));
  }

  /** The newest socket. */
  get socket(): Socket {
    return this.sockets.at(-1)!;
  }

  get codes(): string[] {
    return this.errors.map((error) => error.code);
  }

  /** Lets promises settle, without moving the clock. */
  async settle(): Promise<void> {
    await vi.advanceTimersByTimeAsync(0);
    await vi.advanceTimersByTimeAsync(0);
  }

  /** Moves the clock. */
  async pass(ms: number): Promise<void> {
    await vi.advanceTimersByTimeAsync(ms);
  }

  /** Connects, subscribes to `job/1` and brings it to `live` at `seq`. */
  async live(seq = 5, data: unknown = { v: seq }): Promise<Socket> {
    (this.client as Client<any>).entity('job/1').subscribe(() => {});
    await this.settle();
    this.socket.open();
    this.socket.snapshot('job/1', seq, data, { status: 'running' });
    return this.socket;
  }
}

/** Every test has a clock of its own; the wasm is loaded before. */
export function useClock(): void {
  beforeAll(async () => {
    await createClient({ url: 'ws://server.test/ws', models: { job: model() } }).preload();
    vi.useFakeTimers();
  });
  afterEach(() => {
    for (const client of clients.splice(0)) client.close();
    vi.clearAllTimers();
  });
}
