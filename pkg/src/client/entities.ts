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
} from '../boundary.js';
import { Cell, type Frame, makeChange, type Members, NO_READERS, SYNCS } from '../entity.js';
import { IS_SHOWN } from '../errors.js';
import type { ErrorCode } from '../public/api.js';
import { isNames } from '../reduce.js';
import { drain, enter, give, hold, isBusy, later, put, registers, release, wasm } from './core.js';
import { changes, deliverPending, emit, isClosed, isSync, notify, report, THREW } from './delivery.js';
import { epochNames, epochOf, statusNames, statusOf } from './names.js';
import { kinds, type Model, models, STATUSES } from './options.js';

/** Entities that there is room for at first; the room doubles. */
const ROOM = 64;

/** The low bits of an entity's traits are its model; the others say which topics it is a member of. */
const MODEL_BITS = 8;
const MODEL_MASK = (1 << MODEL_BITS) - 1;

/** What the core knows of an entity, as `read` leaves it: sync, held events, epoch or −1, seq, status. */
type Known = ArrayLike<number>;

const UNPLACED: Known = [JOINING, 0, NONE, 0, 0];

const NOTHING: Frame = Object.freeze({});

/** By name: the cell if somebody looked at it, else its number. */
export const byName = new Map<string, Cell | number>();

// By number. An entity that nobody looks at costs no object: a name, and in `slots` its state where others have a cell.
export const entityNames: string[] = [];
const slots: unknown[] = [];
let traits = new Uint32Array(ROOM);

/** Sets of topics that entities are members of. */
const groups: (readonly number[])[] = [[]];
const groupNumbers = new Map<string, number>([['', 0]]);

/** Payloads that the core has the numbers of. */
let slab: Frame[] = [];
let freeSlots: number[] = [];

/** What a trap left. */
let saved: Known[] | undefined;

/** Bytes of the frame in hand, its share of a batch. */
export let bytes = 0;

export function setBytes(given: number): void {
  bytes = given;
}

/** The entity whose event the core judges. */
let inHand = NONE;

export function takeInHand(handle: number): void {
  inHand = handle;
}

/** The entity whose end was shown, but not told yet. */
let ending = NONE;

// Of the change in hand, if it came out of the core.
let isReset = false;
let skippedFrom = NONE;
let skippedTo = NONE;

// --- Who they are ---

export function handleOf(name: unknown): number | undefined {
  const found = byName.get(name as string);
  return typeof found === 'object' ? found.handle_ : found;
}

export function modelOf(handle: number): Model {
  return models[traits[handle]! & MODEL_MASK]!;
}

/** The number of a name's model; `undefined` if there is none. */
export function kindOf(name: string): number | undefined {
  return /^topic\//.test(name) ? 0 : kinds.get(/^[^/]*/.exec(name)![0]);
}

/** The cell of a name, if there is one or the entity is known. */
export function find(name: string): Cell | undefined {
  const found = byName.get(name);
  return typeof found === 'number' ? cellOf(found) : found;
}

export function cellAt(handle: number): Cell | undefined {
  const found = slots[handle];
  return found instanceof Cell ? found : undefined;
}

/** The cell of an entity, made when it is first looked at. */
export function cellOf(handle: number): Cell {
  const state = slots[handle];
  if (state instanceof Cell) return state;
  const cell = newCell(entityNames[handle]!, traits[handle]! & MODEL_MASK);
  const known = read(handle);
  const epoch = known[2]!;
  slots[handle] = cell;
  cell.handle_ = handle;
  cell.state_ = state;
  cell.shown_ = undefined;
  cell.isMember_ = traits[handle]! > MODEL_MASK;
  cell.status_ = statusNames[known[4]!];
  if (epoch >= 0) {
    cell.sync_ = known[0]!;
    cell.epoch_ = epochNames[epoch];
    cell.seq_ = known[3]!;
  }
  return cell;
}

export function newCell(name: string, kind: number): Cell {
  const cell = new Cell(models[kind]!, name, members);
  byName.set(name, cell);
  return cell;
}

/** What the core knows, or knew. */
export function read(handle: number): Known {
  if (wasm) enter(wasm.read, handle);
  return wasm ? registers() : (saved?.[handle] ?? UNPLACED);
}

/** The number of an entity; a new one gets it from the core. */
function handleFor(name: string, kind: number): number {
  const found = byName.get(name);
  const known = handleOf(name) ?? NONE;
  if (known >= 0) return known;
  const handle = wasm!.add_entity(kind);
  if (handle >= traits.length) {
    const narrow = traits;
    traits = new Uint32Array(handle * 2);
    traits.set(narrow);
  }
  traits[handle] = kind;
  entityNames[handle] = name;
  const cell = typeof found === 'object' ? found : changes.subscriptions_[0] && newCell(name, kind);
  slots[handle] = cell;
  if (cell) cell.handle_ = handle;
  else byName.set(name, handle);
  return handle;
}

/** Who hears of every change would notice if an entity without a cell joined anew after a trap. */
export function keepAll(): void {
  for (const name of byName.keys()) find(name);
}

/** Subscribes for the first user of an entity. */
export function subscribe(cell: Cell): void {
  give(SUBSCRIBE, handleFor(cell.name_, models.indexOf(cell.model_)));
}

/** The last user left. */
export function unsubscribe(cell: Cell): void {
  if (cell.handle_ >= 0) put(UNSUBSCRIBE, cell.handle_);
  else if (byName.get(cell.name_) === cell) byName.delete(cell.name_);
}

/** The core forgot an entity. */
export function forget(handle: number): void {
  const cell = cellAt(handle);
  if (cell) cell.handle_ = NONE;
  if (!(traits[handle]! & MODEL_MASK)) for (const member of membersOf(handle)) disown(handle, member);
  byName.delete(entityNames[handle]!);
  entityNames[handle] = '';
  slots[handle] = undefined;
  traits[handle] = 0;
}

// --- Payloads ---

/** Keeps a payload while the core has its number. */
export function store(frame: Frame): number {
  const slot = freeSlots.pop() ?? slab.length;
  slab[slot] = frame;
  return slot;
}

export function fetch(slot: number): Frame {
  if (slot < 0) return NOTHING;
  const frame = slab[slot];
  slab[slot] = NOTHING;
  freeSlots.push(slot);
  return frame;
}

// --- Changes ---

/** The core committed an event on the short way. */
export function applied(
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
): void {
  hold();
  if (
    cell !== undefined &&
    cell.quick_ !== undefined &&
    isSync &&
    model.isPlain_ &&
    cell.sync_ === LIVE &&
    cell.readers_ === NO_READERS &&
    model.ends_[status] === 0 &&
    !cell.isMember_ &&
    changes.quick_ === undefined
  ) {
    // Most events, and what `commit` would do with them.
    const { data, at, status: named } = frame;
    if (data !== undefined) cell.state_ = data;
    cell.seq_ = seq;
    if (cell.at_ !== at) cell.at_ = at;
    if (named != null && cell.status_ !== named) cell.status_ = named;
    cell.shown_ = undefined;
    try {
      cell.quick_(cell.show_());
    } catch (cause) {
      report('listener', THREW, cause);
    }
  } else if (!commit(cell, handle, model, frame, false, epoch, seq, status, false)) {
    rollBack(handle, epoch, seq, status, store(frame), prev, high, low, +(frame.data !== undefined), bytes);
  }
  release();
}

/** The core committed a change; its numbers are in the registers. */
export function change(r: Float64Array): void {
  const [handle = 0, kind, epoch = 0, seq = 0, status = 0, slot = NONE, ...event] = r.subarray(0, 15);
  const [prev = 0, high = 0, low = 0, , share = 0, reset, from = NONE, to = NONE, locks] = event;
  const whole = kind === 1;
  const frame = fetch(slot);
  if (isClosed) return;
  isReset = reset === 1;
  skippedFrom = from;
  skippedTo = to;
  const cell = cellAt(handle);
  // Shown together with its first state, not after it; the same when it is reopened.
  if (cell && (cell.sync_ === JOINING || cell.sync_ === FINAL_SYNC)) {
    deliverFinal(cell);
    cell.sync_ = read(handle)[0]!;
  }
  if (!commit(cell, handle, modelOf(handle), frame, whole, epoch, seq, status, locks === 1)) {
    const back = whole ? NONE : store(frame);
    rollBack(handle, epoch, seq, status, back, prev, high, low, +(frame.data !== undefined), share);
    if (cell) setSync(handle, read(handle)[0]!);
  }
  isReset = false;
  skippedFrom = NONE;
}

/** User code threw: the core takes the change back, and asks for a snapshot (R36). */
function rollBack(handle: number, ...event: number[]): void {
  give(ROLLBACK, handle, NONE, ...event);
  drain();
}

/** Conflation never crosses a final state (R35). */
function deliverFinal(cell: Cell): void {
  if (cell.sync_ === FINAL_SYNC) deliverPending(cell);
}

/** Shows a change that the core committed. False: user code threw, and nothing was changed. */
function commit(
  cell: Cell | undefined,
  handle: number,
  model: Model,
  frame: Frame,
  whole: boolean,
  epoch: number,
  seq: number,
  status: number,
  locks: boolean,
): boolean {
  const { data, status: named, at } = frame;
  let state = cell ? cell.state_ : slots[handle];
  let group: Group | undefined;
  if (cell) deliverFinal(cell);
  try {
    if (model.isTopic_) group = readGroup(whole, data);
    else if (data !== undefined) state = whole || !model.reduce_ ? data : model.reduce_(state, data);
    // A `final` answer may bring no state: what is shown stays.
    else if (whole && !locks) state = null;
    if (!locks) {
      if (model.judge_) {
        const before = cell ? cell.status_ : statusNames[read(handle)[4]!];
        locks = model.judge_(named ?? (whole ? undefined : before), state);
      } else locks = status < STATUSES ? model.ends_[status]! > 0 : model.terminal_.has(named);
    }
  } catch (cause) {
    fail(handle, 'reduce', cause);
    return false;
  }
  // If it traps in there, the topic is still where it was, and hears the same again.
  if (group) regroup(handle, whole, group);
  if (cell) {
    cell.state_ = state;
    if (seq === seq) cell.seq_ = seq;
    cell.epoch_ = epochNames[epoch];
    cell.at_ = at;
    if (whole || named != null) cell.status_ = named ?? undefined;
    // Shown at once, not in a second call.
    if (locks) cell.sync_ = FINAL_SYNC;
  } else slots[handle] = state;
  // A trap in there must not keep the change from those who wait for it, nor the end.
  if (locks) {
    if (cell) ending = handle;
    enter(lock, handle);
  }
  if (changes.subscriptions_[0] || (cell && cell.readers_ !== NO_READERS)) {
    const shown = cell ?? { epoch_: epochNames[epoch], status_: named ?? statusNames[read(handle)[4]!] };
    const kind = whole ? 'snapshot' : 'event';
    const change = makeChange(kind, shown, frame, seq, state, skippedFrom, skippedTo, isReset);
    if (cell) for (const reader of cell.readers_) reader(change);
    emit('change', () => ({ entity: entityNames[handle]!, ...change }));
  }
  changed(handle, cell);
  return true;
}

function lock(handle: number): void {
  put(LOCK, handle);
}

/** Tells that an entity has ended. */
export function tellFinal(handle: number): void {
  ending = NONE;
  emit('final', () => {
    const { status, seq, state } = cellOf(handle).show_();
    return { entity: entityNames[handle]!, status, seq, state };
  });
}

/** The core has said all: who has ended was told. */
export function forgetEnding(): void {
  if (wasm) ending = NONE;
}

/** An entity changed: tells who listens, and ends who reads when it is final. */
function changed(handle: number, cell: Cell | undefined): void {
  if (cell) {
    cell.shown_ = undefined;
    if (cell.sync_ === FINAL_SYNC) for (const reader of cell.readers_) reader(undefined);
    notify(cell, cell.model_.isTopic_);
  }
  if (traits[handle]! > MODEL_MASK) {
    for (const topic of groupOf(handle)) {
      const cell = cellAt(topic);
      if (cell?.map_) {
        cell.map_ = undefined;
        notify(cell, true);
      }
    }
  }
}

/** Something is wrong: an `error` event, and in the entity's snapshot if that is where it belongs. */
export function fail(handle: number, code: ErrorCode, cause?: unknown): void {
  const error = report(code, entityNames[handle], cause);
  const cell = cellAt(handle);
  if (cell && IS_SHOWN.test(code)) {
    cell.error_ = error;
    changed(handle, cell);
  }
}

export function setSync(handle: number, sync: number): void {
  const cell = cellAt(handle);
  if (cell && cell.sync_ !== sync) {
    deliverFinal(cell);
    cell.sync_ = sync;
    if (sync === LIVE || sync === FINAL_SYNC) cell.error_ = undefined;
    changed(handle, cell);
  }
  emit('sync', () => ({ entity: entityNames[handle]!, sync: SYNCS[sync]! }));
}

// --- Topics ---

function groupOf(member: number): readonly number[] {
  return groups[traits[member]! >>> MODEL_BITS]!;
}

function setGroup(member: number, group: readonly number[]): void {
  const key = group.join();
  let number = groupNumbers.get(key);
  if (number === undefined) {
    number = groups.push(group) - 1;
    groupNumbers.set(key, number);
  }
  traits[member] = (traits[member]! & MODEL_MASK) | (number << MODEL_BITS);
  const cell = cellAt(member);
  if (cell) cell.isMember_ = number > 0;
}

function membersOf(topic: number): number[] {
  const has = groups.map((group) => group.includes(topic));
  return [...entityNames.keys()].filter((handle) => has[traits[handle]! >>> MODEL_BITS]);
}

/** The map of a topic: every member with its snapshot. */
function members(topic: number): Members {
  return new Map(membersOf(topic).map((member) => [entityNames[member]!, cellOf(member).show_()]));
}

function disown(topic: number, member: number): void {
  setGroup(
    member,
    groupOf(member).filter((other) => other !== topic),
  );
}

/** Who comes and who goes with a topic's change. */
interface Group {
  readonly add?: readonly string[];
  readonly remove?: readonly string[];
}

function readGroup(whole: boolean, data: any): Group {
  const group = whole ? { add: data ?? [] } : (data ?? {});
  const { add = [], remove = [] } = group;
  if (isNames(add) && isNames(remove)) return group;
  throw new TypeError('A topic is a list of names; a change is {add, remove}.');
}

/** Applies a topic's change to its members. */
function regroup(topic: number, whole: boolean, { add, remove = [] }: Group): void {
  const names = new Set<string>(add);
  const leaving: (number | undefined)[] = whole
    ? membersOf(topic).filter((member) => !names.has(entityNames[member]!))
    : remove.map(handleOf);
  for (const member of leaving) {
    if (member === undefined || !groupOf(member).includes(topic)) continue;
    disown(topic, member);
    give(REMOVE_MEMBER, topic, member);
  }
  for (const name of names) {
    const kind = kindOf(name);
    if (kind === undefined) report('unknown_model', name);
    if (!kind) continue;
    const member = handleFor(name, kind);
    if (groupOf(member).includes(topic)) continue;
    setGroup(member, [...groupOf(member), topic]);
    give(ADD_MEMBER, topic, member);
  }
  const cell = cellAt(topic);
  if (cell) cell.map_ = undefined;
}

// --- Without a core ---

/** Whether there is anybody to start for. */
export function isFollowed(): boolean {
  return [...byName.values()].some((found) => typeof found === 'number' || found.uses_ > 0);
}

/** Shows everything as stale. */
export function stall(): void {
  for (const found of slots) {
    if (!(found instanceof Cell) || found.sync_ === FINAL_SYNC || found.sync_ === JOINING) continue;
    found.map_ = undefined;
    setSync(found.handle_, STALE);
  }
}

/**
 * Takes out of a broken instance where its entities stand, as far as that was shown (R38).
 *
 * The core may be ahead: it commits a change before it is handed over. What has a cell tells by itself, when all that
 * is in hand is shown. Of the others, the one in hand joins anew, and so do all when the core was just telling.
 */
export function salvage(): void {
  slab = [];
  freeSlots = [];
  // One that broke while it was restored has nothing to add.
  saved ??= entityNames.map((_, handle) => {
    if (cellAt(handle)) return [STALE, 0];
    try {
      if (!isBusy && handle !== inHand) {
        wasm!.read(handle);
        const [sync, , ...place] = registers().subarray(0, 5);
        return [sync === FINAL_SYNC ? FINAL_SYNC : STALE, 0, ...place];
      }
    } catch {
      // It traps again.
    }
    // It joins anew.
    return UNPLACED;
  });
}

/** What a cell shows, as `read` would leave it. */
function knownOf({ sync_, epoch_, seq_ = 0, status_ }: Cell): Known {
  return [sync_, 0, epoch_ === undefined ? NONE : epochOf(epoch_), seq_, statusOf(status_)];
}

/** Gives a new core the entities of the one before, each with its position, and those that came meanwhile. */
export function restore(): void {
  const known = saved ?? [];
  saved = undefined;
  known.forEach((left, handle) => {
    // In the same order, so each gets the number that it had.
    wasm!.add_entity(traits[handle]! & MODEL_MASK);
    const cell = cellAt(handle);
    const { 0: sync, 2: epoch, 3: seq, 4: status } = cell ? knownOf(cell) : left;
    give(RESTORE, handle, NONE, epoch!, seq!, status!, +(sync === FINAL_SYNC));
  });
  known.forEach((_, handle) => {
    const cell = cellAt(handle);
    for (const topic of groupOf(handle)) give(ADD_MEMBER, topic, handle);
    if (cell?.uses_) subscribe(cell);
    // Nobody wants it: it would have been forgotten.
    else if (traits[handle]! <= MODEL_MASK) give(RELEASE, handle);
  });
  for (const cell of byName.values()) if (typeof cell === 'object' && cell.handle_ < 0) subscribe(cell);
  const ended = ending;
  if (ended >= 0) later(() => tellFinal(ended));
}
