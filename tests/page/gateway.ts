import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const root = join(import.meta.dirname, '../..');

/** The gateway's binary; `npm test` builds it and says where it is. */
const binary = process.env['INORDER_GATEWAY'] ?? join(root, 'target/debug/inorder-gateway');

/** The built page. */
export const page = join(root, 'demo/dist');

/** Longer than any start takes, so that a gateway that does not come up is a failure with a name. */
const READY_MS = 30_000;

/** A real gateway with a database in a file, which outlives its process. */
export class Gateway {
  port = 0;
  #child: ChildProcess | undefined;
  #log: string[] = [];

  private constructor(
    private readonly folder: string,
    private readonly args: readonly string[],
  ) {}

  /** Starts a gateway on a free port. */
  static async start(...args: string[]): Promise<Gateway> {
    const gateway = new Gateway(await mkdtemp(join(tmpdir(), 'inorder-')), args);
    await gateway.start();
    return gateway;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** What it wrote to stderr. */
  get log(): string {
    return this.#log.join('\n');
  }

  /** Starts it again, on the same port and database. */
  async start(): Promise<void> {
    const place = ['--port', String(this.port), '--database', join(this.folder, 'log.db'), '--page', page];
    const child = spawn(binary, ['--open', ...place, ...this.args], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    createInterface({ input: child.stderr }).on('line', (line) => this.#log.push(line));
    this.port = await new Promise<number>((resolve, reject) => {
      const fail = (why: string): void => reject(new Error(`the gateway ${why}\n${this.log}`));
      const timer = setTimeout(() => fail(`did not listen within ${READY_MS} ms`), READY_MS);
      child.once('error', (error) => fail(`did not start: ${error.message}`));
      child.once('exit', (code) => fail(`ended with ${code}`));
      createInterface({ input: child.stdout }).on('line', (line) => {
        const port = /listening on http:\/\/[^:]+:(\d+)/.exec(line)?.[1];
        if (!port) return;
        clearTimeout(timer);
        resolve(Number(port));
      });
    });
  }

  /** Ends its process without a warning. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** Ends it and removes its database. */
  async stop(): Promise<void> {
    await this.#end('SIGKILL');
    await rm(this.folder, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill(signal);
    await exit;
  }
}
