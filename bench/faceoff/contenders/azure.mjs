// @azure/web-pubsub-client with a scripted server of json.reliable.webpubsub.azure.v1: sequence ids, acks, recovery.
import { once } from 'node:events';
import { WebPubSubClient } from '@azure/web-pubsub-client';
import { WebSocketServer } from 'ws';

export const split = (text) => [text];
export const join = (texts) => texts;
export const isEvent = (text) => text.includes('"type":"message"');

export async function serve() {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: (offered) => [...offered][0] });
  await once(server, 'listening');
  let connections = 0;
  /** By connection id: what was not acknowledged yet, and the socket in use. */
  let sessions = new Map();
  server.on('connection', (socket, { url }) => {
    const query = new URL(url, 'ws://azure').searchParams;
    const known = query.get('awps_connection_id');
    if (known && !sessions.has(known)) return socket.close(1008, 'unknown connection');
    const id = known ?? `c${++connections}`;
    const session = sessions.get(id) ?? { sent: [], sequence: 0, isMember: false };
    sessions.set(id, session);
    session.socket = socket;
    socket.on('error', () => {});
    socket.send(JSON.stringify({ type: 'system', event: 'connected', connectionId: id, reconnectionToken: 't' }));
    for (const message of session.sent) socket.send(message);
    socket.on('message', (data) => {
      const { type, ackId, sequenceId } = JSON.parse(data);
      if (type === 'sequenceAck')
        session.sent = session.sent.filter((text) => JSON.parse(text).sequenceId > sequenceId);
      if (type === 'ping') socket.send('{"type":"pong"}');
      if (type === 'joinGroup') session.isMember = true;
      if (ackId !== undefined) socket.send(JSON.stringify({ type: 'ack', ackId, success: true }));
    });
  });
  return {
    url: `ws://127.0.0.1:${server.address().port}/client/hubs/bench`,
    publish(data) {
      for (const session of sessions.values()) {
        if (!session.isMember) continue;
        const sequenceId = ++session.sequence;
        const text = JSON.stringify({
          sequenceId,
          type: 'message',
          from: 'group',
          group: 'job',
          dataType: 'json',
          data,
        });
        session.sent.push(text);
        session.socket.send(text);
      }
    },
    loseHistory() {
      const old = sessions;
      sessions = new Map();
      for (const { socket } of old.values()) socket.close(1001, 'shutdown');
    },
    stop() {
      for (const socket of server.clients) socket.terminate();
      server.close();
    },
  };
}

export async function follow(way, _, show, fetchState) {
  const client = new WebPubSubClient(way.url, { keepAliveTimeoutInMs: 15_000, keepAliveIntervalInMs: 5_000 });
  let waiting;
  let connected = 0;
  // Another connection than before: messages may be lost, and the application loads its state.
  client.on('connected', async () => {
    if (connected++ === 0) return;
    waiting = [];
    const state = await fetchState();
    show(state);
    for (const next of waiting.splice(0)) if (next.h === state.h && next.n > state.n) show(next);
    waiting = undefined;
  });
  client.on('group-message', ({ message: { data } }) => (waiting ? waiting.push(data) : show(data)));
  await client.start();
  await client.joinGroup('job');
  return () => client.stop();
}
