// Posts changes as workers would, and tells the truth what was stored.
import { post } from '../gateway/post.mjs';
import { FINAL } from './truth.mjs';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Jobs that are open at a time, and finished ones that stay in the topic. */
const OPEN = 6;
const FINISHED = 6;

/** What is followed beside the topic. */
export const OTHERS = ['gauge/1', 'gauge/2', 'price/1', 'price/2'];

export class Producer {
  #ids = 0;
  #jobs = 0;
  #open = [];
  #finished = [];
  /** Taken out of the topic for a moment, unfinished. */
  #outside = [];
  #going = false;
  #ended = Promise.resolve();
  /** Changes that were stored. */
  stored = 0;

  constructor(url, truth, random) {
    this.url = url;
    this.truth = truth;
    this.random = random;
  }

  /** Posts one change; tried until it is stored, always under the same id. */
  async post(entity, status, data) {
    const { epoch, seq } = await post(this.url, entity, { id: `soak-${++this.#ids}`, status, data });
    this.stored += 1;
    this.truth.add(entity, epoch, { seq, status, data });
  }

  /** Posts a change every `ms` until `rest`. */
  run(ms) {
    this.#going = true;
    const go = async () => {
      while (this.#going) {
        await this.step();
        await pause(ms);
      }
    };
    this.#ended = go();
  }

  /** Stops when the change that is on its way is stored. */
  async rest() {
    this.#going = false;
    await this.#ended;
  }

  /** Changes everything once that may still change. */
  async touch() {
    for (const entity of OTHERS) await this.post(entity, undefined, { value: this.stored, note: entity });
    for (const { entity } of [...this.#open, ...this.#outside])
      await this.post(entity, undefined, { touched: this.stored });
  }

  async step() {
    const pick = (list) => list[Math.floor(this.random() * list.length)];
    if (this.random() < 0.35) {
      const entity = pick(OTHERS);
      await this.post(entity, undefined, { value: Math.round(this.random() * 1_000), note: entity });
      return;
    }
    if (this.#outside.length > 0 && this.random() < 0.2) {
      const job = this.#outside.shift();
      this.#open.push(job);
      await this.post('topic/jobs', undefined, { add: [job.entity] });
      return;
    }
    if (this.#open.length + this.#outside.length < OPEN) {
      const entity = `job/${++this.#jobs}`;
      await this.post(entity, 'queued', { name: `Job ${this.#jobs}`, progress: 0 });
      await this.post('topic/jobs', undefined, { add: [entity] });
      this.#open.push({ entity, progress: 0 });
      return;
    }
    if (this.#finished.length > FINISHED) {
      await this.post('topic/jobs', undefined, { remove: this.#finished.splice(0, 2) });
      return;
    }
    const job = pick(this.#open);
    if (!job) return;
    if (this.random() < 0.08) {
      this.#open.splice(this.#open.indexOf(job), 1);
      this.#outside.push(job);
      await this.post('topic/jobs', undefined, { remove: [job.entity] });
      return;
    }
    job.progress = Math.min(100, job.progress + 5 + Math.floor(this.random() * 20));
    const isOver = job.progress === 100;
    const status = isOver ? FINAL[Math.floor(this.random() * FINAL.length)] : pick(['running', 'waiting', undefined]);
    if (isOver) {
      this.#open.splice(this.#open.indexOf(job), 1);
      this.#finished.push(job.entity);
    }
    const more = this.random() < 0.3 ? { worker: this.random() < 0.5 ? null : `worker-${this.#ids % 7}` } : {};
    await this.post(job.entity, status, { progress: job.progress, ...more });
  }
}
