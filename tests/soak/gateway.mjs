// One real gateway, whose process dies and comes back on the same file.
import { GatewayProcess } from '../gateway/process.mjs';

const REDUCE = ['gauge', 'price'].flatMap((model) => ['--reduce', `${model}=replace`]);

export class Gateway extends GatewayProcess {
  /** Settings of faults by key; a process that starts knows none. */
  #faults = new Map();
  /** Called when the process is dead. */
  #waiting = [];

  async start() {
    await this.up('--open', '--faults', '--heartbeat', '5', '--log', 'error', ...this.inFile(), ...REDUCE);
    for (const [key, faults] of this.#faults) await this.#put(key, faults);
  }

  /** Kills its process and starts another after a while. */
  async kill(ms) {
    await this.down();
    for (const call of this.#waiting.splice(0)) call();
    await new Promise((resolve) => setTimeout(resolve, ms));
    await this.start();
  }

  /** Resolves when the process is dead the next time. */
  dies() {
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
}
