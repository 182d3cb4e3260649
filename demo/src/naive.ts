import { isTerminal, isTopic, merge, type EventFrame, type Frame, type SnapshotFrame } from './frames';

/** What a naive client shows of one entity. */
export interface NaiveCell {
  readonly state: unknown;
  readonly status: string | undefined;
  readonly seq: number;
  readonly epoch: string;
  /** The highest number that it has seen in this epoch; above `seq` after it went back. */
  readonly highest: number;
  /** Since when it shows this, in milliseconds of `performance.now()`. */
  readonly since: number;
  /** How often a finished thing came back to life here. */
  readonly resurrections: number;
  /** When that happened last, in milliseconds of `performance.now()`. */
  readonly resurrectedAt: number | undefined;
}

/**
 * A client as it is often written: the last message wins.
 *
 * It gets copies of the `event` and `snapshot` frames that the other column's socket received, and nothing else: it
 * looks at no number and asks for nothing.
 */
export class NaiveClient {
  readonly cells = new Map<string, NaiveCell>();
  resurrections = 0;

  constructor(private readonly onResurrection: (entity: string) => void = () => undefined) {}

  /** Takes one frame; others than events and whole snapshots of entities are passed over. */
  receive(frame: Frame, now: number): void {
    const { type, entity } = frame;
    if (typeof entity !== 'string' || isTopic(entity)) return;
    if (type === 'event') {
      const event = frame as unknown as EventFrame;
      const before = this.cells.get(entity);
      const state = event.data === undefined ? before?.state : merge(before?.state, event.data);
      this.#show(entity, event, state, event.status ?? before?.status, now);
    } else if (type === 'snapshot' && frame['of'] === undefined) {
      const snapshot = frame as unknown as SnapshotFrame;
      this.#show(entity, snapshot, snapshot.data, snapshot.status, now);
    }
  }

  #show(
    entity: string,
    { seq, epoch = '' }: EventFrame | SnapshotFrame,
    state: unknown,
    status: string | undefined,
    now: number,
  ): void {
    const before = this.cells.get(entity);
    const resurrected = isTerminal(entity, before?.status) && !isTerminal(entity, status);
    const highest = before?.epoch === epoch ? Math.max(before.highest, seq) : seq;
    this.cells.set(entity, {
      state,
      status,
      seq,
      epoch,
      highest,
      since: now,
      resurrections: (before?.resurrections ?? 0) + (resurrected ? 1 : 0),
      resurrectedAt: resurrected ? now : before?.resurrectedAt,
    });
    if (resurrected) {
      this.resurrections += 1;
      this.onResurrection(entity);
    }
  }
}
