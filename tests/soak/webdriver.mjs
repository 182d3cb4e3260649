// A browser driven by WebDriver: no more of it than is needed.
import { createServer } from 'node:net';
import { start, stop } from '../../scripts/tools.mjs';

/** A driver that does not answer is a failure with a name, in milliseconds. */
const ANSWER_MS = 60_000;

/** Between looks whether a driver is ready, in milliseconds. */
const LOOK_MS = 50;

/** A port that is free now. */
function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export class WebDriver {
  #log = [];
  #child;
  #url;
  #session;

  /** Starts a driver and with it a browser; `args` makes the driver's arguments from a port. */
  static async start(program, args, env, capabilities) {
    const driver = new WebDriver();
    const port = await freePort();
    driver.#url = `http://127.0.0.1:${port}`;
    driver.#child = start(program, args(port), { env, onLine: (line) => driver.#log.push(line) });
    const began = performance.now();
    for (;;) {
      const answer = await fetch(`${driver.#url}/status`).catch(() => undefined);
      if (answer?.ok) break;
      if (driver.#child.exitCode !== null || performance.now() - began > ANSWER_MS) {
        throw new Error(`${program} did not start\n${driver.#log.join('\n')}`);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    const { sessionId } = await driver.#call('POST', '/session', { capabilities: { alwaysMatch: capabilities } });
    driver.#session = `/session/${sessionId}`;
    return driver;
  }

  get pid() {
    return this.#child.pid;
  }

  async #call(method, path, body = {}) {
    const answer = await fetch(this.#url + path, {
      method,
      ...(method === 'POST' && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    const { value } = await answer.json();
    if (!answer.ok) throw new Error(`${method} ${path}: ${value.error}: ${value.message}`);
    return value;
  }

  /** A command of the session. */
  command(method, path, body) {
    return this.#call(method, this.#session + path, body);
  }

  async stop() {
    await this.command('DELETE', '').catch(() => undefined);
    await stop(this.#child);
  }
}
