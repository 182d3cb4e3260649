// Pages: real clients of the package over real sockets, that dial another gateway each time.
import { setTimeout as sleep } from 'node:timers/promises';
import WebSocket from 'ws';
import { createClient, model } from '../../pkg/dist/index.js';
import { canonical } from './ledger.mjs';

/** How often a page is compared while it catches up. */
const LOOK_MS = 100;

export class Page {
  /** Per entity what was shown: the last position, and number to id of the events. */
  shown = new Map();
  violations = [];
  resets = 0;
  skips = 0;
  /** Holes in what was pushed; the client closes them, and a gateway must not make any. */
  gaps = 0;
  events = 0;
  dials = 0;
  errors = [];
  /** Bytes of messages, received and sent. */
  bytes = 0;
  sent = 0;
  /** Cursors that came with heartbeats. */
  cursors = 0;
  #topic;
  #socket;
  #away = Promise.resolve();

  constructor(name, gateways, topic, first = 0) {
    this.name = name;
    const page = this;
    class Counted extends WebSocket {
      constructor(url, protocols) {
        // The proxy's certificate is its own.
        super(url, protocols, { rejectUnauthorized: false });
        page.#socket = this;
        this.on('message', (data) => {
          page.bytes += data.length;
          page.cursors += data.includes('"cursors":[[') ? 1 : 0;
        });
      }

      send(text, ...more) {
        page.sent += Buffer.byteLength(text);
        super.send(text, ...more);
      }
    }
    this.gateways = gateways;
    this.client = createClient({
      // Never the same gateway twice in a row: no session is sticky.
      url: async () => {
        await this.#away;
        return this.gateways[(first + this.dials++) % this.gateways.length].socketUrl;
      },
      WebSocket: Counted,
      flush: 'sync',
      logger: null,
      backoff: { base: 200, cap: 1_000 },
      models: { order: model({ reduce: 'merge', reopen: 'epoch' }) },
    });
    this.client.on('change', (change) => this.#see(change));
    this.client.on('error', (error) => this.errors.push(`${error.code}: ${error.message}`));
    this.client.on('gap', () => (this.gaps += 1));
    this.#topic = this.client.topic(topic);
    this.#topic.subscribe(() => {});
  }

  #see({ entity, kind, seq, epoch, id, reset, skipped }) {
    const before = this.shown.get(entity);
    const wrong = (what) =>
      this.violations.push(`${this.name}: ${entity} ${what} at ${before?.seq} then ${seq} (${kind})`);
    const after = { seq, epoch, ids: before?.ids ?? new Map() };
    if (reset) {
      this.resets += 1;
      after.ids = new Map();
    } else if (before && before.epoch !== epoch) {
      wrong('changed its epoch without a reset');
    } else if (before && kind === 'event' && seq !== before.seq + 1) {
      wrong('has a hole or a repetition');
    } else if (before && kind === 'snapshot' && seq < before.seq) {
      wrong('went back without a reset');
    } else if (before && kind === 'snapshot' && seq > before.seq) {
      this.skips += 1;
      if (skipped?.[0] !== before.seq + 1 || skipped?.[1] !== seq) wrong('passed over numbers and did not say so');
    }
    if (kind === 'event') {
      this.events += 1;
      after.ids.set(seq, id);
    }
    this.shown.set(entity, after);
  }

  /** What it shows of every member of the topic. */
  members() {
    return this.#topic.getSnapshot();
  }

  /** Breaks its socket, and lets it dial no sooner than what is returned is called. */
  leave() {
    let back;
    this.#away = new Promise((resolve) => (back = resolve));
    this.#socket.terminate();
    return back;
  }

  /** How it differs from the truth, which is name to state as `GET /entities` has it; empty when it does not. */
  differences(truth) {
    const members = this.members();
    const wrong = [];
    if (this.#topic.sync !== 'live') {
      const { connection, retryAt } = this.client.status.getSnapshot();
      const due = retryAt === undefined ? '' : `, to dial in ${retryAt - Date.now()} ms`;
      return [`the topic is ${this.#topic.sync}, the client ${connection}${due}; ${this.errors.slice(-3).join('; ')}`];
    }
    if (members.size !== truth.size) wrong.push(`${members.size} members instead of ${truth.size}`);
    for (const [name, { seq, epoch, status, data }] of truth) {
      const shown = members.get(name);
      if (!shown) wrong.push(`${name} is missing`);
      else if (shown.sync !== 'live' && shown.sync !== 'final') wrong.push(`${name} is ${shown.sync}`);
      else if (shown.seq !== seq || shown.epoch !== epoch)
        wrong.push(`${name} at ${shown.epoch} ${shown.seq}, not ${epoch} ${seq}`);
      else if (shown.status !== status) wrong.push(`${name} is ${shown.status}, not ${status}`);
      else if (canonical(shown.state) !== canonical(data)) wrong.push(`${name} has another state`);
    }
    return wrong;
  }

  /** Waits until it shows the truth; what still differs after that time. */
  async settle(truth, patience, look = LOOK_MS) {
    for (const until = Date.now() + patience; ; await sleep(look)) {
      const wrong = this.differences(truth);
      if (wrong.length === 0 || Date.now() > until) return wrong;
    }
  }

  close() {
    this.client.close();
  }
}

/** The members of a topic as a gateway tells them. */
export async function readTruth(gateway, topic) {
  const truth = new Map();
  for (let after = ''; ;) {
    const { entities, next } = await gateway.get(
      `/entities?topic=${encodeURIComponent(`topic/${topic}`)}&after=${encodeURIComponent(after)}`,
    );
    for (const entity of entities) truth.set(entity.entity, entity);
    if (!next) return truth;
    after = next;
  }
}
