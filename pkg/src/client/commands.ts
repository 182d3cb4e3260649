// Frames out.
import { options } from '#given';
import { AUTH, HELLO, NONE, PING, SEND_REPLAY, SEND_SNAPSHOT, SEND_SUBSCRIBE, SEND_UNSUBSCRIBE } from '../boundary.js';
import { isObject } from '../reduce.js';
import { split } from '../split.js';
import { ask, isOut } from './ask.js';
import { enter } from './core.js';
import { receiveMessage, send, token } from './connection.js';
import { report } from './delivery.js';
import { cellAt, entityNames } from './entities.js';
import { epochNames } from './names.js';

declare const VERSION: string;

/** Sends the command `kind`; `numbers` are as the driver's `outputs.rs` lays them out. */
export function command(kind: number, request: number, numbers: Float64Array): void {
  let at = 0;
  const next = () => numbers[at++]!;
  /** An entity's name, its epoch and number; what is undefined is left out of the JSON. */
  const place = () => {
    const [handle, epoch, seq] = [next(), next(), next()];
    return [entityNames[handle]!, epochNames[epoch], epoch < 0 ? undefined : seq, cellAt(handle)] as const;
  };
  const items: string[] = [];
  const frame = (frame: object) => JSON.stringify(frame);
  switch (kind) {
    case HELLO:
      return send(frame({ type: 'hello', token, client: `inorder/${VERSION}` }));
    case AUTH:
      return send(frame({ type: 'auth', token }));
    case PING:
      return send(frame({ type: 'ping', id: request }));
    case SEND_SUBSCRIBE:
      // Each: its place, whether to add the cursor, how many are behind, the places of those.
      while (at < numbers.length) {
        const [entity, epoch, after, cell] = place();
        const cursor = next() ? cell?.cursor_ : undefined;
        const behind = Array.from({ length: next() }, () => place().slice(0, 3));
        items.push(frame({ entity, epoch, after, params: cell?.params_, cursor, ...(behind[0] && { behind }) }));
      }
      return split('subscribe', request, 'entities', items, send);
    case SEND_REPLAY:
      // Each: a place, the last number or −1.
      while (at < numbers.length) {
        const [entity, epoch, from] = place();
        const to = next();
        const range = { epoch: epoch!, from: from!, ...(to >= 0 && { to }) };
        const { replayFrom } = options;
        if (!replayFrom) items.push(frame({ entity, ...range }));
        else {
          askInstead(entity, request, (signal) => replayFrom(entity, { ...range, signal }), {
            type: 'replay',
            epoch,
            done: true,
          });
        }
      }
      return split('replay', request, 'ranges', items, send);
  }
  for (const handle of numbers) {
    const entity = entityNames[handle]!;
    const { snapshotFrom } = options;
    if (kind === SEND_SNAPSHOT && snapshotFrom) {
      askInstead(entity, request, (signal) => snapshotFrom(entity, { signal }), { type: 'snapshot' });
    } else items.push(JSON.stringify(entity));
  }
  if (kind === SEND_UNSUBSCRIBE) split('unsubscribe', NONE, 'entities', items, send);
  else split(kind === SEND_SNAPSHOT ? 'snapshot' : 'heads', request, 'entities', items, send);
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
      report('source', entity, cause);
      answer({ type: 'error', request, entity });
    },
  );
}
