// The client that the recipes import, and its scripted server.
import { afterEach, beforeEach, expect, vi } from 'vitest';
import { type Client, type ClientOptions, createClient, type Model, model } from '../../pkg/dist/index.js';
import { type Frame, Socket } from '../package/server.js';

export interface Job {
  readonly progress: number;
}

const models = { job: model<Job>({ terminal: ['completed', 'failed'] }) };

/** Another one for each test. */
export let client: Client<{ readonly job: Model<Job, Job> }>;
export let server: Server;

/** What the server has of an entity. */
interface Kept {
  seq: number;
  status: string;
  data: unknown;
}

/** Answers what a client asks, a moment later, and sends what the test puts. */
export class Server {
  readonly sockets: Socket[] = [];
  readonly entities = new Map<string, Kept>();
  /** What is subscribed on the newest socket. */
  readonly followed = new Set<string>();
  /** How often each entity was subscribed. */
  readonly joins = new Map<string, number>();

  readonly WebSocket: new (url: string) => Socket;

  constructor() {
    const server = this;
    this.WebSocket = class extends Socket {
      constructor(url: string) {
        super(url);
        server.sockets.push(this);
        server.followed.clear();
        queueMicrotask(() => this.readyState === 0 && this.open({ heartbeat: 30 }));
      }

      override end(code: number): void {
        server.followed.clear();
        super.end(code);
      }

      override send(text: string): void {
        super.send(text);
        const frame: Frame = JSON.parse(text);
        queueMicrotask(() => server.hear(this, frame));
      }
    };
  }

  get socket(): Socket | undefined {
    return this.sockets.at(-1);
  }

  private hear(socket: Socket, frame: Frame): void {
    if (socket.readyState !== 1) return;
    if (frame['type'] === 'unsubscribe') for (const name of frame['entities']) this.followed.delete(name);
    if (frame['type'] !== 'subscribe') return;
    for (const { entity } of frame['entities']) {
      this.followed.add(entity);
      this.joins.set(entity, (this.joins.get(entity) ?? 0) + 1);
      this.snapshot(socket, entity, frame['request']);
    }
  }

  private snapshot(socket: Socket, entity: string, request?: number): void {
    const { seq, status, data } = this.entities.get(entity) ?? { seq: 0, status: 'running', data: null };
    socket.say({ type: 'snapshot', ...(request !== undefined && { request }), entity, epoch: 'E', seq, status, data });
    if (entity.startsWith('topic/') && isList(data)) for (const member of data) this.snapshot(socket, member);
  }

  /** Changes an entity and tells whoever follows it, or a topic with it. */
  put(entity: string, data: unknown, status = 'running'): void {
    const seq = (this.entities.get(entity)?.seq ?? 0) + 1;
    const before = this.entities.get(entity)?.data;
    const isDelta = isList(before) && !isList(data);
    const whole = isDelta ? [...before, ...(data as { add: string[] }).add] : data;
    this.entities.set(entity, { seq, status, data: whole });
    const topics = [...this.entities].filter(
      ([name, { data }]) => name.startsWith('topic/') && isList(data) && data.includes(entity),
    );
    if (![entity, ...topics.map(([name]) => name)].some((name) => this.followed.has(name))) return;
    this.socket!.say({ type: 'event', entity, epoch: 'E', seq, status, data });
    if (isDelta) for (const member of (data as { add: string[] }).add) this.snapshot(this.socket!, member);
  }
}

/** The state of a topic: its members. What is put to it later is a change, as on the wire. */
const isList = (data: unknown): data is string[] => Array.isArray(data);

/** What frameworks say on the console. */
const said: unknown[][] = [];
let errors: unknown[];

/** A client, a server and a silent console for each test; afterwards nobody may follow anything any more. */
export function eachWithItsOwn(options: Partial<ClientOptions<typeof models>> = {}): void {
  beforeEach(() => {
    for (const how of ['error', 'warn'] as const) {
      vi.spyOn(console, how).mockImplementation((...values) => void said.push(values));
    }
    server = new Server();
    errors = [];
    const { WebSocket } = server;
    client = createClient({ url: 'ws://server.test/ws', models, linger: 0, WebSocket, ...options });
    client.on('error', (error) => errors.push(error));
  });

  afterEach(async () => {
    await eventually(() => expect([...server.followed]).toEqual([]));
    client.close();
    vi.restoreAllMocks();
    const before = { said: said.splice(0), errors };
    expect(before).toEqual({ said: [], errors: [] });
  });
}

/** The errors so far; whoever expects some takes them. */
export const takeErrors = (): any[] => errors.splice(0);

/** Waits until it holds. The time is for machines under load. */
export const eventually = (holds: () => void): Promise<void> => vi.waitFor(holds, { timeout: 15_000, interval: 10 });

/** Lets everything that is due happen: frames, microtasks, a framework's scheduler. */
export const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));
