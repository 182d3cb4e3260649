// centrifuge with a scripted server of Centrifugo's protocol: history, positions, recovery, pings.
import { once } from 'node:events';
import { Centrifuge } from 'centrifuge';
import { WebSocket, WebSocketServer } from 'ws';

export const split = (text) => text.split('\n').filter(Boolean);
export const join = (texts) => [texts.join('\n')];
export const isEvent = (text) => text.includes('"pub');

/** Seconds between the server's pings. */
const PING = 5;

export async function serve() {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  await once(server, 'listening');
  let epoch = 'e1';
  let offset = 0;
  let history = [];
  const followers = new Set();
  server.on('connection', (socket) => {
    const timer = setInterval(() => socket.send('{}'), PING * 1_000);
    socket.on('close', () => (clearInterval(timer), followers.delete(socket)));
    socket.on('error', () => {});
    socket.on('message', (data) => {
      for (const line of String(data).split('\n')) {
        const { id, connect, subscribe } = JSON.parse(line);
        const reply = (body) => socket.send(JSON.stringify({ id, ...body }));
        if (connect) reply({ connect: { client: 'c', version: '6', ping: PING, pong: true } });
        if (!subscribe) continue;
        const same = subscribe.recover && subscribe.epoch === epoch;
        const publications = same ? history.filter((each) => each.offset > subscribe.offset) : [];
        const recovered = Boolean(same);
        reply({
          subscribe: {
            recoverable: true,
            positioned: true,
            epoch,
            offset,
            publications,
            recovered,
            was_recovering: !!subscribe.recover,
          },
        });
        followers.add(socket);
      }
    });
  });
  return {
    url: `ws://127.0.0.1:${server.address().port}/connection/websocket`,
    publish(data) {
      const pub = { data, offset: ++offset };
      history.push(pub);
      for (const socket of followers) socket.send(JSON.stringify({ push: { channel: 'job', pub } }));
    },
    loseHistory() {
      [epoch, offset, history] = ['e2', 0, []];
      for (const socket of followers) socket.close(3001, 'shutdown');
      followers.clear();
    },
    stop() {
      for (const socket of server.clients) socket.terminate();
      server.close();
    },
  };
}

export async function follow(way, _, show, fetchState) {
  const client = new Centrifuge(way.url, { websocket: WebSocket });
  const subscription = client.newSubscription('job', { recoverable: true, positioned: true });
  // As its guide says: not recovered means that the application loads its state; what comes meanwhile waits.
  let waiting;
  subscription.on('subscribed', async ({ wasRecovering, recovered }) => {
    if (!wasRecovering || recovered) return;
    waiting = [];
    const state = await fetchState();
    show(state);
    for (const next of waiting.splice(0)) if (next.h === state.h && next.n > state.n) show(next);
    waiting = undefined;
  });
  subscription.on('publication', ({ data }) => (waiting ? waiting.push(data) : show(data)));
  subscription.subscribe();
  client.connect();
  await subscription.ready();
  return () => client.disconnect();
}
