// Serves the page, and takes what it noted. A host of its own: it stays when the gateway is killed.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

const KINDS = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript' };

/** Every file of a folder is read once, so that a build in between does not mix two packages. */
class Files {
  #known = new Map();

  read(path) {
    if (!this.#known.has(path)) this.#known.set(path, readFileSync(path));
    return this.#known.get(path);
  }
}

/** Hosts `page` at `/` and the built package at `/inorder/`; `receive(engine, session, notes)` gets what pages hand in. */
export async function host(page, dist, files, receive) {
  const cache = new Files();
  for (const file of files) cache.read(join(dist, file));
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://host');
    try {
      if (request.method === 'POST') {
        const chunks = [];
        for await (const chunk of request) chunks.push(chunk);
        receive(searchParams.get('engine'), searchParams.get('session'), JSON.parse(Buffer.concat(chunks).toString()));
        response.writeHead(204).end();
        return;
      }
      const path = normalize(pathname === '/' ? '/index.html' : pathname);
      const file = path.startsWith('/inorder/') ? join(dist, path.slice('/inorder/'.length)) : join(page, path);
      const body = cache.read(file);
      response.writeHead(200, { 'content-type': KINDS[extname(file)] ?? 'application/octet-stream' }).end(body);
    } catch (error) {
      response.writeHead(error.code === 'ENOENT' ? 404 : 500).end(String(error));
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    stop() {
      server.closeAllConnections();
      server.close();
    },
  };
}
