// The other end of every app: files over HTTP, and one job over a WebSocket, all on one port.
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { WebSocketServer } from 'ws';

const KINDS = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

/** The job, as unreliable networks deliver it: the third change before the second, and that one twice. */
const JOB = [
  { type: 'snapshot', seq: 1, status: 'running', data: { progress: 0 } },
  { type: 'event', seq: 3, status: 'running', data: { progress: 2 } },
  { type: 'event', seq: 2, status: 'running', data: { progress: 1 } },
  { type: 'event', seq: 2, status: 'running', data: { progress: 1 } },
  { type: 'event', seq: 4, status: 'completed', data: { progress: 3 } },
];

/** What an app shows that saw every change of the job, and one that shows the newest only. */
export const EVERY_CHANGE = '1 2 3 4 completed';
export const LAST_CHANGE = '4 completed';

/** Serves a folder and the job on a free port of this machine; `headers` are sent with every file. */
export async function serve(folder, headers = {}) {
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => 'inorder.v1.json' });
  let connections = 0;
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, 'http://app').pathname));
    const file = join(folder, path.endsWith('/') ? `${path}index.html` : path);
    if (!statSync(file, { throwIfNoEntry: false })?.isFile()) {
      response.writeHead(404).end();
      return;
    }
    const type = KINDS[extname(file)] ?? 'application/octet-stream';
    response.writeHead(200, { 'Content-Type': type, 'Cache-Control': 'no-store', ...headers });
    createReadStream(file).pipe(response);
  });
  server.on('upgrade', (request, socket, head) => {
    connections++;
    sockets.handleUpgrade(request, socket, head, converse);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  return {
    page: `http://127.0.0.1:${port}/`,
    socket: `ws://127.0.0.1:${port}/`,
    /** How many sockets were opened so far. */
    connections: () => connections,
    async stop() {
      for (const socket of sockets.clients) socket.terminate();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function converse(socket) {
  const say = (frame) => socket.send(JSON.stringify(frame));
  const answers = {
    hello: () => say({ type: 'welcome', heartbeat: 15, can: ['replay', 'snapshot', 'heads'] }),
    ping: ({ id }) => say({ type: 'pong', id }),
    subscribe({ request, entities }) {
      for (const { entity } of entities) {
        say({ type: 'subscribed', request, entity, epoch: 'e', head: 1 });
        for (const frame of JOB) say({ ...frame, entity, epoch: 'e', ...(frame.type === 'snapshot' && { request }) });
      }
    },
  };
  socket.on('message', (text) => {
    const frames = JSON.parse(text);
    for (const frame of Array.isArray(frames) ? frames : [frames]) answers[frame.type]?.(frame);
  });
}

/** A port that nobody uses now, for servers that can't say which one they took. */
export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}
