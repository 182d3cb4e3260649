// Frames in. The first half is the hot path: no closures and no lists per event.
import { options } from '#given';
import {
  AHEAD,
  APPLY,
  BAD_FRAME,
  BEGIN_REPLAY,
  COUNT,
  CURSOR,
  DISCONTINUITY,
  END_HEADS,
  END_REPLAY,
  ERROR,
  EVENT,
  FINAL,
  GONE,
  GOODBYE,
  HEAD,
  NONE,
  PART,
  PONG,
  SNAPSHOT,
  SUBSCRIBED,
  UNKNOWN,
  VACANT,
  WELCOME,
} from '../boundary.js';
import type { Cell, Frame } from '../entity.js';
import { isObject, join } from '../reduce.js';
import { parseSeq } from '../seq.js';
import { accept, acceptWithId, drain, give, line, put } from './core.js';
import { applied, byName, bytes, cellAt, cellOf, handleOf, modelOf, setBytes, store, takeInHand } from './entities.js';
import { epochOf, fingerprint, hashHigh, hashLow, statusOf } from './names.js';
import type { Model } from './options.js';

/** Parts per snapshot. With frames of 256 KiB this is a state of 256 MiB. */
const PARTS = 1_024;

/** Bytes of unfinished snapshots since there was none; above it all of them are dropped, and asked for again. */
const PARTS_BYTES = 64 << 20;

/** Snapshots that grow at a time; the same holds for more. */
const ASSEMBLIES = 1_024;

/** More duplicates than other events by so many, and messages are skimmed before they are parsed. */
const SKIM_FROM = 64;
const REPEATS = 128;

/** How a server begins an event: its keys are in the order of the table. What is escaped is left to the parser. */
const BEGINS = /^\{"type":"event","entity":"([^"\\]+)","epoch":"([^"\\]*)","seq":(\d{1,15}),/;

/** Frames about one entity: the input, the field that is its number, whether it has a payload. */
const KINDS = new Map<string, readonly [input: number, field?: string, hasPayload?: boolean]>([
  ['subscribed', [SUBSCRIBED, 'head']],
  ['replay', [BEGIN_REPLAY]],
  ['snapshot', [SNAPSHOT, 'seq', true]],
  ['gone', [GONE]],
  ['ahead', [AHEAD, 'head']],
  ['vacant', [VACANT, 'from']],
  ['final', [FINAL, , true]],
  ['discontinuity', [DISCONTINUITY]],
]);

/** Error codes with a number; others are 3. */
const CODES = ['forbidden', 'not_found', 'token_expiring'];
const OTHER = 3;

/** No request has this number. */
const NOBODY = 0xffff_ffff;

const millis = (seconds: unknown): number => (typeof seconds === 'number' && seconds >= 0 ? seconds * 1_000 : NONE);

const list = (value: unknown): any[] => (Array.isArray(value) ? value : []);

const decoder = new TextDecoder('utf-8', { fatal: true });
/** Parts of snapshots by entity and request, until they are whole (R17). */
const assemblies = new Map<string, Frame[]>();
let partBytes = 0;
/** How much more common duplicates are than other events, of late. */
let repeats = 0;
/** The server counts frames by `n`. */
let isCounted = false;

const bad = () => put(BAD_FRAME);

/** A frame of an entity that nobody wants (R39). */
const unwanted = (frame: Frame) => put(typeof frame.entity === 'string' ? UNKNOWN : BAD_FRAME);

/** Keeps count of how common duplicates are. */
function noteRepeat(isRepeat: boolean): boolean {
  if (isRepeat) {
    if (repeats < REPEATS) repeats++;
  } else if (repeats > 0) repeats--;
  return isRepeat;
}

/** Whether a message is a duplicate by its beginning: where most are, that is cheaper than to parse them all. */
function isRepeat(text: string): boolean {
  // Frames with `n` are counted, so all must be read.
  const found = isCounted ? null : BEGINS.exec(text);
  const cell = found && byName.get(found[1]!);
  if (!cell || typeof cell === 'number') return false;
  const seq = +found[3]!;
  if (!(seq <= cell.seq_!) || found[2] !== cell.epoch_) return false;
  // The core has the word: it knows of ids, locks and gaps.
  return noteRepeat(accept(cell.handle_, seq - 1, seq, epochOf(found[2]), 0, 0) > APPLY);
}

function receiveFrame(frame: Frame): void {
  if (typeof frame !== 'object' || frame === null) return bad();
  const { n } = frame;
  const before = line;
  if (n !== undefined) {
    isCounted = true;
    const count = parseSeq(n);
    if (count >= 0) give(COUNT, count);
  }
  if (frame.type === 'event') {
    const found = byName.get(frame.entity);
    if (found === undefined) unwanted(frame);
    else if (typeof found === 'object') receiveEvent(found, found.handle_, found.model_, frame, frame.epoch, true);
    else receiveEvent(undefined, found, modelOf(found), frame, frame.epoch, true);
  } else receiveOther(frame);
  // A hole in the count is noticed by a frame that says nothing else, too.
  if (n !== undefined && line === before) drain();
}

/** `isShort`: the core may take the short way. Replayed events never do. */
function receiveEvent(
  cell: Cell | undefined,
  handle: number,
  model: Model,
  frame: Frame,
  epochName: unknown,
  isShort: boolean,
): void {
  let { seq } = frame;
  // Not `Number.isSafeInteger` alone: decimal strings are numbers too (R11).
  if (typeof seq !== 'number' || seq < 0 || !Number.isSafeInteger(seq)) {
    seq = seq == null ? NaN : parseSeq(seq);
    if (seq < 0) return bad();
    isShort &&= seq === seq;
  }
  let prev = seq - 1;
  let given = NaN;
  if (frame.prev != null || frame.first != null) {
    given = prev = frame.prev != null ? parseSeq(frame.prev) : parseSeq(frame.first) - 1;
    if (prev < 0) return bad();
  } else if (model.isChained_) isShort = false;
  const epoch = epochOf(epochName);
  const status = statusOf(frame.status);
  if (epoch < 0 || status < 0) return bad();
  const { id, data } = frame;
  const hasId = id != null && model.hasIds_;
  let high = 0;
  let low = 0;
  if (hasId) {
    fingerprint(String(id));
    high = hashHigh;
    low = hashLow;
  }
  if (isShort) {
    takeInHand(handle);
    const isVisible = data !== undefined || status !== 0 ? 1 : 0;
    const verdict = hasId
      ? acceptWithId(handle, prev, seq, epoch, status, isVisible, high, low)
      : accept(handle, prev, seq, epoch, status, isVisible);
    if (noteRepeat(verdict > APPLY)) return;
    if (verdict === APPLY) {
      return applied(cell, handle, model, frame, prev, seq, epoch, status, high, low);
    }
  }
  const slot = store(frame);
  const hasData = +(data !== undefined);
  put(EVENT, handle, NONE, epoch, seq, status, slot, given, high, low, hasData, bytes);
}

function receiveOther(frame: Frame): void {
  const { type, entity } = frame;
  if (typeof type !== 'string') return bad();
  // What is no number of ours is nobody's request (R18).
  const given = parseSeq(frame.request);
  const request = frame.request == null ? NONE : given < 0 || given > NOBODY ? NOBODY : given;
  switch (type) {
    case 'welcome': {
      const heartbeat = millis(frame.heartbeat);
      const can = list(frame.can);
      const has = (what: string, own?: unknown) => +(!!own || can.includes(what));
      return put(
        WELCOME,
        heartbeat > 0 ? heartbeat : NONE,
        has('replay', options.replayFrom),
        has('snapshot', options.snapshotFrom),
        has('heads'),
      );
    }
    case 'heartbeat':
    case 'heads':
      return receiveHeads(frame, type === 'heads' ? request : NONE);
    case 'pong':
      return put(PONG, parseSeq(frame.id));
    case 'goodbye':
      return put(GOODBYE, millis(frame.retryAfter));
  }
  const isError = type === 'error';
  const kind = KINDS.get(type);
  if (!kind && !isError) return;
  const [input, field, hasPayload] = kind ?? [ERROR];
  // These two may be about everything.
  const handle = entity == null && (isError || input === DISCONTINUITY) ? NONE : handleOf(entity);
  if (handle === undefined) return unwanted(frame);
  if (isError) {
    const code = CODES.indexOf(frame.code);
    said = frame;
    put(ERROR, handle, request, code < 0 ? OTHER : code, millis(frame.retryAfter));
    said = undefined;
    return;
  }
  const epoch = epochOf(frame.epoch);
  const seq = field ? parseSeq(frame[field]) : 0;
  const other = hasPayload ? statusOf(frame.status) : input === VACANT ? parseSeq(frame.to) : 0;
  if (epoch < 0 || seq < 0 || other < 0) return bad();
  if (input === BEGIN_REPLAY) return receiveReplay(handle, request, epoch, frame);
  if (input === SUBSCRIBED) keepCursor(handle, frame.cursor);
  if (hasPayload && frame.of != null) {
    frame = addPart(handle, request, frame);
    if (!frame) return;
  }
  put(input, handle, request, epoch, seq, other, hasPayload ? store(frame) : NONE);
}

function receiveReplay(handle: number, request: number, epoch: number, frame: Frame) {
  const { events, vacant = [] } = frame;
  if (!Array.isArray(events) || !Array.isArray(vacant)) return bad();
  if (!give(BEGIN_REPLAY, handle, request)) return;
  const before = line;
  setBytes(Math.ceil(bytes / (events.length || 1)));
  for (const range of vacant) {
    const from = parseSeq(range?.[0]);
    const to = parseSeq(range?.[1]);
    if (from < 0 || to < 0) bad();
    else put(VACANT, handle, NONE, epoch, from, to);
    if (line !== before) return;
  }
  for (const event of events) {
    if (isObject(event)) {
      receiveEvent(cellAt(handle), handle, modelOf(handle), event, frame.epoch, false);
    } else bad();
    if (line !== before) return;
  }
  put(END_REPLAY, handle, request, 0, +(frame.done === true));
}

function receiveHeads(frame: Frame, request: number) {
  const { heads = [], cursors = [] } = frame;
  if (!Array.isArray(heads) || !Array.isArray(cursors)) return bad();
  const before = line;
  for (const head of heads) {
    const handle = handleOf(head?.[0]);
    if (handle === undefined) continue;
    const epoch = epochOf(head[1]);
    const seq = parseSeq(head[2]);
    if (epoch < 0 || seq < 0) bad();
    else put(HEAD, handle, request, epoch, seq);
    if (line !== before) return;
  }
  for (const cursor of cursors) {
    const handle = handleOf(cursor?.[0]);
    if (handle !== undefined) keepCursor(handle, cursor[1]);
  }
  if (request >= 0) put(END_HEADS, NONE, request);
}

function keepCursor(handle: number, cursor: unknown) {
  if (typeof cursor !== 'string' || !modelOf(handle).isTopic_) return;
  cellOf(handle).cursor_ = cursor;
  give(CURSOR, handle);
}

/** Returns the whole snapshot when its last part came. */
function addPart(handle: number, request: number, frame: Frame): Frame | void {
  const { epoch, seq, part, of } = frame;
  if (!(parseSeq(part) > 0 && parseSeq(of) >= part && of <= PARTS)) return bad();
  const key = `${handle}:${request}`;
  if (!give(PART, handle, request)) {
    assemblies.delete(key);
    return drain();
  }
  let parts = assemblies.get(key);
  // Parts of two answers never mix.
  if (!parts?.some((other) => other.seq === seq && other.epoch === epoch && other.of === of)) parts = [];
  partBytes += parts[part] ? 0 : bytes;
  parts[part] = frame;
  assemblies.set(key, parts);
  const isTooLarge = partBytes > PARTS_BYTES || assemblies.size > ASSEMBLIES;
  const list = Object.values(parts);
  if (list.length < of && !isTooLarge) return;
  assemblies.delete(key);
  if (isTooLarge || !assemblies.size) dropAllParts();
  const data = isTooLarge ? undefined : join(list.map((frame) => frame.data));
  return data === undefined ? bad() : { ...frame, data };
}

/** The `error` frame in hand. */
export let said: Frame | undefined;

/** Parts belong to one socket. */
export function dropAllParts(): void {
  assemblies.clear();
  partBytes = 0;
}

/** Reads a message, frame by frame. */
export function receive(data: unknown): void {
  const before = line;
  // Not within the `try`: what the core throws is no bad frame.
  if (repeats > SKIM_FROM && typeof data === 'string' && isRepeat(data)) return;
  let text: string;
  let frame: Frame;
  try {
    text = typeof data === 'string' ? data : decoder.decode(data as ArrayBuffer);
    frame = JSON.parse(text);
  } catch {
    return bad();
  }
  if (!Array.isArray(frame)) {
    setBytes(text.length);
    return receiveFrame(frame);
  }
  setBytes(Math.ceil(text.length / frame.length));
  for (let i = 0; i < frame.length; i++) {
    receiveFrame(frame[i]);
    // A callback may have closed the client, or the core replaced the socket.
    if (line !== before) return;
  }
}
