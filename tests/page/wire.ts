import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A wire between page and gateway that can be cut. */
export class Wire {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(target: () => number) {
    this.#server = createServer((near) => {
      const far = connect(target(), '127.0.0.1');
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(one);
        one.pipe(other);
        one.on('error', () => other.destroy());
        one.on('close', () => {
          this.#sockets.delete(one);
          other.destroy();
        });
      }
    });
  }

  /** A wire to whatever listens on the port when somebody connects. */
  static async to(target: () => number): Promise<Wire> {
    const wire = new Wire(target);
    await new Promise<void>((resolve) => wire.#server.listen(0, '127.0.0.1', resolve));
    return wire;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Breaks everything that is connected; returns how many ends that were. */
  cut(): number {
    const { size } = this.#sockets;
    for (const socket of this.#sockets) socket.resetAndDestroy();
    return size;
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
