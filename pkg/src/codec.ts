// Frames in, commands out. The first half is the hot path: no closures and no lists per event.
import {
  AHEAD,
  APPLY,
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
  VACANT,
  WELCOME,
} from './boundary.js';
import type { Client } from './client.js';
import { isObject, join } from './reduce.js';

/** A frame as it was parsed: any field may be anything. */
export interface Frame {
  readonly [field: string]: any;
}

/** Parts of one snapshot, until it is whole (R17). */
export interface Parts {
  readonly of: number;
  readonly seq: number;
  readonly epoch: number;
  readonly list: (Frame | undefined)[];
  left: number;
  bytes: number;
}

/** Parts per snapshot. With frames of 256 KiB this is a state of 256 MiB. */
const PARTS = 1_024;

/** Bytes of unfinished snapshots over all entities; above it a snapshot that is still growing is dropped. */
const PARTS_BYTES = 64 << 20;

/** Snapshots that grow at a time. */
const ASSEMBLIES = 1_024;

const decoder = new TextDecoder('utf-8', { fatal: true });

/** Reads a socket message, frame by frame. */
export function receive(client: Client, data: unknown): void {
  const { line } = client;
  // Not within the `try`: what the core throws is no bad frame.
  if (client.repeats > SKIM_FROM && typeof data === 'string' && isRepeat(client, data)) return;
  let text: string;
  let frame: unknown;
  try {
    text = typeof data === 'string' ? data : decoder.decode(data as ArrayBuffer);
    frame = JSON.parse(text);
  } catch {
    client.badFrame();
    return;
  }
  if (!Array.isArray(frame)) {
    client.bytes = text.length;
    receiveFrame(client, frame);
    return;
  }
  client.bytes = Math.ceil(text.length / frame.length);
  for (let i = 0; i < frame.length; i++) {
    receiveFrame(client, frame[i]);
    // A callback may have closed the client, or the core replaced the socket.
    if (client.line !== line) return;
  }
}

/** More duplicates than other events by so many, and messages are skimmed before they are parsed. */
const SKIM_FROM = 64;
const REPEATS = 128;

/** How a server begins an event: its keys are in the order of the table. What is escaped is left to the parser. */
const BEGINS = /^\{"type":"event","entity":"([^"\\]+)","epoch":"([^"\\]*)","seq":(\d{1,15}),/;

/** Whether a message is a duplicate by its beginning: where most are, that is cheaper than to parse them all. */
function isRepeat(client: Client, text: string): boolean {
  // Frames with `n` are counted, so all must be read.
  const found = client.isCounted ? null : BEGINS.exec(text);
  if (found === null) return false;
  const handle = client.handles.get(found[1]!);
  const cell = handle === undefined ? undefined : client.cells[handle];
  const seq = +found[3]!;
  if (cell === undefined || !(seq <= cell.seq!) || found[2] !== cell.epoch) return false;
  // The core has the word: it knows of ids, locks and gaps.
  const verdict = client.accept(client.id, handle!, seq - 1, seq, client.internEpoch(found[2]), 0, 0);
  return noteRepeat(client, verdict > APPLY);
}

/** Keeps count of how common duplicates are. */
function noteRepeat(client: Client, isRepeat: boolean): boolean {
  if (isRepeat) client.repeats = Math.min(client.repeats + 1, REPEATS);
  else if (client.repeats > 0) client.repeats--;
  return isRepeat;
}

function receiveFrame(client: Client, frame: any): void {
  if (typeof frame !== 'object' || frame === null) {
    client.badFrame();
    return;
  }
  const { line } = client;
  if (frame.n !== undefined) receiveCount(client, frame.n);
  if (frame.type === 'event') receiveEvent(client, frame);
  else receiveOther(client, frame);
  // A hole in the count is noticed by a frame that says nothing else, too.
  if (frame.n !== undefined && client.line === line) client.drain();
}

function receiveEvent(client: Client, frame: Frame): void {
  const handle = client.handles.get(frame['entity']);
  if (handle === undefined) {
    client.unwanted(frame);
    return;
  }
  applyEvent(client, handle, frame, frame['epoch'], true);
}

/** `usable`: the core may take the short way. Replayed events never do. */
function applyEvent(client: Client, handle: number, frame: Frame, epochName: unknown, usable: boolean): void {
  const model = client.modelOf[handle]!;
  let seq = frame['seq'];
  // Not `Number.isSafeInteger` alone: decimal strings are numbers too (R11).
  if (typeof seq !== 'number' || seq < 0 || !Number.isSafeInteger(seq)) {
    seq = seq == null ? NaN : parseSeq(seq);
    if (seq < 0) return client.badFrame();
    usable = usable && seq === seq;
  }
  let prev = seq - 1;
  let given = NaN;
  if (frame['prev'] != null || frame['first'] != null) {
    given = prev = frame['prev'] != null ? parseSeq(frame['prev']) : parseSeq(frame['first']) - 1;
    if (prev < 0) return client.badFrame();
  } else if (model.chained) usable = false;
  const epoch = epochName === client.lastEpochName ? client.lastEpoch : client.internEpoch(epochName);
  const status = frame['status'] === client.lastStatusName ? client.lastStatus : client.internStatus(frame['status']);
  if (epoch < 0 || status < 0) return client.badFrame();
  const id = frame['id'];
  let high = 0;
  let low = 0;
  const isKnown = id != null && model.ids;
  if (isKnown) {
    fingerprint(client, String(id));
    high = hashHigh;
    low = hashLow;
  }
  if (usable) {
    const visible = frame['data'] !== undefined || status !== 0 ? 1 : 0;
    const verdict = isKnown
      ? client.acceptWithId(client.id, handle, prev, seq, epoch, status, visible, high, low)
      : client.accept(client.id, handle, prev, seq, epoch, status, visible);
    if (noteRepeat(client, verdict > APPLY)) return;
    if (verdict === APPLY) return client.applied(handle, model, frame, seq, epoch, status, high, low);
  }
  client.give(
    EVENT,
    handle,
    epoch,
    given,
    seq,
    high,
    low,
    status,
    frame['data'] === undefined ? 0 : 1,
    client.bytes,
    client.store(frame),
  );
  client.drain();
}

/** A number on the wire: a safe integer from 0, or the same as decimal digits; else −1 (R11). */
export function parseSeq(value: unknown): number {
  if (typeof value === 'string') {
    if (!/^\d{1,16}$/.test(value)) return NONE;
    value = +value;
  }
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : NONE;
}

let hashHigh = 0;
let hashLow = 0;

/** Two 32-bit hashes of an id with the client's seed: numbers cross the boundary at a fortieth of a string's cost. */
function fingerprint(client: Client, id: string): void {
  let high = client.seedHigh;
  let low = client.seedLow;
  const { length } = id;
  // Two units of 16 bits at a time; after the last one comes 0.
  for (let i = 0; i < length; i += 2) {
    const word = id.charCodeAt(i) | (i + 1 < length ? id.charCodeAt(i + 1) << 16 : 0);
    high = Math.imul(high ^ word, 0x9e3779b1);
    low = Math.imul(low ^ word, 0x85ebca6b);
    high ^= low >>> 15;
    low ^= high >>> 13;
  }
  hashHigh = high >>> 0;
  // 0 and 0 would mean "no id".
  hashLow = (low | 1) >>> 0;
}

function receiveCount(client: Client, n: unknown): void {
  const count = parseSeq(n);
  client.isCounted = true;
  if (count >= 0) client.give(COUNT, count);
}

function receiveOther(client: Client, frame: Frame): void {
  const { type } = frame;
  if (typeof type !== 'string') return client.badFrame();
  switch (type) {
    case 'welcome':
      return receiveWelcome(client, frame);
    case 'heartbeat':
    case 'heads':
      return receiveHeads(client, frame);
    case 'pong':
      return client.put(PONG, parseSeq(frame['id']));
    case 'error':
      return receiveError(client, frame);
    case 'goodbye':
      return client.put(GOODBYE, millis(frame['retryAfter']));
    case 'discontinuity':
      if (frame['entity'] == null) return client.put(DISCONTINUITY, NONE);
  }
  // The others are about one entity.
  const read = readers.get(type);
  if (read === undefined) return;
  const handle = client.handles.get(frame['entity']);
  if (handle === undefined) return client.unwanted(frame);
  const epoch = client.internEpoch(frame['epoch']);
  const request = frame['request'] == null ? NONE : parseSeq(frame['request']);
  if (epoch < 0) return client.badFrame();
  read(client, handle, frame, epoch, request);
}

type Reader = (client: Client, handle: number, frame: Frame, epoch: number, request: number) => void;

const readers = new Map<string, Reader>([
  ['snapshot', receiveSnapshot],
  ['replay', receiveReplay],
  [
    'subscribed',
    (client, handle, frame, epoch, request) => {
      const head = parseSeq(frame['head']);
      if (head < 0) return client.badFrame();
      keepCursor(client, handle, frame['cursor']);
      client.put(SUBSCRIBED, handle, request, epoch, head);
    },
  ],
  ['gone', (client, handle, _frame, _epoch, request) => client.put(GONE, handle, request)],
  [
    'ahead',
    (client, handle, frame, epoch, request) => {
      const head = parseSeq(frame['head']);
      if (head < 0) client.badFrame();
      else client.put(AHEAD, handle, request, epoch, head);
    },
  ],
  [
    'vacant',
    (client, handle, frame, epoch) => {
      const from = parseSeq(frame['from']);
      const to = parseSeq(frame['to']);
      if (from < 1 || to < from) client.badFrame();
      else client.put(VACANT, handle, epoch, from, to);
    },
  ],
  [
    'final',
    (client, handle, frame, epoch, request) => {
      const status = client.internStatus(frame['status']);
      if (status < 0) client.badFrame();
      else client.put(FINAL, handle, request, epoch, status, client.store(frame));
    },
  ],
  ['discontinuity', (client, handle) => client.put(DISCONTINUITY, handle)],
]);

function receiveWelcome(client: Client, frame: Frame): void {
  const heartbeat = frame['heartbeat'];
  const can: unknown[] = Array.isArray(frame['can']) ? frame['can'] : [];
  const { replayFrom, snapshotFrom } = client.options;
  client.put(
    WELCOME,
    typeof heartbeat === 'number' && heartbeat > 0 ? heartbeat * 1_000 : NONE,
    can.includes('replay') || replayFrom ? 1 : 0,
    can.includes('snapshot') || snapshotFrom ? 1 : 0,
    can.includes('heads') ? 1 : 0,
  );
}

function receiveSnapshot(client: Client, handle: number, frame: Frame, epoch: number, request: number): void {
  const seq = parseSeq(frame['seq']);
  const status = client.internStatus(frame['status']);
  if (seq < 0 || status < 0) return client.badFrame();
  if (frame['of'] != null) {
    const whole = addPart(client, handle, frame, epoch, request, seq);
    if (whole === undefined) return;
    frame = whole;
  }
  client.put(SNAPSHOT, handle, request, epoch, seq, status, client.store(frame));
}

/** Returns the whole snapshot when its last part came. */
function addPart(
  client: Client,
  handle: number,
  frame: Frame,
  epoch: number,
  request: number,
  seq: number,
): Frame | undefined {
  const part = parseSeq(frame['part']);
  const of = parseSeq(frame['of']);
  if (part < 1 || of < part || of > PARTS) {
    client.badFrame();
    return undefined;
  }
  const { parts } = client;
  const key = `${handle}:${request}`;
  if (client.give(PART, handle, request) === 0) {
    client.dropParts(key);
    client.drain();
    return undefined;
  }
  let open = parts.get(key);
  if (open === undefined || open.seq !== seq || open.epoch !== epoch || open.of !== of) {
    if (open) client.partBytes -= open.bytes;
    else if (parts.size >= ASSEMBLIES) client.dropParts(parts.keys().next().value!);
    open = { of, seq, epoch, list: Array.from({ length: of }), left: of, bytes: 0 };
    parts.set(key, open);
  }
  if (open.list[part - 1] === undefined) {
    open.list[part - 1] = frame;
    open.left--;
    open.bytes += client.bytes;
    client.partBytes += client.bytes;
  }
  const isTooLarge = client.partBytes > PARTS_BYTES;
  if (open.left > 0 && !isTooLarge) return undefined;
  client.dropParts(key);
  const data = isTooLarge ? undefined : join(open.list.map((frame) => frame?.['data']));
  if (data === undefined) {
    client.badFrame();
    return undefined;
  }
  return { ...open.list[0], data };
}

function receiveReplay(client: Client, handle: number, frame: Frame, epoch: number, request: number): void {
  const { events, vacant = [] } = frame;
  if (!Array.isArray(events) || !Array.isArray(vacant)) return client.badFrame();
  if (client.give(BEGIN_REPLAY, handle, request) === 0) return;
  const { line } = client;
  client.bytes = Math.ceil(client.bytes / (events.length || 1));
  for (const range of vacant) {
    const from = parseSeq(range?.[0]);
    const to = parseSeq(range?.[1]);
    if (from < 1 || to < from) client.badFrame();
    else client.put(VACANT, handle, epoch, from, to);
    if (client.line !== line) return;
  }
  for (const event of events) {
    if (isObject(event)) applyEvent(client, handle, event, frame['epoch'], false);
    else client.badFrame();
    if (client.line !== line) return;
  }
  client.put(END_REPLAY, handle, request, frame['done'] === true ? 1 : 0);
}

function receiveHeads(client: Client, frame: Frame): void {
  const { heads = [], cursors = [], type } = frame;
  if (!Array.isArray(heads) || !Array.isArray(cursors)) return client.badFrame();
  const request = type === 'heads' ? parseSeq(frame['request']) : NONE;
  const { line } = client;
  for (const head of heads) {
    const handle = client.handles.get(head?.[0]);
    if (handle === undefined) continue;
    const epoch = client.internEpoch(head[1]);
    const seq = parseSeq(head[2]);
    if (epoch < 0 || seq < 0) client.badFrame();
    else client.put(HEAD, handle, epoch, seq, request);
    if (client.line !== line) return;
  }
  for (const cursor of cursors) {
    const handle = client.handles.get(cursor?.[0]);
    if (handle !== undefined) keepCursor(client, handle, cursor[1]);
  }
  if (request >= 0) client.put(END_HEADS, request);
}

function keepCursor(client: Client, handle: number, cursor: unknown): void {
  if (typeof cursor !== 'string' || !client.modelOf[handle]!.topic) return;
  client.cellOf(handle).cursor = cursor;
  client.give(CURSOR, handle);
}

/** Error codes with a number; others are 3. */
const CODES = ['forbidden', 'not_found', 'token_expiring'];

function receiveError(client: Client, frame: Frame): void {
  const code = CODES.indexOf(frame['code']);
  const name = frame['entity'];
  const handle = name == null ? NONE : client.handles.get(name);
  if (handle === undefined) return client.unwanted(frame);
  client.said = frame;
  client.put(
    ERROR,
    code < 0 ? 3 : code,
    frame['request'] == null ? NONE : parseSeq(frame['request']),
    handle,
    millis(frame['retryAfter']),
  );
  client.said = undefined;
}

function millis(seconds: unknown): number {
  return typeof seconds === 'number' && seconds >= 0 ? seconds * 1_000 : NONE;
}

/** Commands are split at this size. */
const COMMAND_BYTES = 64 << 10;

/** Space for the keys around a command's items. */
const ENVELOPE = 128;

/** Bytes of a text, or a little more. */
function size(text: string): number {
  // Outside ASCII a UTF-16 unit takes at most three bytes.
  return /^[\0-\x7f]*$/.test(text) ? text.length : text.length * 3;
}

/** Writes a command with a list, in pieces of at most 64 KiB that share its request id. */
export function split(
  type: string,
  request: number,
  list: string,
  items: readonly string[],
  send: (text: string) => void,
): void {
  const head = `{"type":"${type}",${request < 0 ? '' : `"request":${request},`}"${list}":[`;
  let from = 0;
  let bytes = ENVELOPE;
  items.forEach((item, at) => {
    const more = size(item) + 1;
    if (at > from && bytes + more > COMMAND_BYTES) {
      send(`${head}${items.slice(from, at).join()}]}`);
      from = at;
      bytes = ENVELOPE;
    }
    bytes += more;
  });
  send(`${head}${items.slice(from).join()}]}`);
}
