// What entities cost. The page only does; the heap is read from outside, by ./run.mjs.
import { createClient, model } from 'inorder';
import { serve } from '../throughput/socket.mjs';
import { FakeSocket, socketTo } from '../throughput/socket.mjs';

const URL_OF = 'ws://footprint.bench.test';
const EPOCH = 'k3';

/** Entities per message of the server. */
const BATCH = 1_000;

// The wasm's memory is the one thing that the package does not show.
let memory;
const { Instance } = WebAssembly;
WebAssembly.Instance = new Proxy(Instance, {
  construct(target, given) {
    const instance = new target(...given);
    if (instance.exports.memory) ({ memory } = instance.exports);
    return instance;
  },
});
globalThis.wasmBytes = () => memory?.buffer.byteLength ?? 0;

const task = () => new Promise((resolve) => setTimeout(resolve));

/** Answers every `subscribe` at once; a topic is empty. */
const server = {
  sent(socket, text) {
    const { type, request, entities } = JSON.parse(text);
    const later = (frame) => setTimeout(() => socket.receive(JSON.stringify(frame)));
    if (type === 'hello') later({ type: 'welcome', heartbeat: 60, can: ['replay', 'snapshot', 'heads'] });
    if (type !== 'subscribe') return;
    later(
      entities.flatMap(({ entity }) => [
        { type: 'subscribed', request, entity, epoch: EPOCH, head: 0 },
        { type: 'snapshot', request, entity, epoch: EPOCH, seq: 0, data: entity.startsWith('topic/') ? [] : null },
      ]),
    );
  },
};
serve(URL_OF, server);

let client;

async function connect(options) {
  client = createClient({ url: URL_OF, WebSocket: FakeSocket, models: { job: model() }, ...options });
  client.on('error', (error) => {
    throw error;
  });
  // Somebody wants the topic, nobody looks at its map.
  client.topic('all').subscribe({});
  while (client.topic('all').sync !== 'live') await task();
}

const hex = (number, width) => number.toString(16).padStart(width, '0');

const NAMES = {
  short: (i) => `job/${String(i).padStart(6, '0')}`,
  uuid: (i) => {
    const a = Math.imul(i, 0x9e3779b1) >>> 0;
    const b = Math.imul(i ^ 0x5bd1e995, 0x85ebca6b) >>> 0;
    return `job/${hex(a, 8)}-${hex(b >>> 16, 4)}-4${hex(b & 0xfff, 3)}-a${hex(a & 0xfff, 3)}-${hex(i, 12)}`;
  },
};

let topicSeq = 0;

/** Makes `count` entities members of the topic. */
async function track(names, count) {
  const socket = socketTo(URL_OF);
  for (let at = 0; at < count; at += BATCH) {
    const add = Array.from({ length: Math.min(BATCH, count - at) }, (_, i) => names(at + i));
    socket.receive(
      JSON.stringify([
        { type: 'event', entity: 'topic/all', epoch: EPOCH, seq: ++topicSeq, data: { add } },
        ...add.map((entity) => ({ type: 'snapshot', entity, epoch: EPOCH, seq: 1, status: 'running', data: null })),
      ]),
    );
    await task();
  }
}

globalThis.tracked = {
  begin: () => connect(),
  grow: (kind, count) => track(NAMES[kind], count),
  /** All of them in the map that a listener of the topic gets, and each with a listener: what looking costs. */
  look: () => void client.topic('all').subscribe(() => {}),
};

/** An event that is too early, about 110 bytes long. */
const early = (entity, seq) =>
  `{"type":"event","entity":"${NAMES.short(entity)}","epoch":"${EPOCH}","seq":${seq},"data":{"progress":${seq / 1e4},"stage":"compile"}}`;

let payloads;

globalThis.held = {
  async begin() {
    // None is asked for while we count.
    await connect({ gap: { grace: 3_600_000 } });
    await track(NAMES.short, 100);
  },
  /** The payloads alone, parsed and kept in a list. */
  alone(perEntity) {
    payloads = new Array(100 * perEntity).fill(null);
    for (let i = 0; i < payloads.length; i++) payloads[i] = JSON.parse(early(i % 100, 3 + ((i / 100) | 0)));
  },
  forget: () => (payloads = undefined),
  async hold(perEntity) {
    const socket = socketTo(URL_OF);
    for (let i = 0; i < 100 * perEntity; i++) socket.receive(early(i % 100, 3 + ((i / 100) | 0)));
    await task();
    return client.stats().held;
  },
};

globalThis.churn = {
  begin: () => connect({ linger: 0 }),
  /** Entities that come and go: each has a name of its own, is joined, and is left for good. */
  async go(from, count) {
    for (let at = from; at < from + count; at += BATCH) {
      const stops = Array.from({ length: BATCH }, (_, i) => client.entity(`job/${at + i}`).subscribe(() => {}));
      await task();
      await task();
      stops.forEach((stop) => stop());
      await task();
    }
  },
};
