// socket.io with connection state recovery, client and server as they are published.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { Server } from 'socket.io';
import { io } from 'socket.io-client';

export const split = (text) => [text];
export const join = (texts) => texts;
export const isEvent = (text) => text.startsWith('42');

function begin(port) {
  const http = createServer();
  const server = new Server(http, {
    transports: ['websocket'],
    pingInterval: 5_000,
    pingTimeout: 10_000,
    connectionStateRecovery: { maxDisconnectionDuration: 120_000, skipMiddlewares: true },
  });
  http.listen(port, '127.0.0.1');
  return once(http, 'listening').then(() => ({ server, port: http.address().port }));
}

export async function serve() {
  let { server, port } = await begin(0);
  return {
    url: `ws://127.0.0.1:${port}/socket.io/`,
    publish: (state) => server.emit('state', state),
    async loseHistory() {
      // Its history is in memory: a restart loses it.
      await server.close();
      ({ server } = await begin(port));
    },
    stop: () => server.close(),
  };
}

export async function follow(way, _, show, fetchState) {
  const socket = io(`http://127.0.0.1:${way.port}`, { transports: ['websocket'], reconnectionDelay: 500 });
  let waiting;
  let connected = 0;
  socket.on('connect', async () => {
    if (connected++ === 0 || socket.recovered) return;
    waiting = [];
    const state = await fetchState();
    show(state);
    for (const next of waiting.splice(0)) if (next.h === state.h && next.n > state.n) show(next);
    waiting = undefined;
  });
  socket.on('state', (state) => (waiting ? waiting.push(state) : show(state)));
  await new Promise((resolve) => socket.once('connect', resolve));
  return () => socket.disconnect();
}
