import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';

const KINDS: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};

/** A host that knows files and nothing else. */
export class Files {
  /** Paths that were asked for and are no files. */
  readonly missing: string[] = [];

  private constructor(private readonly server: Server) {}

  /** Serves a folder below `/anywhere/`, since the page may live in any folder. */
  static async of(folder: string): Promise<Files> {
    const server = createServer((request, response) => {
      const path = new URL(request.url ?? '/', 'http://host').pathname;
      const inside = path.startsWith('/anywhere/') ? path.slice('/anywhere/'.length) || 'index.html' : undefined;
      const file = join(folder, normalize(`/${decodeURIComponent(inside ?? 'nothing')}`));
      void stat(file).then(
        () => {
          response.setHeader('content-type', KINDS[extname(file)] ?? 'application/octet-stream');
          createReadStream(file).pipe(response);
        },
        () => {
          files.missing.push(path);
          response.writeHead(404).end();
        },
      );
    });
    const files = new Files(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return files;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/anywhere/`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
