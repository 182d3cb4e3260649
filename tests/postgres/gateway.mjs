// A gateway on PostgreSQL: started, killed and started again on the same port, with what it tells of itself.
import { GatewayProcess } from '../gateway/process.mjs';

export class Gateway extends GatewayProcess {
  starts = 0;
  #args;

  /** `args` are the gateway's own. */
  static async start(binary, ...args) {
    const gateway = new Gateway(binary);
    gateway.#args = args;
    await gateway.up();
    return gateway;
  }

  get socketUrl() {
    return `ws://127.0.0.1:${this.port}/ws`;
  }

  /** The end of what it wrote to stderr. */
  get said() {
    return this.log.slice(-20).join('\n');
  }

  async up(...more) {
    await super.up('--open', '--workload', 'none', ...this.#args, ...more);
    this.starts += 1;
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
