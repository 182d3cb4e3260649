// A real gateway for tests: its process is started, ended without a warning, and started again on the same port.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { targetDir } from '../../scripts/tools.mjs';

/** Longer than any start takes, so that a gateway that does not come up is a failure with a name. */
const READY_MS = 30_000;

/** None outlives the tests. */
const running = new Set();
process.once('exit', () => running.forEach((child) => child.kill('SIGKILL')));

export class GatewayProcess {
  port = 0;
  /** What it wrote to stderr. */
  log = [];
  #binary;
  #child;
  #folder;

  /** `npm test` builds the binary and says where it is. */
  constructor(binary = process.env.INORDER_GATEWAY || join(targetDir, 'debug/inorder-gateway')) {
    this.#binary = binary;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** `undefined` while it is down. */
  get pid() {
    return this.#child?.pid;
  }

  /** The flags of a database in a file, which outlives the process. */
  inFile() {
    this.#folder ??= mkdtempSync(join(tmpdir(), 'inorder-'));
    return ['--database', join(this.#folder, 'log.db')];
  }

  /** Starts it: at first on a free port, then on that one. Resolves when it listens. */
  async up(...args) {
    const child = spawn(this.#binary, ['--port', String(this.port), ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(child);
    child.once('exit', () => {
      running.delete(child);
      if (this.#child === child) this.#child = undefined;
    });
    this.#child = child;
    createInterface({ input: child.stderr }).on('line', (line) => this.log.push(line));
    this.port = await new Promise((resolve, reject) => {
      const fail = (why) => {
        clearTimeout(timer);
        reject(new Error(`the gateway ${why}\n${this.log.slice(-20).join('\n')}`));
      };
      const timer = setTimeout(() => fail(`did not listen within ${READY_MS} ms`), READY_MS);
      child.once('error', (error) => fail(`did not start: ${error.message}`));
      // When all that it wrote was read.
      child.once('close', (code) => fail(`ended with ${code}`));
      createInterface({ input: child.stdout }).on('line', (line) => {
        const port = /listening on http:\/\/[^:]+:(\d+)/.exec(line)?.[1];
        if (!port) return;
        clearTimeout(timer);
        resolve(Number(port));
      });
    });
  }

  /** Ends it and waits for that; returns the exit code. */
  async down(signal = 'SIGKILL') {
    const child = this.#child;
    if (!child) return undefined;
    const exit = once(child, 'exit');
    child.kill(signal);
    return (await exit)[0];
  }

  /** Ends it and removes its file. */
  async stop() {
    await this.down();
    if (this.#folder) rmSync(this.#folder, { recursive: true, force: true });
  }
}
