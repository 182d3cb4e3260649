// All entities of a client: who they are, what is known of them, and the changes that the core hands over.
import {
  ADD_MEMBER,
  FINAL_SYNC,
  JOINING,
  LIVE,
  LOCK,
  NONE,
  RELEASE,
  REMOVE_MEMBER,
  RESTORE,
  ROLLBACK,
  STALE,
  SUBSCRIBE,
  UNSUBSCRIBE,
} from './boundary.js';
import type { Core } from './core.js';
import { Cell, type Frame, makeChange, type Members, NO_READERS, SYNCS } from './entity.js';
import { InorderError } from './errors.js';
import type { Names } from './names.js';
import { type Model, type Ready, STATUSES } from './options.js';
import type { ErrorCode } from './public/api.js';
import type { Delivery } from './store.js';

const NOTHING: Frame = Object.freeze({});

/** Entities that there is room for at first; the room doubles. */
const ROOM = 64;

/** The low bits of an entity's traits are its model; the others say which topics it is a member of. */
const MODEL_BITS = 8;
const MODEL_MASK = (1 << MODEL_BITS) - 1;

/** What the core knows of an entity, as `read` leaves it: sync, held events, epoch or −1, seq, status. */
type Known = ArrayLike<number>;

const UNPLACED: Known = [JOINING, 0, NONE, 0, 0];

export interface Entities {
  /** By name: the cell if somebody looked at it, else its number. */
  readonly byName_: Map<string, Cell | number>;
  /** By number. */
  readonly names_: string[];
  /** Bytes of the frame in hand, its share of a batch. */
  bytes_: number;
  handleOf_(name: unknown): number | undefined;
  modelOf_(handle: number): Model;
  /** The cell of a name, if there is one or the entity is known. */
  find_(name: string): Cell | undefined;
  /** The cell of an entity, made when it is first looked at. */
  cellOf_(handle: number): Cell;
  cellAt_(handle: number): Cell | undefined;
  read_(handle: number): Known;
  /** The number of a name's model, or what is wrong with the name. */
  kindOf_(name: string): number | InorderError;
  /** Subscribes for the first user of an entity. */
  enter_(cell: Cell): void;
  /** The last user left. */
  leave_(cell: Cell): void;
  newCell_(name: string, kind: number): Cell;
  /** Keeps a payload while the core has its number. */
  store_(frame: Frame): number;
  fetch_(slot: number): Frame;
  /** The core committed an event on the short way. */
  applied_(
    cell: Cell | undefined,
    handle: number,
    model: Model,
    frame: Frame,
    prev: number,
    seq: number,
    epoch: number,
    status: number,
    high: number,
    low: number,
  ): void;
  /** The core committed a change; its numbers are in the registers. */
  change_(registers: Float64Array): void;
  setSync_(handle: number, sync: number): void;
  /** Something is wrong: an `error` event, and in the entity's snapshot if `isShown`. */
  fail_(handle: number, code: ErrorCode, message: string, retryable: boolean, isShown?: boolean, cause?: unknown): void;
  forget_(handle: number): void;
  /** Shows everything as stale. */
  stall_(): void;
  /** Takes out of a broken instance what is worth keeping (R38). */
  salvage_(): void;
  /** Gives a new core the entities of the one before, each with its position, and those that came meanwhile. */
  restore_(): void;
}

export function makeEntities(ready: Ready, core: Core, names: Names, delivery: Delivery): Entities {
  const { models_: models, kinds_: kinds } = ready;
  const byName = new Map<string, Cell | number>();
  const entityNames: string[] = [];
  // An entity that nobody looks at costs no object: a name, a state in `slots` where others have their cell, a number.
  const slots: unknown[] = [];
  let traits = new Uint32Array(ROOM);
  /** Sets of topics that entities are members of. */
  const groups: (readonly number[])[] = [[]];
  const groupNumbers = new Map<string, number>([['', 0]]);
  let slab: Frame[] = [];
  let free: number[] = [];
  /** What a trap left. */
  let saved: Known[] | undefined;
  // Of the change in hand, if it came out of the core.
  let isReset = false;
  let skippedFrom = NONE;
  let skippedTo = NONE;

  const cellAt = (handle: number): Cell | undefined => {
    const found = slots[handle];
    return found instanceof Cell ? found : undefined;
  };
  const modelOf = (handle: number): Model => models[traits[handle]! & MODEL_MASK]!;
  const { changes_: changes } = delivery;
  const hears = (type: string) => delivery.events_.get(type)?.subscriptions_.length;

  const read = (handle: number): Known => {
    if (!core.wasm_) return saved?.[handle] ?? UNPLACED;
    core.enter_(core.wasm_.read, handle);
    return core.wasm_ ? core.registers_() : read(handle);
  };

  const newCell = (name: string, kind: number) => {
    const cell = new Cell(models[kind]!, name, members);
    byName.set(name, cell);
    return cell;
  };

  const cellOf = (handle: number): Cell => {
    const found = slots[handle];
    if (found instanceof Cell) return found;
    const cell = newCell(entityNames[handle]!, traits[handle]! & MODEL_MASK);
    slots[handle] = cell;
    cell.handle_ = handle;
    cell.state_ = found;
    const known = read(handle);
    const epoch = known[2]!;
    if (epoch >= 0) {
      cell.sync_ = known[0]!;
      cell.epoch_ = names.epochs_[epoch];
      cell.seq_ = known[3]!;
    }
    cell.status_ = names.statuses_[known[4]!];
    cell.shown_ = undefined;
    return cell;
  };

  const handleFor = (name: string, kind: number): number => {
    const found = byName.get(name);
    if (typeof found === 'number') return found;
    if (found && found.handle_ >= 0) return found.handle_;
    const handle = core.wasm_!.add_entity(kind);
    if (handle >= traits.length) {
      const wider = new Uint32Array(traits.length * 2);
      wider.set(traits);
      traits = wider;
    }
    traits[handle] = kind;
    entityNames[handle] = name;
    slots[handle] = found;
    if (found) found.handle_ = handle;
    else byName.set(name, handle);
    return handle;
  };

  const kindOf = (name: string): number | InorderError => {
    const [, kind, slash] = /^([^/]*)(\/?)/.exec(name)!;
    if (kind === 'topic' && slash) return 0;
    return (
      kinds.get(kind!) ??
      new InorderError(
        'unknown_model',
        `'${name}' has no model: the part before the first '/' must be one of ${[...kinds.keys()].join(', ')}.`,
        false,
        name,
      )
    );
  };

  const subscribe = (cell: Cell) => {
    if (cell.handle_ < 0) handleFor(cell.name_, models.indexOf(cell.model_));
    core.give_(SUBSCRIBE, cell.handle_);
  };

  // --- Changes ---

  /** Shows a change that the core committed. False: user code threw, and nothing was changed (R36). */
  const commit = (
    cell: Cell | undefined,
    handle: number,
    model: Model,
    frame: Frame,
    whole: boolean,
    epoch: number,
    seq: number,
    status: number,
    locks: boolean,
  ): boolean => {
    // Conflation never crosses a final state (R35).
    if (cell?.isPending_ && cell.sync_ === FINAL_SYNC) delivery.deliver_(cell);
    const { data, status: named, at } = frame;
    let state = cell ? cell.state_ : slots[handle];
    try {
      if (model.isTopic_) regroup(handle, whole, data);
      else if (data !== undefined) state = whole || !model.reduce_ ? data : model.reduce_(state, data);
      // A `final` answer may bring no state: what is shown stays.
      else if (whole && !locks) state = null;
      if (!locks) {
        if (model.judge_) {
          const shown = whole ? undefined : cell ? cell.status_ : names.statuses_[read(handle)[4]!];
          locks = !!model.judge_(named ?? shown, state);
        } else locks = status < STATUSES ? model.ends_[status] !== 0 : model.terminal_.has(named);
      }
    } catch (cause) {
      const message = `\`reduce\` or \`terminal\` threw on % at ${seq}, see \`cause\`: mend it; a snapshot is asked for.`;
      fail(handle, 'reduce', message, true, true, cause);
      return false;
    }
    if (cell) {
      cell.state_ = state;
      cell.shown_ = undefined;
      if (seq === seq) cell.seq_ = seq;
      cell.epoch_ = names.epochs_[epoch];
      cell.at_ = at;
      if (whole || named != null) cell.status_ = named ?? undefined;
      // Shown at once, not in a second call.
      if (locks) cell.sync_ = FINAL_SYNC;
    } else slots[handle] = state;
    if (locks) {
      core.give_(LOCK, handle);
      core.isAgain_ = true;
    }
    const isHeard = changes.subscriptions_.length;
    if (isHeard || (cell && cell.readers_ !== NO_READERS)) {
      const shown = cell ?? { epoch_: names.epochs_[epoch], status_: named ?? names.statuses_[status] };
      const kind = whole ? 'snapshot' : 'event';
      const change = makeChange(kind, shown, frame, seq, state, skippedFrom, skippedTo, isReset);
      if (cell) for (const reader of cell.readers_) reader(change);
      if (isHeard) delivery.emit_('change', { entity: entityNames[handle]!, ...change });
    }
    if (cell) changed(cell);
    touch(handle);
    return true;
  };

  /** A cell changed: tells who listens, and ends who reads when it is final. */
  const changed = (cell: Cell) => {
    if (cell.sync_ === FINAL_SYNC) for (const reader of cell.readers_) reader(undefined);
    delivery.notify_(cell, cell.model_.isTopic_);
  };

  const applied: Entities['applied_'] = (cell, handle, model, frame, prev, seq, epoch, status, high, low) => {
    core.isBusy_ = true;
    const quick = cell?.quick_;
    if (
      quick &&
      delivery.isSync_ &&
      model.isPlain_ &&
      cell!.sync_ === LIVE &&
      cell!.readers_ === NO_READERS &&
      model.ends_[status] === 0 &&
      traits[handle]! <= MODEL_MASK &&
      !changes.subscriptions_.length
    ) {
      // Most events, and what `commit` would do with them.
      const { data, at, status: named } = frame;
      if (data !== undefined) cell!.state_ = data;
      cell!.seq_ = seq;
      if (cell!.at_ !== at) cell!.at_ = at;
      if (named != null && cell!.status_ !== named) cell!.status_ = named;
      cell!.shown_ = undefined;
      try {
        quick(cell!.show_());
      } catch (cause) {
        delivery.threw_(cause);
      }
    } else if (!commit(cell, handle, model, frame, false, epoch, seq, status, false)) {
      rollBack(handle, epoch, seq, status, it.store_(frame), prev, high, low, +(frame.data !== undefined), it.bytes_);
      core.isAgain_ = true;
    }
    core.isBusy_ = false;
    if (core.isAgain_) core.drain_();
  };

  const rollBack = (handle: number, ...numbers: number[]) => core.give_(ROLLBACK, handle, NONE, ...numbers);

  /** Something is wrong: an `error` event, and in the entity's snapshot if that is where it belongs. */
  const fail: Entities['fail_'] = (handle, code, message, retryable, isShown, cause) => {
    const name = entityNames[handle];
    const error = new InorderError(code, message.replace('%', name ?? 'this client'), retryable, name, cause);
    const cell = cellAt(handle);
    if (cell && isShown) {
      cell.error_ = error;
      cell.shown_ = undefined;
      changed(cell);
    }
    delivery.report_(error);
  };

  const setSync = (handle: number, sync: number) => {
    const cell = cellAt(handle);
    if (cell && cell.sync_ !== sync) {
      if (cell.isPending_ && cell.sync_ === FINAL_SYNC) delivery.deliver_(cell);
      cell.sync_ = sync;
      if (sync === LIVE || sync === FINAL_SYNC) cell.error_ = undefined;
      cell.shown_ = undefined;
      changed(cell);
      touch(handle);
    }
    if (hears('sync')) delivery.emit_('sync', { entity: entityNames[handle]!, sync: SYNCS[sync]! });
  };

  // --- Topics ---

  const groupOf = (member: number) => groups[traits[member]! >>> MODEL_BITS]!;

  const setGroup = (member: number, group: readonly number[]) => {
    const key = group.join();
    let number = groupNumbers.get(key);
    if (number === undefined) {
      number = groups.push(group) - 1;
      groupNumbers.set(key, number);
    }
    traits[member] = (traits[member]! & MODEL_MASK) | (number << MODEL_BITS);
  };

  const membersOf = (topic: number): number[] => {
    const has = groups.map((group) => group.includes(topic));
    const list: number[] = [];
    for (let handle = 0; handle < slots.length; handle++) {
      if (has[traits[handle]! >>> MODEL_BITS]) list.push(handle);
    }
    return list;
  };

  const members = (topic: number): Members =>
    new Map(membersOf(topic).map((member) => [entityNames[member]!, cellOf(member).show_()]));

  /** Takes a member out of a topic; true if it was in it. */
  const disown = (topic: number, member: number): boolean => {
    const group = groupOf(member);
    const isMember = group.includes(topic);
    if (isMember)
      setGroup(
        member,
        group.filter((other) => other !== topic),
      );
    return isMember;
  };

  /** Applies a topic's change to its members. Throws when it can't be read. */
  const regroup = (topic: number, whole: boolean, data: any) => {
    const add: unknown = (whole ? data : data?.add) ?? [];
    const remove: unknown = (whole ? undefined : data?.remove) ?? [];
    for (const list of [add, remove]) {
      if (!Array.isArray(list) || !list.every((name) => typeof name === 'string')) {
        throw new TypeError('A topic is a list of names, its events are {add: [], remove: []}.');
      }
    }
    const kept = new Set(add as string[]);
    const leaving = whole
      ? membersOf(topic).filter((member) => !kept.has(entityNames[member]!))
      : (remove as string[]).map((name) => it.handleOf_(name));
    for (const member of leaving) {
      if (member !== undefined && disown(topic, member)) core.give_(REMOVE_MEMBER, topic, member);
    }
    for (const name of kept) {
      const kind = kindOf(name);
      if (typeof kind === 'object') delivery.report_(kind);
      else if (kind > 0) {
        const member = handleFor(name, kind);
        if (groupOf(member).includes(topic)) continue;
        setGroup(member, [...groupOf(member), topic]);
        core.give_(ADD_MEMBER, topic, member);
      }
    }
    const cell = cellAt(topic);
    if (cell) cell.map_ = undefined;
  };

  /** A member changed, and so did the maps that it is in. */
  const touch = (member: number) => {
    if (traits[member]! <= MODEL_MASK) return;
    for (const topic of groupOf(member)) {
      const cell = cellAt(topic);
      if (!cell?.map_) continue;
      cell.map_ = undefined;
      delivery.notify_(cell, true);
    }
  };

  const it: Entities = {
    byName_: byName,
    names_: entityNames,
    bytes_: 0,
    modelOf_: modelOf,
    cellOf_: cellOf,
    cellAt_: cellAt,
    read_: read,
    kindOf_: kindOf,
    enter_: subscribe,
    newCell_: newCell,
    applied_: applied,
    setSync_: setSync,
    fail_: fail,

    handleOf_(name) {
      const found = byName.get(name as string);
      return typeof found === 'object' ? found.handle_ : found;
    },

    find_(name) {
      const found = byName.get(name);
      return typeof found === 'number' ? cellOf(found) : found;
    },

    leave_(cell) {
      if (cell.handle_ >= 0) core.put_(UNSUBSCRIBE, cell.handle_);
      else if (byName.get(cell.name_) === cell) byName.delete(cell.name_);
    },

    store_(frame) {
      const slot = free.pop() ?? slab.length;
      slab[slot] = frame;
      return slot;
    },

    fetch_(slot) {
      if (slot < 0) return NOTHING;
      const frame = slab[slot];
      slab[slot] = NOTHING;
      free.push(slot);
      return frame;
    },

    change_(r) {
      const handle = r[0]!;
      const whole = r[1] === 1;
      const epoch = r[2]!;
      const seq = r[3]!;
      const status = r[4]!;
      const frame = it.fetch_(r[5]!);
      const event = [r[6]!, r[7]!, r[8]!, +(frame.data !== undefined), r[10]!];
      const locks = r[14] === 1;
      isReset = r[11] === 1;
      skippedFrom = r[12]!;
      skippedTo = r[13]!;
      if (delivery.isClosed_) return;
      const cell = cellAt(handle);
      // Shown together with its first state, not after it; the same when it is reopened.
      if (cell && (cell.sync_ === JOINING || cell.sync_ === FINAL_SYNC)) {
        if (cell.isPending_ && cell.sync_ === FINAL_SYNC) delivery.deliver_(cell);
        cell.sync_ = read(handle)[0]!;
      }
      if (!commit(cell, handle, modelOf(handle), frame, whole, epoch, seq, status, locks)) {
        rollBack(handle, epoch, seq, status, whole ? NONE : it.store_(frame), ...event);
        if (cell) setSync(handle, read(handle)[0]!);
      }
      isReset = false;
      skippedFrom = NONE;
    },

    forget_(handle) {
      const cell = cellAt(handle);
      const name = entityNames[handle]!;
      if (cell) cell.handle_ = NONE;
      if (modelOf(handle).isTopic_) for (const member of membersOf(handle)) disown(handle, member);
      byName.delete(name);
      entityNames[handle] = '';
      slots[handle] = undefined;
      traits[handle] = 0;
    },

    stall_() {
      for (const found of slots) {
        if (!(found instanceof Cell) || found.sync_ === FINAL_SYNC || found.sync_ === JOINING) continue;
        found.map_ = undefined;
        setSync(found.handle_, STALE);
      }
    },

    salvage_() {
      slab = [];
      free = [];
      // One that broke while it was restored has nothing to add.
      saved ??= entityNames.map((_, handle) => {
        try {
          core.wasm_!.read(handle);
          const [sync, , epoch, seq, status] = core.registers_();
          return [sync === FINAL_SYNC ? FINAL_SYNC : STALE, 0, epoch!, seq!, status!];
        } catch {
          // It joins anew.
          return UNPLACED;
        }
      });
    },

    restore_() {
      const known = saved ?? [];
      // In the same order, so each gets the number that it had.
      known.forEach(([sync, , epoch, seq, status]: any, handle) => {
        core.wasm_!.add_entity(traits[handle]! & MODEL_MASK);
        core.give_(RESTORE, handle, NONE, epoch, seq, status, +(sync === FINAL_SYNC));
      });
      saved = undefined;
      known.forEach((_, handle) => {
        for (const topic of groupOf(handle)) core.give_(ADD_MEMBER, topic, handle);
        const cell = cellAt(handle);
        if (cell?.uses_) subscribe(cell);
        // Nobody wants it: it would have been forgotten.
        else if (traits[handle]! <= MODEL_MASK) core.give_(RELEASE, handle);
      });
      for (const cell of byName.values()) if (typeof cell === 'object' && cell.handle_ < 0) subscribe(cell);
    },
  };
  return it;
}
