// A server with a log, as far as one client needs it, and the wire to it: what the client is told is always true, so
// that whatever it shows wrongly is its own doing.
import type { Frame } from '../server.js';

/** One change, as it was stored. */
export interface Stored {
  readonly seq: number;
  readonly status?: string | undefined;
  readonly data: any;
}

/** How long a frame is on its way, in milliseconds. */
const WAY_MS = 2;

export const EPOCH = 'E';

export class Server {
  private readonly log = new Map<string, Stored[]>();
  readonly lines: Line[] = [];

  /** What an entity's state is after a change. */
  state(entity: string, seq: number): any {
    const events = this.events(entity).slice(0, seq);
    if (entity.startsWith('topic/')) return events.flatMap(({ data }) => data.add);
    return events.length === 0 ? null : Object.assign({}, ...events.map(({ data }) => data));
  }

  status(entity: string, seq: number): string | undefined {
    return this.events(entity)[seq - 1]?.status;
  }

  events(entity: string): Stored[] {
    let events = this.log.get(entity);
    if (!events) this.log.set(entity, (events = []));
    return events;
  }

  head(entity: string): number {
    return this.events(entity).length;
  }

  /** Stores a change and sends it to who follows; `lost` ones are stored only. */
  commit(entity: string, data: object, { status, lost = false }: { status?: string; lost?: boolean } = {}): void {
    const events = this.events(entity);
    const before = events.at(-1)?.status;
    const event = { seq: events.length + 1, status: status ?? before, data };
    events.push(event);
    if (lost) return;
    for (const line of this.lines) {
      if (!line.follows.has(entity)) continue;
      line.tell({ type: 'event', entity, epoch: EPOCH, ...event });
      if (entity.startsWith('topic/')) for (const member of (data as any).add ?? []) this.join(line, member);
    }
  }

  /** Answers a frame of the client. */
  answer(line: Line, frame: Frame): void {
    switch (frame['type']) {
      case 'hello':
        return line.tell({ type: 'welcome', can: ['replay', 'snapshot'] });
      case 'ping':
        return line.tell({ type: 'pong', id: frame['id'] });
      case 'subscribe':
        for (const { entity, after, behind = [] } of frame['entities'])
          this.subscribe(line, frame, entity, after, behind);
        return;
      case 'unsubscribe':
        for (const entity of frame['entities']) line.follows.delete(entity);
        return;
      case 'replay':
        for (const { entity, from, to } of frame['ranges']) this.replay(line, frame['request'], entity, from, to);
        return;
      case 'snapshot':
        for (const entity of frame['entities']) this.snapshot(line, entity, frame['request']);
    }
  }

  private subscribe(line: Line, { request }: Frame, entity: string, after: number | undefined, behind: any[]): void {
    line.follows.add(entity);
    if (after === undefined) this.snapshot(line, entity, request);
    else {
      line.tell({ type: 'subscribed', request, entity, epoch: EPOCH, head: this.head(entity) });
      if (after < this.head(entity)) this.replay(line, request, entity, after + 1);
    }
    if (!entity.startsWith('topic/')) return;
    const places = new Map<string, number>(behind.map(([name, , seq]) => [name, seq]));
    for (const member of this.state(entity, this.head(entity))) {
      const place = places.get(member);
      if (typeof place !== 'number') this.join(line, member);
      else {
        line.follows.add(member);
        this.replay(line, request, member, place + 1);
      }
    }
  }

  private join(line: Line, member: string): void {
    line.follows.add(member);
    this.snapshot(line, member);
  }

  private replay(line: Line, request: number, entity: string, from: number, to = this.head(entity)): void {
    const events = this.events(entity).slice(from - 1, to);
    line.tell({ type: 'replay', request, entity, epoch: EPOCH, events, done: true });
  }

  private snapshot(line: Line, entity: string, request?: number): void {
    const seq = this.head(entity);
    const status = this.status(entity, seq);
    line.tell({ type: 'snapshot', request, entity, epoch: EPOCH, seq, status, data: this.state(entity, seq) });
  }
}

/** A socket of the client; the server is its other end. */
export class Line {
  binaryType = 'blob';
  readyState = 0;
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  onerror: ((event: any) => void) | null = null;
  readonly follows = new Set<string>();
  closed: number | undefined;
  /** Nothing comes through any more, and nobody says so. */
  isMute = false;

  constructor(private readonly server: Server) {
    server.lines.push(this);
    setTimeout(() => {
      if (this.readyState !== 0) return;
      this.readyState = 1;
      this.onopen?.({});
    }, WAY_MS);
  }

  send(text: string): void {
    if (this.readyState !== 1) throw new Error('the socket is not open');
    setTimeout(() => !this.isMute && this.readyState === 1 && this.server.answer(this, JSON.parse(text)), WAY_MS);
  }

  close(code?: number): void {
    this.readyState = 3;
    this.closed ??= code;
  }

  tell(frame: Frame): void {
    setTimeout(
      () => !this.isMute && this.readyState === 1 && this.onmessage?.({ data: JSON.stringify(frame) }),
      WAY_MS,
    );
  }

  /** It breaks. */
  cut(): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose?.({ code: 1006 });
  }

  /** Does the client listen to it? */
  get isHeard(): boolean {
    return this.onmessage !== null && this.readyState < 2;
  }
}
