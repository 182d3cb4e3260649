// The gateway's own process, sockets to it that keep no rules, and tokens of every kind.
import { type ChildProcess, spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { WebSocket } from 'ws';
import type { Frame } from '../package/server.js';

/** The gateway's binary; `npm test` builds it and says where it is. */
const binary = process.env['INORDER_GATEWAY'] || join(import.meta.dirname, '../../target/debug/inorder-gateway');

/** Tells a hang from a slow machine. */
export const PATIENCE_MS = 30_000;

export const SECRET = 'the secret that must never be logged';

export class Gateway {
  address = '';
  readonly log: string[] = [];
  readonly #child: ChildProcess;

  /** Starts a gateway in memory that wants tokens. */
  constructor(...args: string[]) {
    const all = ['--port', '0', '--secret', SECRET, '--workload', 'none', '--log', 'trace', ...args];
    this.#child = spawn(binary, all, { stdio: ['ignore', 'pipe', 'pipe'] });
    createInterface({ input: this.#child.stderr! }).on('line', (line) => this.log.push(line));
  }

  async ready(): Promise<this> {
    for await (const line of createInterface({ input: this.#child.stdout! })) {
      const address = /listening on http:\/\/(\S+)/.exec(line)?.[1];
      if (!address) continue;
      this.address = address;
      return this;
    }
    throw new Error(`the gateway ended:\n${this.log.join('\n')}`);
  }

  /** Bytes of memory that its process has, as the kernel counts them. */
  get memory(): number {
    const kib = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${this.#child.pid}/status`, 'utf8'))?.[1];
    return Number(kib) * 1024;
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  stop(): void {
    this.#child.kill('SIGKILL');
  }

  async request(
    method: string,
    path: string,
    headers: Record<string, string>,
    body?: string,
  ): Promise<[number, Frame]> {
    const response = await fetch(`http://${this.address}${path}`, { method, headers, body: body ?? null });
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
    this.socket = new WebSocket(`ws://${gateway.address}/ws`, protocol, {
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
