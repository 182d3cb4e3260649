// Frames out.
import { options } from '#given';
import {
  AUTH,
  BEHIND,
  HELLO,
  NONE,
  PING,
  SEND_REPLAY,
  SEND_SNAPSHOT,
  SEND_SUBSCRIBE,
  SEND_UNSUBSCRIBE,
} from '../boundary.js';
import { isObject } from '../reduce.js';
import { split } from '../split.js';
import { ask, isOut } from './ask.js';
import { enter } from './core.js';
import { receiveMessage, send, token } from './connection.js';
import { cellAt, entityNames } from './entities.js';
import { epochNames } from './names.js';

declare const VERSION: string;

/** By the core's numbers. */
const TYPES = ['hello', 'auth', 'subscribe', 'unsubscribe', 'replay', 'snapshot', 'heads', 'ping'];

const { replayFrom, snapshotFrom } = options;

/** A frame that is being collected. */
interface Command {
  readonly kind_: number;
  readonly request_: number;
  readonly items_: any[];
}

/** Members that are behind, for each naming of their topic: 30 KB where all have long names. */
const BEHINDS = 100;

let commands: Command[] = [];

/** Why user code did not answer, while the core hears of it. */
export let sourceFailure: { readonly cause: unknown } | undefined;

/** The core says a command entity by entity; frames may alternate. They are sent when it has said all. */
export function collect(
  handle: number,
  kind: number,
  { 2: epoch, 3: seq, 11: hasCursor, 12: from, 13: to, 15: request = 0 }: any,
): void {
  const frameKind = kind === BEHIND ? SEND_SUBSCRIBE : kind;
  let command = commands.find(({ kind_, request_ }) => kind_ === frameKind && request_ === request);
  if (!command) commands.push((command = { kind_: frameKind, request_: request, items_: [] }));
  const { items_: items } = command;
  const entity = entityNames[handle]!;
  const cell = cellAt(handle);
  // What is undefined is left out of the JSON.
  const epochName = epochNames[epoch];
  const after = epochName === undefined ? undefined : seq;
  switch (kind) {
    case SEND_SUBSCRIBE:
      items.push({
        entity,
        epoch: epochName,
        after,
        params: cell?.params_,
        cursor: hasCursor ? cell?.cursor_ : undefined,
      });
      break;
    case BEHIND: {
      let item = items.at(-1);
      // A long list goes on in a topic that is named again.
      if (item.behind?.length === BEHINDS) items.push((item = { ...item, behind: undefined }));
      (item.behind ??= []).push([entity, epochName, after]);
      break;
    }
    case SEND_REPLAY: {
      const range = { epoch: epochName!, from, ...(to >= 0 && { to }) };
      if (!replayFrom) items.push({ entity, ...range });
      else {
        const frame = { type: 'replay', epoch: epochName, done: true };
        askInstead(entity, request, (signal) => replayFrom(entity, { ...range, signal }), frame);
      }
      break;
    }
    default:
      if (kind === SEND_SNAPSHOT && snapshotFrom) {
        askInstead(entity, request, (signal) => snapshotFrom(entity, { signal }), { type: 'snapshot' });
      } else items.push(entity);
  }
}

/** Sends what was collected. */
export function sendCommands(): void {
  const ready = commands;
  commands = [];
  for (const { kind_, request_, items_ } of ready) {
    const type = TYPES[kind_]!;
    const client = kind_ === HELLO ? `inorder/${VERSION}` : undefined;
    if (kind_ === PING) send(JSON.stringify({ type, id: request_ }));
    else if (kind_ <= AUTH) send(JSON.stringify({ type, token, client }));
    else {
      const texts = items_.map((item) => JSON.stringify(item));
      split(
        type,
        kind_ === SEND_UNSUBSCRIBE ? NONE : request_,
        kind_ === SEND_REPLAY ? 'ranges' : 'entities',
        texts,
        send,
      );
    }
  }
}

/** Asks user code instead of the server; its answer is read like a frame. */
function askInstead(
  entity: string,
  request: number,
  call: (signal: AbortSignal) => PromiseLike<object>,
  frame: { readonly type: string; readonly [field: string]: unknown },
): void {
  const what = `${frame.type} ${request} ${entity}`;
  // A retry of a call that is out is none.
  if (isOut(what)) return;
  const answer = (frame: object) => enter(receiveMessage, JSON.stringify(frame));
  ask(
    what,
    async (signal) => {
      const answer = await call(signal);
      if (!isObject(answer)) throw new TypeError('It must return an object.');
      return answer;
    },
    (given) => answer({ ...frame, ...given, request, entity, type: frame.type }),
    (cause) => {
      sourceFailure = { cause };
      answer({ type: 'error', request, entity });
      sourceFailure = undefined;
    },
  );
}
