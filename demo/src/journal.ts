import type { Change, Sync } from 'inorder';
import { isReplay, isTopic, type EventFrame, type Frame, type ReplayFrame, type SnapshotFrame } from './frames';

export type Lane = 'received' | 'replayed' | 'held' | 'applied' | 'dropped';

/** Something that happened to one change on its way to the screen. */
export interface Mark {
  readonly lane: Lane;
  readonly kind: 'event' | 'snapshot';
  readonly seq: number;
  readonly status: string | undefined;
  readonly note?: string;
  /** In milliseconds of `performance.now()`. */
  readonly at: number;
  /** When it stopped being held; `undefined` while it is. */
  until?: number;
}

/** Numbers that were missing for a while. */
export interface Gap {
  readonly from: number;
  to: number;
  readonly at: number;
  /** When the last of them was there, or no longer needed. */
  healed?: number;
}

/** A time in which an entity could not be trusted to be up to date. */
export interface Recovery {
  readonly entity: string;
  readonly at: number;
  readonly took: number;
}

/** What is remembered per entity, and for how long. */
const MARKS = 1_000;
const REMEMBERED_MS = 120_000;

/** The history of one entity on this page. */
export class Course {
  marks: Mark[] = [];
  gaps: Gap[] = [];
  readonly held = new Map<string, Mark>();
  epoch = '';
  seq = -1;
  sync: Sync = 'joining';
  troubledAt: number | undefined;

  add(mark: Mark): void {
    this.marks.push(mark);
    if (this.marks.length > MARKS) this.marks.shift();
    const oldest = mark.at - REMEMBERED_MS;
    if ((this.marks[0]?.at ?? oldest) < oldest) this.marks = this.marks.filter(({ at }) => at >= oldest);
    if ((this.gaps[0]?.at ?? oldest) < oldest)
      this.gaps = this.gaps.filter(({ at, healed }) => !healed || at >= oldest);
  }

  get gap(): Gap | undefined {
    const last = this.gaps.at(-1);
    return last?.healed === undefined ? last : undefined;
  }
}

function release(course: Course, now: number): void {
  for (const mark of course.held.values()) mark.until = now;
  course.held.clear();
}

/**
 * Writes down what the socket brought and what the client made of it.
 *
 * It sees the frames before and after the client does, and the client's own reports of changes; what was neither shown
 * nor covered is held.
 */
export class Journal {
  readonly #courses = new Map<string, Course>();
  readonly #shown = new Set<string>();
  recoveries: Recovery[] = [];

  of(entity: string): Course {
    let course = this.#courses.get(entity);
    if (!course) {
      course = new Course();
      this.#courses.set(entity, course);
    }
    return course;
  }

  /** The client says that nothing of this entity waits any more. */
  released(entity: string, now: number): void {
    const course = this.#courses.get(entity);
    if (course) release(course, now);
  }

  /** Forgets entities that are not on the page any more. */
  keep(entities: ReadonlySet<string>): void {
    for (const entity of this.#courses.keys()) if (!entities.has(entity)) this.#courses.delete(entity);
  }

  /** Frames arrived; the client has not seen them yet. */
  before(frames: readonly Frame[], now: number): void {
    this.#shown.clear();
    for (const frame of frames) {
      const { entity } = frame;
      if (typeof entity !== 'string' || isTopic(entity)) continue;
      if (frame.type === 'event' || frame.type === 'snapshot') {
        const { type: kind, seq, status } = frame as unknown as EventFrame | SnapshotFrame;
        this.of(entity).add({ lane: 'received', kind, seq, status, at: now });
      } else if (isReplay(frame)) {
        for (const { seq, status } of (frame as unknown as ReplayFrame).events) {
          this.of(entity).add({ lane: 'replayed', kind: 'event', seq, status, at: now });
        }
      }
    }
  }

  /** The client has done with the frames. */
  after(frames: readonly Frame[], now: number): void {
    for (const frame of frames) {
      const { entity } = frame;
      if (typeof entity !== 'string' || isTopic(entity)) continue;
      if (frame.type === 'event' || frame.type === 'snapshot') {
        this.#settle(entity, frame as unknown as EventFrame | SnapshotFrame, now);
      } else if (isReplay(frame)) {
        const { epoch, events } = frame as unknown as ReplayFrame;
        for (const event of events) {
          this.#settle(entity, { ...event, type: 'event', entity, ...(epoch === undefined ? {} : { epoch }) }, now);
        }
      }
    }
  }

  #settle(entity: string, frame: EventFrame | SnapshotFrame, now: number): void {
    const { type: kind, seq, epoch = '', status } = frame;
    const course = this.of(entity);
    const key = `${epoch} ${seq}`;
    if (this.#shown.has(`${entity} ${key}`)) return;
    const covered = epoch === course.epoch && seq <= course.seq;
    if (kind === 'snapshot') {
      if (covered && seq < course.seq) this.#drop(course, frame, 'stale', now);
      return;
    }
    if (course.sync === 'final') this.#drop(course, frame, 'after the end', now);
    else if (covered) this.#drop(course, frame, 'covered already', now);
    else if (!course.held.has(key)) {
      const mark: Mark = { lane: 'held', kind, seq, status, at: now };
      course.add(mark);
      course.held.set(key, mark);
      const to = seq - 1;
      const { gap } = course;
      if (epoch !== course.epoch || course.seq < 0 || to <= course.seq) return;
      if (!gap) course.gaps.push({ from: course.seq + 1, to, at: now });
      else gap.to = Math.min(gap.to, to);
      course.troubledAt ??= now;
    }
  }

  #drop(course: Course, { type: kind, seq, status }: EventFrame | SnapshotFrame, note: string, now: number): void {
    course.add({ lane: 'dropped', kind, seq, status, note, at: now });
  }

  /** The client showed a change. */
  change(change: Change & { readonly entity: string }, now: number): void {
    const { entity, kind, seq = 0, epoch = '', status, reset, skipped } = change;
    if (isTopic(entity)) return;
    const course = this.of(entity);
    course.epoch = epoch;
    course.seq = seq;
    this.#shown.add(`${entity} ${epoch} ${seq}`);
    const note = reset ? 'a new start' : skipped ? `passes over ${skipped[0]}–${skipped[1]}` : undefined;
    course.add({ lane: 'applied', kind, seq, status, at: now, ...(note ? { note } : {}) });
    for (const [key, mark] of course.held) {
      if (mark.seq > seq && key.startsWith(`${epoch} `)) continue;
      mark.until = now;
      course.held.delete(key);
    }
    const { gap } = course;
    if (gap && (reset || seq >= gap.to)) gap.healed = now;
    this.#calm(entity, course, now);
  }

  /** The client's word on how far an entity can be trusted. */
  sync(entity: string, sync: Sync, now: number): void {
    if (isTopic(entity)) return;
    const course = this.of(entity);
    course.sync = sync;
    if (sync === 'recovering' || sync === 'stale' || sync === 'failed') course.troubledAt ??= now;
    if (sync === 'final') release(course, now);
    if ((sync === 'live' || sync === 'final') && course.gap) course.gap.healed = now;
    this.#calm(entity, course, now);
  }

  #calm(entity: string, course: Course, now: number): void {
    if (course.troubledAt === undefined || course.gap) return;
    if (course.sync !== 'live' && course.sync !== 'final') return;
    this.recoveries.push({ entity, at: now, took: now - course.troubledAt });
    course.troubledAt = undefined;
    const oldest = now - REMEMBERED_MS;
    if ((this.recoveries[0]?.at ?? oldest) < oldest) this.recoveries = this.recoveries.filter(({ at }) => at >= oldest);
  }
}
