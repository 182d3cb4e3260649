// Entities, topics and the status as the application holds them: stores by the contract that frameworks know.
import { FINAL_SYNC, JOINING } from '../boundary.js';
import { type Cell, makeChange, type Members, NO_READERS, type Reader, type Shown, SYNCS, UNKNOWN } from '../entity.js';
import { InorderError } from '../errors.js';
import type { Abortable, Change, Listener, Stop, Store, Sync } from '../public/api.js';
import { makeSource } from '../store.js';
import { drain } from './core.js';
import { follow } from './delivery.js';
import { find } from './entities.js';
import { endings, iterate, latest } from './iterate.js';
import { join, leave } from './users.js';

/** Changes that wait for one reader of `changes()` (R35). */
const WAITING_CHANGES = 1_000;

const EMPTY: Members = new Map();

/** A readable thing. */
export class Readable<T> implements Store<T> {
  constructor(
    readonly subscribe: (listener: Listener<T>) => Stop,
    readonly getSnapshot: () => T,
    private readonly initial_: T,
  ) {
    // A polyfill of the symbol may load later than this module.
    const { observable } = Symbol as { observable?: '@@observable' };
    if (observable) Readable.prototype[observable] = Readable.prototype['@@observable'];
  }

  readonly getServerSnapshot = (): T => this.initial_;

  [Symbol.asyncIterator](): AsyncIterableIterator<T> {
    return latest(this);
  }

  '@@observable'(): this {
    return this;
  }
}

/**
 * An entity or a topic; its cell may not exist yet.
 *
 * Frameworks compare `client`, `name` and `paramsText` to know that two are the same.
 */
export class View extends Readable<any> {
  readonly client = endings;
  readonly paramsText: string = '';
  /** Why it is of no use: shown instead of the cell. */
  failure_: Shown | undefined;
  /** It will never be of use. */
  readonly broken_: unknown;

  constructor(
    readonly name: string,
    readonly params_: unknown,
    readonly isTopic_: boolean,
  ) {
    const subscribe = (listener: Listener<any>) => {
      const cell = join(this);
      if (!cell) return follow(makeSource(this.getSnapshot), listener);
      const stop = follow(cell, listener, () => leave(cell));
      drain();
      return stop;
    };
    super(subscribe, () => this.show_(), isTopic_ ? EMPTY : UNKNOWN);
    try {
      if (params_ !== undefined) this.paramsText = JSON.stringify(params_);
    } catch (cause) {
      this.broken_ = cause;
    }
  }

  private show_(): unknown {
    const { failure_, isTopic_ } = this;
    const cell = failure_ ? undefined : find(this.name);
    if (isTopic_) return cell?.value_!() ?? EMPTY;
    return failure_ ?? cell?.show_() ?? UNKNOWN;
  }

  /** Of a topic. */
  get sync(): Sync {
    return this.failure_?.sync ?? SYNCS[find(this.name)?.sync_ ?? JOINING]!;
  }

  /** Of a topic. */
  get error(): InorderError | undefined {
    return (this.failure_?.error as InorderError | undefined) ?? find(this.name)?.error_;
  }

  async finished({ signal }: Abortable = {}): Promise<Shown> {
    for await (const shown of latest<Shown>(this, signal)) {
      const { sync, error } = shown;
      if (sync === 'final') return shown;
      if (sync === 'failed' && error && !error.retryable) throw error;
    }
    throw signal?.aborted ? signal.reason : new InorderError('closed', this.name);
  }

  changes({ signal }: Abortable = {}): AsyncIterableIterator<Change<any, any>> {
    const waiting: Change<any, any>[] = [];
    let missed: number | undefined;
    let cell: Cell | undefined;
    /** The current state as a change. */
    const current = ({ at_, seq_, state_ }: Cell, from?: number) =>
      makeChange('snapshot', cell!, { at: at_ }, seq_, state_ ?? null, from, seq_ ?? from);
    const take = () => {
      if (waiting.length || missed === undefined) return waiting.shift();
      const from = missed;
      missed = undefined;
      return current(cell!, from);
    };
    return iterate(signal, take, (wake, close) => {
      const joined = (cell = join(this));
      if (!joined) return close();
      const reader: Reader = (change) => {
        if (!change) close();
        else if (missed !== undefined) return;
        else if (waiting.length < WAITING_CHANGES) waiting.push(change);
        else missed = change.skipped?.[0] ?? change.seq ?? 0;
        wake();
      };
      joined.readers_ = [...joined.readers_, reader];
      if (joined.epoch_ !== undefined) reader(current(joined));
      if (joined.sync_ === FINAL_SYNC) close();
      drain();
      return () => {
        const left = joined.readers_.filter((other) => other !== reader);
        joined.readers_ = left[0] ? left : NO_READERS;
        leave(joined);
      };
    });
  }
}

/** Makes what `client.entity()` and `client.topic()` return: the same as others have who follow it. */
export function viewOf(name: string, params: unknown, isTopic: boolean): any {
  const view = new View(name, params, isTopic);
  const known = find(name)?.view_ as View | undefined;
  return known && known.isTopic_ === isTopic && known.paramsText === view.paramsText && !view.broken_ ? known : view;
}
