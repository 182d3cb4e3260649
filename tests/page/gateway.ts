import { join } from 'node:path';
import { GatewayProcess } from '../gateway/process.mjs';

/** The built page. */
export const page = join(import.meta.dirname, '../../demo/dist');

/** A real gateway with the page and a database in a file, which outlives its process. */
export class Gateway extends GatewayProcess {
  private constructor(private readonly args: readonly string[]) {
    super();
  }

  /** Starts a gateway on a free port. */
  static async start(...args: string[]): Promise<Gateway> {
    const gateway = new Gateway(args);
    await gateway.start();
    return gateway;
  }

  /** Starts it again, on the same port and database. */
  async start(): Promise<void> {
    await this.up('--open', ...this.inFile(), '--page', page, ...this.args);
  }
}
