import type { WebSocketClass } from 'inorder';
import { CALM, type FaultAction, type Faults } from '../faults';
import { Random } from '../random';
import type { Source, TrueState } from '../source';
import { Log, type Stored } from './log';
import { Session } from './session';
import { FakeSocket, type Peer } from './socket';
import { Workload } from './workload';

/** Seconds between heartbeats: short, since people watch. */
const HEARTBEAT_S = 5;

/** How long the server is away after a crash, in milliseconds. */
const AWAY_MS = 1_500;

/** How often a backup is taken, and how many are kept: what is restored is some seconds old. */
const BACKUP_MS = 3_000;
const BACKUPS = 3;

/** The topics of the workload. */
const TOPICS = ['topic/jobs', 'topic/deployments'];

/** Changes per entity that are left by a trim. */
const KEPT = 2;

/** Intervals whose changes a heartbeat names (R21). */
const BEATS_REMEMBERED = 3;

/**
 * A gateway without a server: the same frames, the same faults, in the page.
 *
 * It lets the page be shown from plain files. The log, the sessions and the faults are as in the real one, only smaller.
 */
export class FakeGateway implements Peer {
  readonly log = new Log();
  readonly heartbeat = HEARTBEAT_S;
  faults: Faults;
  random: Random;
  #sessions = new Set<Session>();
  #awayUntil = 0;
  #backups: (() => void)[] = [];
  #changed: Set<string>[] = [new Set()];
  #crashing = false;
  #timers: ReturnType<typeof setInterval>[] = [];
  #workload: Workload;

  constructor(seed: number) {
    this.faults = { seed, ...CALM };
    this.random = new Random(seed);
    this.#workload = new Workload(this.log, (...change) => this.append(...change), new Random(seed ^ 0x5eed));
  }

  /** Begins to run jobs and to beat. */
  start(): void {
    this.#workload.start();
    this.#backups.push(this.log.backup());
    this.#timers.push(
      setInterval(() => this.#beat(), HEARTBEAT_S * 1_000),
      setInterval(() => this.#backup(), BACKUP_MS),
      setInterval(() => this.#chance(), 1_000),
    );
  }

  stop(): void {
    this.#workload.stop();
    this.#timers.forEach(clearInterval);
    for (const session of this.#sessions) session.cut();
  }

  connect(socket: FakeSocket): Session | undefined {
    if (performance.now() < this.#awayUntil) return undefined;
    const session = new Session(this, socket);
    this.#sessions.add(session);
    return session;
  }

  left(session: Session): void {
    this.#sessions.delete(session);
  }

  /** Commits a change and pushes it, unless it crashes between the two. */
  append(entity: string, status: string | undefined, data: unknown): Stored | undefined {
    if (performance.now() < this.#awayUntil) return undefined;
    const event = this.log.append(entity, status, data);
    if (!event) return undefined;
    for (const changed of this.#changed) changed.add(entity);
    if (this.#crashing) {
      this.#crashing = false;
      this.#goAway();
    } else {
      for (const session of this.#sessions) session.push(entity, event);
    }
    return event;
  }

  /** Does something once. */
  act(action: FaultAction): void {
    const sessions = [...this.#sessions];
    if (action === 'cut') sessions.forEach((session) => session.cut());
    else if (action === 'half_open') sessions.forEach((session) => session.goSilent());
    else if (action === 'crash') this.#crashing = true;
    else if (action === 'trim') this.log.trim(KEPT);
    else {
      this.#backups[0]?.();
      this.#goAway();
    }
  }

  /** The members of both topics as they are. */
  truth(): ReadonlyMap<string, TrueState> {
    const { log } = this;
    const members = TOPICS.flatMap((topic) => (log.state(topic).data as readonly string[] | null) ?? []);
    return new Map(members.map((entity) => [entity, { entity, epoch: log.epoch, ...log.state(entity) }]));
  }

  #goAway(): void {
    this.#awayUntil = performance.now() + AWAY_MS;
    for (const session of [...this.#sessions]) session.cut();
  }

  #beat(): void {
    const changed = new Set(this.#changed.flatMap((names) => [...names]));
    for (const session of this.#sessions) session.beat(changed);
    this.#changed = [new Set(), ...this.#changed.slice(0, BEATS_REMEMBERED - 1)];
  }

  #backup(): void {
    this.#backups = [...this.#backups, this.log.backup()].slice(-BACKUPS);
  }

  /** The faults that are a matter of chance per second. */
  #chance(): void {
    for (const session of [...this.#sessions]) {
      if (this.random.chance(this.faults.cut)) session.cut();
      else if (this.random.chance(this.faults.half_open)) session.goSilent();
    }
  }
}

/** Starts a gateway in the page. */
export function fakeSource(seed: number): Source {
  const gateway = new FakeGateway(seed);
  gateway.start();
  class Socket extends FakeSocket {
    constructor(url: string) {
      super(gateway, url);
    }
  }
  return {
    url: 'ws://in-the-page/ws',
    WebSocket: Socket satisfies WebSocketClass,
    truth: () => Promise.resolve(gateway.truth()),
    faults: {
      read: () => Promise.resolve({ ...gateway.faults }),
      write: (faults) => {
        gateway.faults = { ...gateway.faults, ...faults };
        if (faults.seed !== undefined) gateway.random = new Random(faults.seed);
        return Promise.resolve({ ...gateway.faults });
      },
      act: (action) => Promise.resolve(gateway.act(action)),
    },
  };
}
