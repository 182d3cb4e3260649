// The workloads: which events, in which frames, in which order. The same numbers give the same events.
//
// A pass is a list of chunks of 500 frames' worth of events. A chunk has the same entities, sizes and faults in every
// pass, only its numbers go on, so that passes can be compared with each other.

/** Events per chunk, duplicates and dropped ones included. */
export const CHUNK = 500;

/** The position of every entity when the feed begins: numbers keep their width while it runs. */
export const BASE = 100_000;

export const EPOCH = 'k3';

/** Frames that pass before a replay is answered. */
export const LATENCY = 20;

const ORDERED = ['floor', 'sync', 'microtask'];
const PEERS = ['centrifuge', 'azure', 'reconnecting'];

/** `bytes`: of one event as inorder's frame. */
const BASIC = { entities: 200, bytes: 150, batch: 1, duplicates: 0, gaps: 0, ids: false, chunks: 40 };

export const WORKLOADS = {
  'W1 150 B': { ...BASIC, contenders: ['parse', 'parseTurns', ...ORDERED, ...PEERS] },
  'W1 600 B': { ...BASIC, bytes: 600, contenders: ['parse', ...ORDERED, ...PEERS] },
  W2: { ...BASIC, batch: 50, contenders: ['parse', ...ORDERED, 'centrifuge'] },
  'W3 30 %': { ...BASIC, duplicates: 0.3, contenders: ['parse', ...ORDERED] },
  'W3 70 %': { ...BASIC, duplicates: 0.7, contenders: ['parse', ...ORDERED] },
  W4: { ...BASIC, entities: 100_000, contenders: ['parse', ...ORDERED] },
  W5: { ...BASIC, entities: 20, gaps: 0.01, contenders: ['parse', ...ORDERED] },
  'W1 150 B, ids': { ...BASIC, ids: true, bytes: 194, contenders: ['parse', ...ORDERED, 'floorWithIds'] },
  'W2, ids': { ...BASIC, ids: true, bytes: 194, batch: 50, contenders: ['parse', ...ORDERED, 'floorWithIds'] },
  'W3 30 %, ids': {
    ...BASIC,
    ids: true,
    bytes: 194,
    duplicates: 0.3,
    contenders: ['parse', ...ORDERED, 'floorWithIds'],
  },
};

/** A small seeded generator of numbers from 0 to 1 (mulberry32). */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}

export const nameOf = (entity) => `job/${String(entity).padStart(6, '0')}`;

const STAGES = ['checkout', 'install', 'compile', 'test', 'package', 'upload', 'deploy', 'verify'];
const WORDS = 'lint bundle sign scan cache pull push merge retry notify archive restore index warm drain'.split(' ');

/** A payload as servers send it: short keys, numbers, words; as long as it has to be. */
function payload(bytes, next) {
  const parts = [`"progress":${next().toFixed(4)}`, `"stage":"${STAGES[(next() * STAGES.length) | 0]}"`];
  let length = parts.join().length + 2;
  for (let i = 0; ; i++) {
    const number = i % 2 === 0;
    const key = `${WORDS[i % WORDS.length]}${i < WORDS.length ? '' : (i / WORDS.length) | 0}`;
    const part = number ? `"${key}":${(next() * 9_000 + 1_000) | 0}` : `"${key}":"${WORDS[(next() * 15) | 0]}"`;
    if (length + part.length + 1 > bytes) break;
    parts.push(part);
    length += part.length + 1;
  }
  return `{${parts.join()}}`;
}

function uuid(next) {
  const hex = () => ((next() * 0x1_0000_0000) >>> 0).toString(16).padStart(8, '0');
  const [a, b, c, d] = [hex(), hex(), hex(), hex()];
  return `${a}-${b.slice(0, 4)}-4${b.slice(5)}-a${c.slice(1, 4)}-${c.slice(4)}${d}`;
}

/** One event as a server of inorder writes it. */
const write = ({ name, seq, id, data }) =>
  `{"type":"event","entity":"${name}","epoch":"${EPOCH}","seq":${seq},${id ? `"id":"${id}",` : ''}"status":"running","data":${data}}`;

/** Makes the passes of a workload, one after the other. */
export class Feed {
  constructor(workload) {
    this.workload = workload;
    this.seqs = new Float64Array(workload.entities).fill(BASE);
    /** Events of the pass that were never sent, by entity and number. */
    this.log = new Map();
    this.passes = 0;
    const envelope = write({ name: nameOf(0), seq: BASE, id: workload.ids ? uuid(random(1)) : undefined, data: '' });
    this.room = workload.bytes - envelope.length;
  }

  /** Per chunk: the events in the order of sending, how many are new, and which are only in the server's log. */
  pass() {
    this.log.clear();
    this.passes++;
    return Array.from({ length: this.workload.chunks }, (_, chunk) => this.chunk(chunk));
  }

  chunk(chunk) {
    const { entities, duplicates, gaps, ids } = this.workload;
    // Its shape is the same in each pass; its ids are not.
    const next = random(chunk + 1);
    const nextId = random((this.passes << 16) + chunk + 77);
    const sent = [];
    const dropped = [];
    let fresh = 0;
    const recent = [];
    while (sent.length + dropped.length < CHUNK) {
      if (recent.length > 0 && next() < duplicates) {
        sent.push(recent[(next() * recent.length) | 0]);
        continue;
      }
      const entity = (next() * entities) | 0;
      const event = {
        entity,
        name: nameOf(entity),
        seq: ++this.seqs[entity],
        data: payload(this.room, next),
        id: ids ? uuid(nextId) : undefined,
      };
      fresh++;
      recent.push(event);
      if (recent.length > 50) recent.shift();
      if (next() < gaps) dropped.push(event);
      else sent.push(event);
    }
    // A loss is noticed by what follows, so something must follow within the chunk.
    for (const event of dropped) {
      if (sent.some(({ entity, seq }) => entity === event.entity && seq > event.seq)) {
        this.log.set(`${event.name} ${event.seq}`, event);
      } else sent.push(event);
    }
    return { events: sent, fresh };
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
/** A string as the browser makes it of a message: in one piece. */
const flat = (text) => decoder.decode(encoder.encode(text));

/** How each protocol writes a batch of events. */
export const DIALECTS = {
  inorder: (events) => (events.length === 1 ? write(events[0]) : `[${events.map(write).join()}]`),
  centrifuge: (events) =>
    events
      .map(({ name, seq, data }) => `{"push":{"channel":"${name}","pub":{"data":${withStatus(data)},"offset":${seq}}}}`)
      .join('\n'),
  azure: ([{ name, data, number }]) =>
    `{"sequenceId":${number},"type":"message","from":"group","group":"${name}","dataType":"json","data":${withStatus(data)}}`,
};

/** Protocols without a field for it carry it in the data. */
const withStatus = (data) => `{"status":"running",${data.slice(1)}`;

/** The messages of a chunk in a protocol's words. */
export function messages(dialect, events, batch) {
  const texts = [];
  for (let at = 0; at < events.length; at += batch) {
    texts.push(flat(DIALECTS[dialect](events.slice(at, at + batch))));
  }
  return texts;
}

export { write };
