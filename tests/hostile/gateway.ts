// The gateway's own process, sockets to it that keep no rules, and tokens of every kind.
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { WebSocket } from 'ws';
import { GatewayProcess } from '../gateway/process.mjs';
import type { Frame } from '../package/server.js';

/** Tells a hang from a slow machine. */
export const PATIENCE_MS = 30_000;

export const SECRET = 'the secret that must never be logged';

/** A gateway in memory that wants tokens. */
export class Gateway extends GatewayProcess {
  async start(...args: string[]): Promise<this> {
    await this.up('--secret', SECRET, '--workload', 'none', '--log', 'trace', ...args);
    return this;
  }

  /** Bytes of memory that its process has, as the kernel counts them. */
  get memory(): number {
    const kib = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${this.pid}/status`, 'utf8'))?.[1];
    return Number(kib) * 1024;
  }

  async request(
    method: string,
    path: string,
    headers: Record<string, string>,
    body?: string,
  ): Promise<[number, Frame]> {
    const response = await fetch(this.url + path, { method, headers, body: body ?? null });
    return [response.status, (await response.json()) as Frame];
  }

  /** Posts an event; returns its number. */
  async post(entity: string, event: Frame): Promise<number> {
    const headers = { Authorization: `Bearer ${token()}` };
    const path = `/entities/${encodeURIComponent(entity)}/events`;
    const [status, body] = await this.request('POST', path, headers, JSON.stringify(event));
    if (status !== 200) throw new Error(JSON.stringify(body));
    return body['seq'] as number;
  }
}

/** A token, by default for everything and a minute. */
export function token(
  claims: Frame = {},
  { secret = SECRET, header = {} }: { secret?: string; header?: Frame } = {},
): string {
  const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const exp = Math.floor(Date.now() / 1000) + 60;
  const head = encode({ alg: 'HS256', typ: 'JWT', ...header });
  const body = `${head}.${encode({ exp, entities: ['*'], publish: ['*'], ...claims })}`;
  return `${body}.${createHmac('sha256', secret).update(body).digest('base64url')}`;
}

/** A socket that keeps what it hears. */
export class Peer {
  readonly frames: Frame[] = [];
  readonly socket: WebSocket;
  /** The close code; of a refused dial the HTTP status. */
  readonly ended: Promise<number>;
  #wake = (): void => {};

  constructor(gateway: Gateway, { origin, protocol = 'inorder.v1.json' }: { origin?: string; protocol?: string } = {}) {
    this.socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/ws`, protocol, {
      ...(origin !== undefined && { origin }),
      perMessageDeflate: false,
      maxPayload: 64 << 20,
    });
    this.socket.on('message', (data) => {
      this.frames.push(...[JSON.parse(String(data))].flat());
      this.#wake();
    });
    this.ended = new Promise((resolve) => {
      this.socket.on('close', (code) => resolve(code));
      this.socket.on('unexpected-response', (_, response) => resolve(response.statusCode!));
      this.socket.on('error', () => {});
    });
  }

  /** A socket that said hello. */
  static async open(gateway: Gateway, claims: Frame = {}): Promise<Peer> {
    const peer = new Peer(gateway);
    await peer.opened;
    peer.say({ type: 'hello', token: token(claims) });
    await peer.hears((frame) => frame['type'] === 'welcome');
    return peer;
  }

  get opened(): Promise<void> {
    return new Promise((resolve) => this.socket.once('open', () => resolve()));
  }

  say(...frames: Frame[]): void {
    this.socket.send(JSON.stringify(frames.length === 1 ? frames[0] : frames));
  }

  subscribe(request: number, ...entities: string[]): void {
    this.say({ type: 'subscribe', request, entities: entities.map((entity) => ({ entity })) });
  }

  /** The first frame that fits, which may have come before. */
  async hears(fits: (frame: Frame) => boolean): Promise<Frame> {
    const until = Date.now() + PATIENCE_MS;
    for (let at = 0; ; at++) {
      while (at >= this.frames.length) {
        const rest = until - Date.now();
        if (rest <= 0) throw new Error(`not heard; last: ${JSON.stringify(this.frames.slice(-3)).slice(0, 500)}`);
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, rest);
          this.#wake = () => (clearTimeout(timer), resolve());
        });
      }
      if (fits(this.frames[at]!)) return this.frames[at]!;
    }
  }

  /** The error of a request. */
  async error(request: number): Promise<Frame> {
    return this.hears((frame) => frame['type'] === 'error' && frame['request'] === request);
  }
}
