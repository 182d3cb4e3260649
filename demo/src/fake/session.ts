import { isTopic, framesOf, type Frame } from '../frames';
import type { FakeGateway } from './gateway';
import type { Stored } from './log';
import type { FakeSocket, Hearer } from './socket';

/** Events in one page of a replay (G6). */
const PAGE_EVENTS = 500;

/** How late a copy comes, and how far an event is pushed back, in milliseconds. */
const COPY_MS = [200, 3_000] as const;
const OVERTAKEN_MS = [150, 900] as const;

/** How many changes a lagging replica is behind, at most. */
const LAG = 5;

interface Wanted {
  readonly entity: string;
  readonly epoch?: string | null;
  readonly after?: number;
  readonly behind?: readonly (readonly [string, string | null, number | null])[];
}

interface Range {
  readonly entity: string;
  readonly epoch?: string;
  readonly from: number;
  readonly to?: number;
}

/** One socket's side of the gateway: what it follows, what it is told, and what goes wrong on the way. */
export class Session implements Hearer {
  readonly followed = new Set<string>();
  readonly topics = new Set<string>();
  #open = true;
  #silent = false;
  /** Frames keep their order; this is when the last one arrives. */
  #arrives = 0;
  #welcomed = false;

  constructor(
    private readonly gateway: FakeGateway,
    private readonly socket: FakeSocket,
  ) {
    this.#silent = gateway.random.chance(gateway.faults.half_open);
  }

  // --- Commands ------------------------------------------------------------------------------------------------------

  hear(text: string): void {
    if (this.#silent) return;
    for (const frame of framesOf(text)) this.#command(frame);
  }

  left(): void {
    this.#open = false;
    this.gateway.left(this);
  }

  /** The connection breaks. */
  cut(): void {
    this.left();
    this.socket.break();
  }

  /** The connection stays, and nothing comes through it any more. */
  goSilent(): void {
    this.#silent = true;
  }

  /** An old state of everything that is followed, as from a cache. */
  tellOldStates(): void {
    const members = [...this.topics].flatMap((topic) => this.members(topic));
    for (const entity of members) this.#snapshot(entity, undefined, this.#lag());
  }

  #lag(): number {
    return 1 + Math.floor(this.gateway.random.between(0, LAG));
  }

  #command(frame: Frame): void {
    const request = frame['request'];
    switch (frame.type) {
      case 'hello':
        if (this.#welcomed) return;
        this.#welcomed = true;
        return this.#tell({ type: 'welcome', heartbeat: this.gateway.heartbeat, can: ['replay', 'snapshot', 'heads'] });
      case 'subscribe':
        for (const wanted of frame['entities'] as readonly Wanted[]) this.#subscribe(request, wanted);
        return;
      case 'unsubscribe':
        for (const entity of frame['entities'] as readonly string[]) {
          this.followed.delete(entity);
          this.topics.delete(entity);
        }
        return;
      case 'replay':
        for (const range of frame['ranges'] as readonly Range[]) this.#replay(request, range);
        return;
      case 'snapshot':
        for (const entity of frame['entities'] as readonly string[]) this.#snapshot(entity, request);
        return;
      case 'heads': {
        const { log } = this.gateway;
        const heads = (frame['entities'] as readonly string[]).map((name) => [name, log.epoch, log.state(name).seq]);
        return this.#tell({ type: 'heads', heads, request });
      }
      case 'ping':
        return this.#tell({ type: 'pong', id: frame['id'] });
    }
  }

  #subscribe(request: unknown, { entity, epoch, after, behind = [] }: Wanted): void {
    const { log } = this.gateway;
    const known = this.followed.has(entity);
    this.followed.add(entity);
    if (isTopic(entity)) this.topics.add(entity);
    if (!known || !isTopic(entity)) this.#catchUp(request, entity, epoch ?? '', after);
    if (!isTopic(entity)) return;
    if (after === undefined || (epoch ?? '') !== log.epoch) {
      for (const member of this.members(entity)) this.#snapshot(member, undefined);
    }
    for (const [member, at, seq] of behind) {
      if (seq === null) this.#snapshot(member, request);
      else this.#catchUp(request, member, at ?? '', seq);
    }
  }

  #catchUp(request: unknown, entity: string, epoch: string, after: number | undefined): void {
    const { log } = this.gateway;
    const { seq: head } = log.state(entity);
    this.#tell({ type: 'subscribed', request, entity, epoch: log.epoch, head });
    if (after === undefined || epoch !== log.epoch) this.#snapshot(entity, request);
    else if (after < head) this.#replay(request, { entity, epoch, from: after + 1 });
    else if (after > head) this.#tell({ type: 'ahead', request, entity, epoch: log.epoch, head });
  }

  #replay(request: unknown, { entity, epoch = '', from, to }: Range): void {
    const { log, faults, random } = this.gateway;
    const head = log.state(entity).seq;
    const events = log.range(entity, from, Math.min(to ?? head, head));
    if (epoch !== log.epoch || events === undefined) {
      return this.#tell({ type: 'gone', request, entity, epoch: log.epoch, oldest: log.oldest(entity) });
    }
    if (random.chance(faults.refuse_replay)) {
      return this.#tell({ type: 'error', code: 'refused', message: 'Try again.', request, entity });
    }
    for (let at = 0; at === 0 || at < events.length; at += PAGE_EVENTS) {
      const page = events.slice(at, at + PAGE_EVENTS);
      const done = at + PAGE_EVENTS >= events.length;
      this.#tell({ type: 'replay', request, entity, epoch, events: page, done });
    }
  }

  #snapshot(entity: string, request: unknown, lag?: number): void {
    const { log, faults, random } = this.gateway;
    const stale = request !== undefined && !isTopic(entity) && random.chance(faults.stale_snapshot);
    const { seq, status, data } = log.state(entity, lag ?? (stale ? this.#lag() : 0));
    if (lag !== undefined && seq === 0) return;
    this.#tell({ type: 'snapshot', entity, epoch: log.epoch, seq, status, data, request });
  }

  // --- Pushes --------------------------------------------------------------------------------------------------------

  /** The members of a topic as the log has them. */
  members(topic: string): readonly string[] {
    return (this.gateway.log.state(topic).data as readonly string[] | null) ?? [];
  }

  /** Whether this socket wants to hear of an entity. */
  follows(entity: string): boolean {
    return this.followed.has(entity) || [...this.topics].some((topic) => this.members(topic).includes(entity));
  }

  /** A change was committed. */
  push(entity: string, event: Stored): void {
    if (!this.#welcomed || !this.follows(entity)) return;
    const { faults, random, log } = this.gateway;
    const frame = { type: 'event', entity, epoch: log.epoch, ...event };
    if (!random.chance(faults.drop)) {
      if (random.chance(faults.reorder)) this.#later(frame, random.between(...OVERTAKEN_MS));
      else this.#tell(frame);
    }
    if (random.chance(faults.duplicate)) this.#later(frame, random.between(...COPY_MS));
    if (!isTopic(entity)) {
      if (random.chance(faults.stale_snapshot)) this.#snapshot(entity, undefined, this.#lag());
      return;
    }
    const { add = [] } = (event.data ?? {}) as { add?: readonly string[] };
    for (const member of add) this.#snapshot(member, undefined);
  }

  /** The promised sign of life, with the heads of what changed lately (R21). */
  beat(changed: ReadonlySet<string>): void {
    const { log } = this.gateway;
    if (!this.#welcomed) return;
    const heads = [...changed]
      .filter((name) => this.follows(name))
      .map((name) => [name, log.epoch, log.state(name).seq]);
    this.#tell({ type: 'heartbeat', heads });
  }

  #tell(frame: object): void {
    const { faults, random } = this.gateway;
    const now = performance.now();
    this.#arrives = Math.max(this.#arrives, now + random.next() * faults.delay);
    this.#later(frame, this.#arrives - now);
  }

  #later(frame: object, delay: number): void {
    const text = JSON.stringify(frame);
    setTimeout(() => {
      if (this.#open && !this.#silent) this.socket.receive(text);
    }, delay);
  }
}
