// Frames in. The first half is the hot path: no closures and no lists per event.
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
} from './boundary.js';
import type { Core } from './core.js';
import type { Entities } from './entities.js';
import type { Cell, Frame } from './entity.js';
import type { Names } from './names.js';
import type { Model } from './options.js';
import { isObject, join } from './reduce.js';

/** Parts per snapshot. With frames of 256 KiB this is a state of 256 MiB. */
const PARTS = 1_024;

/** Bytes of unfinished snapshots over all entities; above it a snapshot that is still growing is dropped. */
const PARTS_BYTES = 64 << 20;

/** Snapshots that grow at a time. */
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

/** Parts of one snapshot, until it is whole (R17). */
interface Parts {
  readonly of_: number;
  readonly seq_: number;
  readonly epoch_: number;
  readonly list_: (Frame | undefined)[];
  left_: number;
  bytes_: number;
}

/** A number on the wire: a safe integer from 0, or the same as decimal digits; else −1 (R11). */
export function parseSeq(value: unknown): number {
  const number = typeof value === 'string' && /^\d{1,16}$/.test(value) ? +value : value;
  return Number.isSafeInteger(number) && (number as number) >= 0 ? (number as number) : NONE;
}

const millis = (seconds: unknown): number => (typeof seconds === 'number' && seconds >= 0 ? seconds * 1_000 : NONE);

const list = (value: unknown): any[] => (Array.isArray(value) ? value : []);

export interface Codec {
  /** Reads a message, frame by frame. */
  receive_(data: unknown): void;
  /** The `error` frame in hand. */
  readonly said_: Frame | undefined;
  /** Parts belong to one socket. */
  dropParts_(): void;
}

export function makeCodec(
  core: Core,
  entities: Entities,
  names: Names,
  /** What user code does instead of the server. */
  own: { readonly replay_: boolean; readonly snapshot_: boolean },
): Codec {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const { byName_: byName } = entities;
  const parts = new Map<string, Parts>();
  let partBytes = 0;
  /** How much more common duplicates are than other events, of late. */
  let repeats = 0;
  /** The server counts frames by `n`. */
  let isCounted = false;

  const bad = () => core.put_(BAD_FRAME);

  /** A frame of an entity that nobody wants (R39). */
  const unwanted = (frame: Frame) => core.put_(typeof frame.entity === 'string' ? UNKNOWN : BAD_FRAME);

  /** Keeps count of how common duplicates are. */
  const noteRepeat = (isRepeat: boolean): boolean => {
    if (isRepeat) {
      if (repeats < REPEATS) repeats++;
    } else if (repeats > 0) repeats--;
    return isRepeat;
  };

  /** Whether a message is a duplicate by its beginning: where most are, that is cheaper than to parse them all. */
  const isRepeat = (text: string): boolean => {
    // Frames with `n` are counted, so all must be read.
    const found = isCounted ? null : BEGINS.exec(text);
    const cell = found && byName.get(found[1]!);
    if (!cell || typeof cell === 'number') return false;
    const seq = +found[3]!;
    if (!(seq <= cell.seq_!) || found[2] !== cell.epoch_) return false;
    // The core has the word: it knows of ids, locks and gaps.
    return noteRepeat(core.accept_(cell.handle_, seq - 1, seq, names.epoch_(found[2]), 0, 0) > APPLY);
  };

  const receiveFrame = (frame: Frame): void => {
    if (typeof frame !== 'object' || frame === null) return bad();
    const { n } = frame;
    const { socket_ } = core;
    if (n !== undefined) {
      isCounted = true;
      const count = parseSeq(n);
      if (count >= 0) core.give_(COUNT, count);
    }
    if (frame.type === 'event') {
      const found = byName.get(frame.entity);
      if (found === undefined) unwanted(frame);
      else if (typeof found === 'object') receiveEvent(found, found.handle_, found.model_, frame, frame.epoch, true);
      else receiveEvent(undefined, found, entities.modelOf_(found), frame, frame.epoch, true);
    } else receiveOther(frame);
    // A hole in the count is noticed by a frame that says nothing else, too.
    if (n !== undefined && core.socket_ === socket_) core.drain_();
  };

  /** `isShort`: the core may take the short way. Replayed events never do. */
  const receiveEvent = (
    cell: Cell | undefined,
    handle: number,
    model: Model,
    frame: Frame,
    epochName: unknown,
    isShort: boolean,
  ): void => {
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
    const epoch = names.epoch_(epochName);
    const status = names.status_(frame.status);
    if (epoch < 0 || status < 0) return bad();
    const { id, data } = frame;
    const hasId = id != null && model.hasIds_;
    let high = 0;
    let low = 0;
    if (hasId) {
      names.fingerprint_(String(id));
      high = names.high_;
      low = names.low_;
    }
    if (isShort) {
      const isVisible = data !== undefined || status !== 0 ? 1 : 0;
      const verdict = hasId
        ? core.acceptWithId_(handle, prev, seq, epoch, status, isVisible, high, low)
        : core.accept_(handle, prev, seq, epoch, status, isVisible);
      if (noteRepeat(verdict > APPLY)) return;
      if (verdict === APPLY) {
        return entities.applied_(cell, handle, model, frame, prev, seq, epoch, status, high, low);
      }
    }
    const slot = entities.store_(frame);
    const hasData = +(data !== undefined);
    core.put_(EVENT, handle, NONE, epoch, seq, status, slot, given, high, low, hasData, entities.bytes_);
  };

  const receiveOther = (frame: Frame): void => {
    const { type, entity } = frame;
    if (typeof type !== 'string') return bad();
    const request = frame.request == null ? NONE : parseSeq(frame.request);
    switch (type) {
      case 'welcome': {
        const heartbeat = millis(frame.heartbeat);
        const can = list(frame.can);
        const has = (what: string, isOwn = false) => +(isOwn || can.includes(what));
        return core.put_(
          WELCOME,
          heartbeat > 0 ? heartbeat : NONE,
          has('replay', own.replay_),
          has('snapshot', own.snapshot_),
          has('heads'),
        );
      }
      case 'heartbeat':
      case 'heads':
        return receiveHeads(frame, type === 'heads' ? request : NONE);
      case 'pong':
        return core.put_(PONG, parseSeq(frame.id));
      case 'goodbye':
        return core.put_(GOODBYE, millis(frame.retryAfter));
    }
    const isError = type === 'error';
    const kind = KINDS.get(type);
    if (!kind && !isError) return;
    const [input, field, hasPayload] = kind ?? [ERROR];
    // These two may be about everything.
    const handle = entity == null && (isError || input === DISCONTINUITY) ? NONE : entities.handleOf_(entity);
    if (handle === undefined) return unwanted(frame);
    if (isError) {
      const code = CODES.indexOf(frame.code);
      said = frame;
      core.put_(ERROR, handle, request, code < 0 ? OTHER : code, millis(frame.retryAfter));
      said = undefined;
      return;
    }
    const epoch = names.epoch_(frame.epoch);
    const seq = field ? parseSeq(frame[field]) : 0;
    const other = hasPayload ? names.status_(frame.status) : input === VACANT ? parseSeq(frame.to) : 0;
    if (epoch < 0 || seq < 0 || other < 0) return bad();
    if (input === BEGIN_REPLAY) return receiveReplay(handle, request, epoch, frame);
    if (input === SUBSCRIBED) keepCursor(handle, frame.cursor);
    if (hasPayload && frame.of != null) {
      frame = addPart(handle, request, epoch, seq, frame);
      if (!frame) return;
    }
    core.put_(input, handle, request, epoch, seq, other, hasPayload ? entities.store_(frame) : NONE);
  };

  const receiveReplay = (handle: number, request: number, epoch: number, frame: Frame) => {
    const { events, vacant = [] } = frame;
    if (!Array.isArray(events) || !Array.isArray(vacant)) return bad();
    if (!core.give_(BEGIN_REPLAY, handle, request)) return;
    const { socket_ } = core;
    entities.bytes_ = Math.ceil(entities.bytes_ / (events.length || 1));
    for (const range of vacant) {
      const from = parseSeq(range?.[0]);
      const to = parseSeq(range?.[1]);
      if (from < 0 || to < 0) bad();
      else core.put_(VACANT, handle, NONE, epoch, from, to);
      if (core.socket_ !== socket_) return;
    }
    for (const event of events) {
      if (isObject(event)) {
        receiveEvent(entities.cellAt_(handle), handle, entities.modelOf_(handle), event, frame.epoch, false);
      } else bad();
      if (core.socket_ !== socket_) return;
    }
    core.put_(END_REPLAY, handle, request, 0, +(frame.done === true));
  };

  const receiveHeads = (frame: Frame, request: number) => {
    const { heads = [], cursors = [] } = frame;
    if (!Array.isArray(heads) || !Array.isArray(cursors)) return bad();
    const { socket_ } = core;
    for (const head of heads) {
      const handle = entities.handleOf_(head?.[0]);
      if (handle === undefined) continue;
      const epoch = names.epoch_(head[1]);
      const seq = parseSeq(head[2]);
      if (epoch < 0 || seq < 0) bad();
      else core.put_(HEAD, handle, request, epoch, seq);
      if (core.socket_ !== socket_) return;
    }
    for (const cursor of cursors) {
      const handle = entities.handleOf_(cursor?.[0]);
      if (handle !== undefined) keepCursor(handle, cursor[1]);
    }
    if (request >= 0) core.put_(END_HEADS, NONE, request);
  };

  const keepCursor = (handle: number, cursor: unknown) => {
    if (typeof cursor !== 'string' || !entities.modelOf_(handle).isTopic_) return;
    entities.cellOf_(handle).cursor_ = cursor;
    core.give_(CURSOR, handle);
  };

  const dropParts = (key: string) => {
    partBytes -= parts.get(key)?.bytes_ ?? 0;
    parts.delete(key);
  };

  /** Returns the whole snapshot when its last part came. */
  const addPart = (handle: number, request: number, epoch: number, seq: number, frame: Frame): Frame | void => {
    const part = parseSeq(frame.part);
    const of = parseSeq(frame.of);
    if (part < 1 || of < part || of > PARTS) return bad();
    const key = `${handle}:${request}`;
    let open = parts.get(key);
    const isWanted = core.give_(PART, handle, request);
    if (!isWanted || !open || open.seq_ !== seq || open.epoch_ !== epoch || open.of_ !== of) {
      dropParts(key);
      if (!isWanted) return core.drain_();
      if (parts.size >= ASSEMBLIES) dropParts(parts.keys().next().value!);
      open = { of_: of, seq_: seq, epoch_: epoch, list_: Array.from({ length: of }), left_: of, bytes_: 0 };
      parts.set(key, open);
    }
    if (!open.list_[part - 1]) {
      open.list_[part - 1] = frame;
      open.left_--;
      open.bytes_ += entities.bytes_;
      partBytes += entities.bytes_;
    }
    const isTooLarge = partBytes > PARTS_BYTES;
    if (open.left_ > 0 && !isTooLarge) return;
    dropParts(key);
    const data = isTooLarge ? undefined : join(open.list_.map((frame) => frame.data));
    return data === undefined ? bad() : { ...open.list_[0], data };
  };

  let said: Frame | undefined;

  return {
    get said_() {
      return said;
    },

    dropParts_() {
      parts.clear();
      partBytes = 0;
    },

    receive_(data) {
      const { socket_ } = core;
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
        entities.bytes_ = text.length;
        return receiveFrame(frame);
      }
      entities.bytes_ = Math.ceil(text.length / frame.length);
      for (let i = 0; i < frame.length; i++) {
        receiveFrame(frame[i]);
        // A callback may have closed the client, or the core replaced the socket.
        if (core.socket_ !== socket_) return;
      }
    },
  };
}
