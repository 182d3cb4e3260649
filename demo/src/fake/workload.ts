import type { Random } from '../random';
import { isTerminal } from '../frames';
import type { Log, Stored } from './log';

/** Unfinished jobs at a time, and finished ones that stay in the topic. */
const OPEN = 8;
const FINISHED_SHOWN = 12;

/** Rounds of deployments that stay in the topic. */
const ROUNDS_SHOWN = 3;

/** How often it is looked at what is due, in milliseconds. */
const TICK_MS = 50;

const TASKS = [
  'Transcode a film',
  'Index a mailbox',
  'Train a model',
  'Render a scene',
  'Import orders',
  'Back up a disk',
] as const;
const FAULTS = ['the disk is full', 'the worker was lost', 'the input is damaged', 'it took too long'] as const;
const SERVICES = ['web', 'billing', 'search'] as const;

/** The deployments case: which of the three, and its status. */
const STEPS: readonly (readonly [which: number, status: string])[] = [
  [0, 'queued'],
  [1, 'queued'],
  [2, 'queued'],
  [0, 'building'],
  [1, 'building'],
  [2, 'building'],
  [1, 'failed'],
  [0, 'live'],
  [1, 'building'],
  [2, 'live'],
];

/** What a producer writes to. */
export type Append = (entity: string, status: string | undefined, data: unknown) => Stored | undefined;

/** The jobs and deployments that the gateway in the page runs by itself; the same that the real one runs. */
export class Workload {
  #due = new Map<string, number>();
  #nextJob = 1;
  #nextDeployment = 301;
  #step = 0;
  #stepDue = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly log: Log,
    private readonly append: Append,
    private readonly random: Random,
  ) {}

  start(): void {
    // A page that opens shows something at once.
    for (let i = 0; i < OPEN; i++) this.#addJob();
    for (const job of this.#members('topic/jobs').slice(0, 5)) {
      this.#due.set(job, 0);
      this.append(job, 'running', { worker: this.#worker(), progress: Math.floor(this.random.between(5, 70)) });
    }
    this.#timer = setInterval(() => this.#tick(performance.now()), TICK_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #members(topic: string): readonly string[] {
    return (this.log.state(topic).data as readonly string[] | null) ?? [];
  }

  #worker(): string {
    return `worker-${1 + Math.floor(this.random.between(0, 5))}`;
  }

  #finished(entity: string): boolean {
    return isTerminal(entity, this.log.state(entity).status);
  }

  #addJob(): void {
    const job = `job/${this.#nextJob}`;
    this.#nextJob += 1;
    this.append(job, 'queued', { name: this.random.pick(TASKS), progress: 0 });
    const finished = this.#members('topic/jobs').filter((name) => this.#finished(name));
    const remove = finished.slice(0, Math.max(0, finished.length - FINISHED_SHOWN));
    this.append('topic/jobs', undefined, { add: [job], remove });
  }

  #tick(now: number): void {
    const open = this.#members('topic/jobs').filter((name) => !this.#finished(name));
    if (open.length < OPEN && this.random.chance(TICK_MS / 600)) this.#addJob();
    for (const job of open) {
      const due = this.#due.get(job) ?? now + this.random.between(500, 4_000);
      this.#due.set(job, due);
      if (due > now) continue;
      this.#due.set(job, now + this.random.between(400, 1_600));
      this.#advance(job);
    }
    for (const job of this.#due.keys()) if (!open.includes(job)) this.#due.delete(job);
    if (now >= this.#stepDue) this.#deploy(now);
  }

  #advance(job: string): void {
    const { status, data } = this.log.state(job);
    if (status === 'queued') {
      if (this.random.chance(0.05)) this.append(job, 'cancelled', { note: 'cancelled before it began' });
      else this.append(job, 'running', { worker: this.#worker() });
      return;
    }
    const progress = Math.min(100, (data as { progress: number }).progress + Math.floor(this.random.between(3, 13)));
    if (progress === 100) this.append(job, 'completed', { progress });
    else if (this.random.chance(0.012)) this.append(job, 'failed', { error: this.random.pick(FAULTS) });
    else if (this.random.chance(0.006)) this.append(job, 'cancelled', { note: 'cancelled by its owner' });
    else this.append(job, 'running', { progress });
  }

  #deploy(now: number): void {
    const names = [0, 1, 2].map((which) => `deployment/dep_${this.#nextDeployment + which}`);
    if (this.#step === 0) {
      const members = this.#members('topic/deployments');
      const remove = members.slice(0, Math.max(0, members.length + 3 - ROUNDS_SHOWN * 3));
      this.append('topic/deployments', undefined, { add: names, remove });
    }
    const [which, status] = STEPS[this.#step] ?? [0, 'queued'];
    const name = names[which] ?? '';
    this.append(name, status, this.#deployment(name, which, status));
    this.#step = (this.#step + 1) % STEPS.length;
    this.#stepDue = now + (this.#step === 0 ? 10_000 : this.random.between(400, 1_600));
    if (this.#step === 0) this.#nextDeployment += 3;
  }

  #deployment(name: string, which: number, status: string): unknown {
    const before = this.log.state(name);
    if (status === 'queued') {
      const commit = Math.floor(this.random.between(0, 0x1000_0000)).toString(16).padStart(7, '0');
      return { service: SERVICES[which], commit, attempt: 1 };
    }
    if (status === 'failed') return { error: 'a test failed' };
    return before.status === 'failed' ? { error: null, attempt: 2, by: 'hand' } : {};
  }
}
