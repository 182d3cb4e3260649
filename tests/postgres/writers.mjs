// Writers that race on the same entities through any gateway, and remember what they were told.
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/** How long a refused post waits before it goes to the next gateway. */
const RETRY_MS = 20;
/** How long an answer is waited for. */
const ANSWER_MS = 10_000;
/** Chances, of an event to be posted again after it was answered, and to be an entity's last. */
const AGAIN = 0.02;
const LAST = 0.004;

/** A small generator of numbers from 0 to 1, the same for the same seed (xorshift32). */
export function seeded(seed) {
  let state = seed | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** Posts events with ids to one gateway after the other, each until it is stored. */
export class Writers {
  #agent = new Agent({ keepAlive: true, maxSockets: 256 });
  #gateways;
  #random;
  #next = 0;
  #open = [];
  #stopped = false;
  /** What was answered: id to entity, epoch, seq. */
  acknowledged = new Map();
  /** Every id that was ever sent. */
  sent = new Map();
  /** Ids whose second answer was not the first. */
  contradictions = [];
  retries = 0;
  again = 0;

  /** `topic` lists the entities; `count` of them are open at a time. */
  constructor(gateways, { seed, topic, count }) {
    this.#gateways = gateways;
    this.#random = seeded(seed);
    this.topic = topic;
    this.count = count;
  }

  get stored() {
    return this.acknowledged.size;
  }

  /** Posts once; the status and the body, or `undefined` when no answer came. */
  send(url, entity, body) {
    const text = JSON.stringify(body);
    return new Promise((resolve) => {
      const to = `${url}/entities/${entity}/events`;
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
      const asked = request(to, { method: 'POST', agent: this.#agent, headers, timeout: ANSWER_MS }, (answer) => {
        let said = '';
        answer.setEncoding('utf8').on('data', (part) => (said += part));
        answer.on('end', () => resolve({ status: answer.statusCode, body: JSON.parse(said) }));
        answer.on('error', () => resolve(undefined));
      });
      asked.on('timeout', () => asked.destroy());
      asked.on('error', () => resolve(undefined));
      asked.end(text);
    });
  }

  /** Posts until it is answered; then the answer. */
  async post(entity, event) {
    this.sent.set(event.id, { entity, event });
    let at = Math.floor(this.#random() * this.#gateways.length);
    for (;;) {
      const answer = await this.send(this.#gateways[at].url, entity, event);
      if (answer?.status === 200) {
        const { epoch, seq } = answer.body;
        const before = this.acknowledged.get(event.id);
        if (before && (before.seq !== seq || before.epoch !== epoch))
          this.contradictions.push({ id: event.id, before, seq, epoch });
        this.acknowledged.set(event.id, { entity, epoch, seq });
        return answer;
      }
      if (answer?.status === 409) {
        // Refused, so it must never be found in the log.
        this.sent.delete(event.id);
        return answer;
      }
      if (answer && answer.status !== 503)
        throw new Error(`${entity}: ${answer.status} ${JSON.stringify(answer.body)}`);
      this.retries += 1;
      at = (at + 1) % this.#gateways.length;
      await sleep(RETRY_MS);
    }
  }

  async #openOne() {
    this.#next += 1;
    const entity = `order/${this.#next}`;
    this.#open.push(entity);
    await this.post(this.topic, { id: `topic-${entity}`, data: { add: [entity] } });
  }

  /** Runs `writers` writers until `events` are stored or `stop`. */
  async run(writers, events) {
    this.#stopped = false;
    while (this.#open.length < this.count) await this.#openOne();
    const write = async (writer) => {
      for (let count = 1; !this.#stopped && this.stored < events; count += 1) {
        const entity = this.#open[Math.floor(this.#random() * this.#open.length)];
        const id = `${writer}-${this.stored}-${count}`;
        const last = this.#random() < LAST;
        const event = { id, data: { [`w${writer}`]: count, id }, ...(last ? { status: 'completed' } : {}) };
        const { status } = await this.post(entity, event);
        if (this.#random() < AGAIN && status === 200) {
          this.again += 1;
          await this.post(entity, event);
        }
        if ((last || status === 409) && this.#open.includes(entity)) {
          this.#open.splice(this.#open.indexOf(entity), 1);
          await this.#openOne();
        }
      }
    };
    await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
  }

  stop() {
    this.#stopped = true;
  }

  close() {
    this.#agent.destroy();
  }
}
