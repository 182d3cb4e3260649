import { post } from '../gateway/post.mjs';

/** One change as the log has it. */
export interface Logged {
  readonly seq: number;
  readonly status?: string;
  readonly data?: Record<string, unknown>;
}

/** What an entity is after a change. */
export interface State {
  readonly status: string | undefined;
  readonly data: Record<string, unknown>;
}

/** The truth as `GET /entities` tells it. */
export interface Truth extends State {
  readonly entity: string;
  readonly epoch: string;
  readonly seq: number;
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Jobs that are open at a time. */
const OPEN = 8;

/** Posts changes of jobs as a worker would, and remembers what it posted: the log, by code of our own. */
export class Producer {
  #ids = 0;
  #next = 1;
  #open: { entity: string; progress: number; running: boolean }[] = [];
  #stopped: Promise<void> | undefined;
  #going = false;

  /** `stored` is told what the log took, and where. */
  constructor(
    private readonly url: string,
    private readonly random: () => number,
    private readonly stored: (entity: string, epoch: string, change: Logged) => void = () => undefined,
  ) {}

  /** Posts one change. Tried until it is stored, always with the same id. */
  async post(entity: string, status: string | undefined, data: Record<string, unknown>): Promise<void> {
    this.#ids += 1;
    const { epoch, seq } = await post(this.url, entity, { id: `t${this.#ids}`, status, data });
    this.stored(entity, epoch, { seq, data, ...(status === undefined ? {} : { status }) });
  }

  /** Runs jobs until `stop`, one change each `every` milliseconds. */
  run(every: number): void {
    this.#going = true;
    const go = async (): Promise<void> => {
      while (this.#going) {
        await this.step();
        await pause(every);
      }
    };
    this.#stopped = go();
  }

  /** Stops when the change that is on its way is stored. */
  async stop(): Promise<void> {
    this.#going = false;
    await this.#stopped;
  }

  /** One change of one job; now and then a new one. */
  async step(): Promise<void> {
    if (this.#open.length < OPEN) {
      const entity = `job/${this.#next}`;
      this.#next += 1;
      await this.post(entity, 'queued', { name: `Job ${this.#next - 1}`, progress: 0 });
      await this.post('topic/jobs', undefined, { add: [entity] });
      this.#open.push({ entity, progress: 0, running: false });
      return;
    }
    const index = Math.floor(this.random() * this.#open.length);
    const job = this.#open[index];
    if (!job) return;
    if (!job.running) {
      job.running = true;
      await this.post(job.entity, 'running', { worker: `worker-${index}` });
      return;
    }
    job.progress = Math.min(100, job.progress + 5 + Math.floor(this.random() * 20));
    const failed = this.random() < 0.05;
    const status = failed ? 'failed' : job.progress === 100 ? 'completed' : 'running';
    if (status !== 'running') this.#open.splice(index, 1);
    await this.post(job.entity, status, failed ? { error: 'the disk is full' } : { progress: job.progress });
  }
}

/** A small generator of numbers from 0 to 1, the same for the same seed (xorshift32). */
export function seeded(seed: number): () => number {
  let state = seed | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** The members of the page's topics, as the gateway has them. */
export async function readTruth(url: string): Promise<Map<string, Truth>> {
  const truth = new Map<string, Truth>();
  for (const topic of ['topic/jobs', 'topic/deployments']) {
    const response = await fetch(`${url}/entities?topic=${encodeURIComponent(topic)}`);
    const { entities } = (await response.json()) as { entities: Truth[] };
    for (const entity of entities) truth.set(entity.entity, entity);
  }
  return truth;
}
