// One real gateway, whose process dies and comes back on the same file.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { start } from '../../scripts/tools.mjs';

/** A gateway that does not come up is a failure with a name, in milliseconds. */
const READY_MS = 30_000;

const REDUCE = ['gauge', 'price'].flatMap((model) => ['--reduce', `${model}=replace`]);

export class Gateway {
  #folder = mkdtempSync(join(tmpdir(), 'inorder-soak-'));
  #child;
  #port = 0;
  #log = [];
  /** Settings of faults by key; a process that starts knows none. */
  #faults = new Map();
  /** Called when the process is down. */
  #waiting = [];

  constructor(binary) {
    this.binary = binary;
  }

  get url() {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Starts it: at first on a free port, then on that one. */
  async start() {
    const place = ['--port', String(this.#port), '--database', join(this.#folder, 'log.db')];
    const args = ['--open', '--faults', '--heartbeat', '5', '--log', 'error', ...place, ...REDUCE];
    this.#port = await new Promise((resolve, reject) => {
      const fail = (why) => reject(new Error(`the gateway ${why}\n${this.#log.join('\n')}`));
      const timer = setTimeout(() => fail(`did not listen within ${READY_MS} ms`), READY_MS);
      this.#child = start(this.binary, args, {
        onLine: (line) => {
          this.#log.push(line);
          const port = /listening on http:\/\/[^:]+:(\d+)/.exec(line)?.[1];
          if (!port) return;
          clearTimeout(timer);
          resolve(Number(port));
        },
      });
      this.#child.done.then(({ code }) => fail(`ended with ${code}`));
    });
    for (const [key, faults] of this.#faults) await this.#put(key, faults);
  }

  /** Kills its process and starts another after a while. */
  async kill(ms) {
    this.#child.kill('SIGKILL');
    await this.#child.done;
    for (const call of this.#waiting.splice(0)) call();
    await new Promise((resolve) => setTimeout(resolve, ms));
    await this.start();
  }

  /** Resolves when the process is down the next time. */
  down() {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  async ask(method, path, body) {
    const answer = await fetch(this.url + path, {
      method,
      ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      signal: AbortSignal.timeout(10_000),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text === '' ? undefined : JSON.parse(text);
  }

  #put(key, faults) {
    const path = `/faults?key=${key}`;
    return faults ? this.ask('PUT', path, faults) : this.ask('DELETE', path);
  }

  /** Faults of the sockets that were opened under a key; `undefined` ends them. */
  async setFaults(key, faults) {
    if (faults) this.#faults.set(key, faults);
    else this.#faults.delete(key);
    await this.#put(key, faults);
  }

  /** Everything that it has, as of one moment. */
  async entities() {
    const all = [];
    let epoch;
    for (let after = ''; after !== undefined;) {
      const page = await this.ask('GET', `/entities?after=${encodeURIComponent(after)}`);
      epoch = page.epoch;
      all.push(...page.entities);
      after = page.next;
    }
    return { epoch, entities: all };
  }

  /** Ends it and removes its file. */
  async stop() {
    if (this.#child) {
      this.#child.kill('SIGKILL');
      await this.#child.done;
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
