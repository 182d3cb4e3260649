// The ordered consumer of NATS JetStream over WebSocket, with the real server.
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { wsconnect } from '@nats-io/nats-core';
import { WebSocket } from 'ws';
import { start, stop } from '../../../scripts/tools.mjs';
import { natsServer } from '../nats-server.mjs';

/** Takes the server's bytes apart into operations; what is not whole waits for the next message. */
export function split(data, pair) {
  let bytes = (pair.rest ?? '') + data.toString('latin1');
  const operations = [];
  for (let end; (end = bytes.indexOf('\r\n')) >= 0;) {
    const line = bytes.slice(0, end);
    let length = end + 2;
    if (/^H?MSG /i.test(line)) length += Number(line.split(' ').at(-1)) + 2;
    if (bytes.length < length) break;
    operations.push(bytes.slice(0, length));
    bytes = bytes.slice(length);
  }
  pair.rest = bytes;
  return operations;
}
export const join = (operations) => [operations.join('')];
/** What the stream delivers, not the answers to requests. */
export const isEvent = (operation) => /^H?MSG /i.test(operation) && operation.includes('$JS.ACK');

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export async function serve(stream) {
  globalThis.WebSocket ??= WebSocket;
  const folder = mkdtempSync(joinPath(tmpdir(), 'inorder-nats-'));
  const [port, webPort] = [await freePort(), await freePort()];
  const config = joinPath(folder, 'nats.conf');
  writeFileSync(
    config,
    `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${folder}" }\nwebsocket { listen: "127.0.0.1:${webPort}", no_tls: true }\n`,
  );
  let ready;
  const listening = new Promise((resolve) => (ready = resolve));
  const server = start(await natsServer(), ['-c', config], {
    onLine: (line) => line.includes('Server is ready') && ready(),
  });
  const ended = server.done.then(({ code }) => Promise.reject(new Error(`nats-server ended with ${code}`)));
  ended.catch(() => {});
  await Promise.race([listening, ended]);
  const url = `ws://127.0.0.1:${webPort}/`;
  // The producer does not go the faulty way.
  const connection = await wsconnect({ servers: url });
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [`${stream}.>`], storage: 'memory' });
  const js = jetstream(connection);
  return {
    url,
    publish: (state) => js.publish(`${stream}.job`, JSON.stringify(state)),
    async forget() {
      for await (const { name } of manager.consumers.list(stream)) await manager.consumers.delete(stream, name);
    },
    async stop() {
      await connection.close();
      await stop(server);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export async function follow(way, stream, show) {
  const connection = await wsconnect({
    servers: way.url,
    pingInterval: 5_000,
    maxPingOut: 2,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 500,
  });
  const consumer = await jetstream(connection).consumers.get(stream);
  const messages = await consumer.consume({ idle_heartbeat: 5_000 });
  (async () => {
    for await (const message of messages) show(message.json());
  })().catch(() => {});
  // The consumer is there when its first pull is.
  await new Promise((resolve) => setTimeout(resolve, 300));
  return async () => {
    await messages.close();
    await connection.close();
  };
}
