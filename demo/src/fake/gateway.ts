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

/** How long the server is away after a crash, or while a backup is restored, in milliseconds. */
const AWAY_MS = 1_500;

/** Changes per entity that a restored backup lacks. */
const LACKING = 3;

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
  #changed: Set<string>[] = [new Set()];
  #timers: ReturnType<typeof setInterval>[] = [];
  #workload: Workload;
  #crashing = false;

  constructor(seed: number) {
    this.faults = { seed, ...CALM };
    this.random = new Random(seed);
    this.#workload = new Workload(this.log, (...change) => this.append(...change), new Random(seed ^ 0x5eed));
  }

  /** Begins to run jobs and to beat. */
  start(): void {
    this.#workload.start();
    this.#timers.push(
      setInterval(() => this.#beat(), HEARTBEAT_S * 1_000),
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
    switch (action) {
      case 'cut':
        return sessions.forEach((session) => session.cut());
      case 'half_open':
        return sessions.forEach((session) => session.goSilent());
      case 'crash':
        this.#crashing = true;
        return;
      case 'stale_snapshot':
        return sessions.forEach((session) => session.tellOldStates());
      case 'trim':
        return this.log.trim(KEPT);
      case 'new_epoch':
        this.log.restore(LACKING);
        return this.#goAway();
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

  /** The faults that are a matter of chance per second. */
  #chance(): void {
    const { faults, random } = this;
    if (random.chance(faults.crash)) this.act('crash');
    for (const session of [...this.#sessions]) {
      if (random.chance(faults.cut)) session.cut();
      else if (random.chance(faults.half_open)) session.goSilent();
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
      write: (faults) => {
        gateway.faults = faults;
        gateway.random = new Random(faults.seed);
        return Promise.resolve();
      },
      act: (action) => Promise.resolve(gateway.act(action)),
    },
  };
}
