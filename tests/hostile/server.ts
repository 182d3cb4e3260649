// A server that follows the protocol, until a test makes it say something else; and what the client weighs.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect } from 'vitest';
import { type Frame, Socket, World } from '../package/server.js';

/** One entity's history: `data` and `status` of its events, from number 1 on. */
interface History {
  readonly epoch: string;
  readonly events: { data: unknown; status?: string }[];
}

/** The time that an answer takes, in ms. */
const LATENCY = 1;

export class Server {
  readonly sockets: Socket[] = [];
  readonly histories = new Map<string, History>();
  /** Whether questions are answered. */
  answers = true;
  /** What becomes of a dial. */
  accept = (socket: Socket): void => socket.open({ heartbeat: 15 });

  get socket(): Socket {
    return this.sockets.at(-1)!;
  }

  /** The class that the client gets for its sockets. */
  get WebSocket(): any {
    const server = this;
    return class extends Socket {
      constructor(url: string, protocols?: string | string[]) {
        super(url, protocols);
        server.sockets.push(this);
        setTimeout(() => this.readyState === 0 && server.accept(this), LATENCY);
      }

      override send(text: string): void {
        super.send(text);
        const frame = JSON.parse(text);
        setTimeout(() => this.readyState === 1 && server.answers && server.answer(this, frame), LATENCY);
      }
    };
  }

  history(entity: string): History {
    let history = this.histories.get(entity);
    if (!history) this.histories.set(entity, (history = { epoch: 'E', events: [] }));
    return history;
  }

  /** Commits an event and pushes it to the newest socket. */
  commit(entity: string, data: unknown, status?: string): number {
    const { epoch, events } = this.history(entity);
    events.push({ data, ...(status !== undefined && { status }) });
    const seq = events.length;
    if (this.socket?.readyState === 1) this.socket.say({ type: 'event', entity, epoch, ...this.event(entity, seq) });
    return seq;
  }

  private event(entity: string, seq: number): Frame {
    return { seq, ...this.history(entity).events[seq - 1] };
  }

  private answer(socket: Socket, frame: Frame): void {
    const { request } = frame;
    switch (frame['type']) {
      case 'subscribe':
        for (const { entity, epoch, after } of frame['entities']) {
          const history = this.history(entity);
          const head = history.events.length;
          socket.say({ type: 'subscribed', request, entity, epoch: history.epoch, head });
          if (after === undefined || epoch !== history.epoch) this.snapshot(socket, request, entity);
          else if (after < head) this.replay(socket, request, entity, after + 1, head);
        }
        break;
      case 'replay':
        for (const { entity, from, to } of frame['ranges']) this.replay(socket, request, entity, from, to);
        break;
      case 'snapshot':
        for (const entity of frame['entities']) this.snapshot(socket, request, entity);
        break;
      case 'heads':
        socket.say({
          type: 'heads',
          request,
          heads: frame['entities'].map((entity: string) => {
            const { epoch, events } = this.history(entity);
            return [entity, epoch, events.length];
          }),
        });
    }
  }

  private snapshot(socket: Socket, request: number, entity: string): void {
    const { epoch, events } = this.history(entity);
    const status = events.filter((event) => event.status !== undefined).at(-1)?.status;
    const data = events.at(-1)?.data ?? null;
    socket.say({ type: 'snapshot', request, entity, epoch, seq: events.length, data, ...(status && { status }) });
  }

  private replay(socket: Socket, request: number, entity: string, from: number, to = Infinity): void {
    const { epoch, events } = this.history(entity);
    const page = [];
    for (let seq = from; seq <= Math.min(to, events.length); seq++) page.push(this.event(entity, seq));
    socket.say({ type: 'replay', request, entity, epoch, events: page, done: true });
  }

  /** Forgets what sockets remember of what was sent, so that only the client is weighed. */
  forget(): void {
    for (const socket of this.sockets) {
      socket.texts.length = 0;
      socket.sent.length = 0;
    }
  }
}

/** A client that follows `job/1` of a server, live at 5. */
export async function attacked(options: object = {}): Promise<{ world: World; server: Server }> {
  const server = new Server();
  const world = new World({ WebSocket: server.WebSocket, ...options });
  for (let v = 1; v <= 5; v++) server.commit('job/1', { v }, 'running');
  world.client.entity('job/1').subscribe(() => {});
  await world.pass(1_000);
  expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ sync: 'live', seq: 5, state: { v: 5 } });
  return { world, server };
}

/** The longest that a client may need to be right again once the server is honest, in ms: a round of thirty seconds. */
const HEALING = 120_000;

/** The server goes on honestly: the client shows the truth within two minutes, whatever was claimed before. */
export async function heals(world: World, server: Server): Promise<void> {
  const v = server.history('job/1').events.length + 1;
  server.commit('job/1', { v }, 'running');
  await world.pass(HEALING);
  const { seq, sync, state } = world.client.entity('job/1').getSnapshot();
  expect({ seq, sync, state }).toEqual({ seq: v, sync: 'live', state: { v } });
}

// --- What it weighs --------------------------------------------------------------------------------------------------

/** Memories of all instances that were made since this module was loaded. */
const memories: WebAssembly.Memory[] = [];

function remember(instance: WebAssembly.Instance): void {
  for (const value of Object.values(instance.exports)) if (value instanceof WebAssembly.Memory) memories.push(value);
}

const { Instance, instantiate } = WebAssembly;
WebAssembly.Instance = class extends Instance {
  constructor(module: WebAssembly.Module, imports?: WebAssembly.Imports) {
    super(module, imports);
    remember(this);
  }
};
WebAssembly.instantiate = (async (source: any, imports?: WebAssembly.Imports) => {
  const result: any = await instantiate(source, imports);
  remember(result.instance ?? result);
  return result;
}) as typeof WebAssembly.instantiate;

setFlagsFromString('--expose-gc');
const collect: () => void = runInNewContext('gc');

/** Bytes in use: of the page's heap after a collection, and of the largest wasm memory. */
export function weigh(): { heap: number; wasm: number } {
  collect();
  return {
    heap: process.memoryUsage().heapUsed,
    wasm: Math.max(0, ...memories.map((memory) => memory.buffer.byteLength)),
  };
}

export const mib = (bytes: number): string => `${(bytes / (1 << 20)).toFixed(1)} MiB`;
