// Who follows which entity: subscribers share one subscription (R31).
import { RELEASE } from '../boundary.js';
import { type Cell, type Shown, UNKNOWN } from '../entity.js';
import type { ErrorCode } from '../public/api.js';
import { drainAtOnce, enter, give, wasm } from './core.js';
import { isClosed, report } from './delivery.js';
import { byName, find, kindOf, newCell, subscribe, unsubscribe } from './entities.js';
import { start } from './start.js';

/** Who wants an entity to be followed. */
export interface User {
  readonly name: string;
  readonly params_: unknown;
  readonly paramsText: string;
  failure_: Shown | undefined;
  /** What is wrong with its `params`. */
  readonly broken_: unknown;
}

/** Counts one more user of an entity; the first subscribes. The caller drains. */
export function join(user: User): Cell | undefined {
  const { name, params_, paramsText, failure_, broken_ } = user;
  const kind = kindOf(name);
  let cell = find(name);
  const isOther = cell && cell.paramsText_ !== paramsText;
  const code: ErrorCode | undefined = isClosed
    ? 'closed'
    : broken_
      ? 'params'
      : kind === undefined
        ? 'unknown_model'
        : isOther && cell!.uses_
          ? 'params_conflict'
          : undefined;
  if (code) {
    const error = report(code, name, broken_) as Shown['error'] & object;
    if (failure_?.error?.code !== code) user.failure_ = Object.freeze({ ...UNKNOWN, sync: 'failed', error });
    return undefined;
  }
  if (isOther) {
    // The position belongs to the old params.
    const { handle_ } = cell!;
    if (handle_ < 0) byName.delete(name);
    else enter(() => give(RELEASE, handle_));
    drainAtOnce();
    cell = find(name);
  }
  user.failure_ = undefined;
  cell ??= newCell(name, kind!);
  cell.params_ = params_;
  cell.paramsText_ = paramsText;
  cell.view_ ??= user;
  if (!cell.uses_++) {
    if (wasm) enter(subscribe, cell);
    else start();
  }
  return cell;
}

/** One user less; the last unsubscribes. */
export function leave(cell: Cell): void {
  if (!--cell.uses_ && !isClosed) enter(unsubscribe, cell);
}
