// A gateway's process: started, killed and started again on the same port.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** Longer than any start takes. */
const READY_MS = 30_000;

const running = new Set();
process.once('exit', () => running.forEach((child) => child.kill('SIGKILL')));

export class Gateway {
  port = 0;
  starts = 0;
  #child;
  #args;
  #binary;
  #said = [];

  /** `args` are the gateway's own. */
  static async start(binary, ...args) {
    const gateway = new Gateway();
    gateway.#binary = binary;
    gateway.#args = args;
    await gateway.up();
    return gateway;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  get socketUrl() {
    return `ws://127.0.0.1:${this.port}/ws`;
  }

  get pid() {
    return this.#child?.pid;
  }

  /** The end of what it wrote to stderr. */
  get said() {
    return this.#said.slice(-20).join('\n');
  }

  /** Starts it, on the port that it had before. */
  async up(...more) {
    const args = ['--open', '--workload', 'none', '--port', String(this.port), ...this.#args, ...more];
    const child = spawn(this.#binary, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    running.add(child);
    child.once('exit', () => running.delete(child));
    createInterface({ input: child.stderr }).on('line', (line) => this.#said.push(line));
    this.port = await new Promise((resolve, reject) => {
      const fail = (why) => reject(new Error(`the gateway ${why}\n${this.said}`));
      const timer = setTimeout(() => fail('did not listen in time'), READY_MS);
      child.once('exit', (code) => fail(`ended with ${code}`));
      createInterface({ input: child.stdout }).on('line', (line) => {
        const port = /listening on http:\/\/[^:]+:(\d+)/.exec(line)?.[1];
        if (!port) return;
        clearTimeout(timer);
        resolve(Number(port));
      });
    });
    this.starts += 1;
  }

  /** Sends it a signal and waits for its end; returns the exit code. */
  async end(signal = 'SIGKILL') {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return undefined;
    const exit = once(child, 'exit');
    child.kill(signal);
    return (await exit)[0];
  }

  async get(path) {
    const answer = await fetch(`${this.url}${path}`);
    return answer.json();
  }

  /** The metrics, by name and labels. */
  async metrics() {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const lines = text.split('\n').filter((line) => line && !line.startsWith('#'));
    return Object.fromEntries(
      lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
    );
  }
}
