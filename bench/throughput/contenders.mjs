// Who takes part, each behind the same three lines: open, be fed, close.
//
// `dialect`: the protocol it speaks. `feed`: 'now' when it calls back before `receive` returns; 'turns' when a microtask
// must run between messages, as it does in a browser; 'drain' when it works through promises of its own: it is fed at
// once and the clock stops at its last callback, so that waiting costs it nothing.
import { WebPubSubClient } from '@azure/web-pubsub-client';
import { Centrifuge } from 'centrifuge';
import { createClient, model } from 'inorder';
import ReconnectingWebSocket from 'reconnecting-websocket';
import { Floor, FloorWithIds } from './floor.mjs';
import { AzureServer, CentrifugeServer, InorderServer } from './servers.mjs';
import { FakeSocket } from './socket.mjs';
import { BASE, nameOf } from './workloads.mjs';

/** Waits for all entities to have their first snapshot. */
async function joined(sink, entities) {
  const began = performance.now();
  while (sink.last.some((seq) => seq !== BASE)) {
    if (performance.now() - began > 60_000) throw new Error(`${entities} entities did not join within a minute`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const inorder = (flush, feed) => ({
  dialect: 'inorder',
  feed,
  server: (feed) => new InorderServer(feed),
  async open(url, entities, sink) {
    const client = createClient({
      url,
      WebSocket: FakeSocket,
      flush,
      // The floor asks at once, too.
      gap: { grace: 0 },
      models: { job: model() },
    });
    client.on('error', (error) => {
      throw error;
    });
    for (let i = 0; i < entities; i++) client.entity(nameOf(i)).subscribe((shown) => sink.see(i, shown.seq));
    await joined(sink, entities);
    return () => client.close();
  },
});

const floor = (Class) => ({
  dialect: 'inorder',
  feed: 'now',
  server: (feed) => new InorderServer(feed),
  async open(url, entities, sink) {
    const client = new Class(url, FakeSocket);
    for (let i = 0; i < entities; i++) client.subscribe(nameOf(i), (shown) => sink.see(i, shown.seq));
    await joined(sink, entities);
    return () => client.socket.close();
  },
});

/** Parse and call back: no order, no lookup. What no client can be faster than. */
const parse = (feed) => ({
  dialect: 'inorder',
  feed,
  unordered: true,
  server: (feed) => new InorderServer(feed),
  async open(url, entities, sink) {
    const socket = new FakeSocket(url);
    await new Promise((resolve) => (socket.onopen = resolve));
    const listener = (frame) => sink.see(0, frame.seq);
    socket.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      if (Array.isArray(frame)) for (let i = 0; i < frame.length; i++) listener(frame[i]);
      else listener(frame);
    };
    return () => socket.close();
  },
});

export const CONTENDERS = {
  parse: parse('now'),
  /** The same with a microtask after each message: what that costs by itself. */
  parseTurns: parse('turns'),
  floor: floor(Floor),
  floorWithIds: floor(FloorWithIds),
  sync: inorder('sync', 'now'),
  microtask: inorder('microtask', 'turns'),
  centrifuge: {
    dialect: 'centrifuge',
    feed: 'drain',
    server: () => new CentrifugeServer(),
    async open(url, entities, sink) {
      const client = new Centrifuge(url, { websocket: FakeSocket });
      const all = [];
      for (let i = 0; i < entities; i++) {
        const subscription = client.newSubscription(nameOf(i), { recoverable: true, positioned: true });
        subscription.on('publication', (publication) => sink.see(i, publication.offset));
        subscription.subscribe();
        all.push(subscription.ready());
      }
      client.connect();
      await Promise.all(all);
      return () => client.disconnect();
    },
  },
  azure: {
    dialect: 'azure',
    feed: 'now',
    unordered: true,
    server: () => new AzureServer(),
    async open(url, entities, sink) {
      // It has no option for the class.
      globalThis.WebSocket = FakeSocket;
      const client = new WebPubSubClient(url);
      // It has one listener for all groups; the application finds the entity's own.
      const listeners = new Map();
      for (let i = 0; i < entities; i++) listeners.set(nameOf(i), (message) => sink.see(0, message.sequenceId));
      client.on('group-message', ({ message }) => listeners.get(message.group)(message));
      await client.start();
      for (let i = 0; i < entities; i++) await client.joinGroup(nameOf(i));
      return () => client.stop();
    },
  },
  reconnecting: {
    dialect: 'inorder',
    feed: 'now',
    unordered: true,
    server: (feed) => new InorderServer(feed),
    async open(url, entities, sink) {
      const socket = new ReconnectingWebSocket(url, [], { WebSocket: FakeSocket });
      socket.onmessage = (event) => sink.see(0, JSON.parse(event.data).seq);
      await new Promise((resolve) => (socket.onopen = resolve));
      return () => socket.close();
    },
  },
};
