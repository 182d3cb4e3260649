// Frames out.
import { AUTH, HELLO, NONE, PING, SEND_REPLAY, SEND_SNAPSHOT, SEND_SUBSCRIBE, SEND_UNSUBSCRIBE } from './boundary.js';
import type { Entities } from './entities.js';
import type { Names } from './names.js';

declare const VERSION: string;

/** Commands are split at this size. */
const COMMAND_BYTES = 64 << 10;

/** Space for the keys around a command's items. */
const ENVELOPE = 128;

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
    // Outside ASCII a UTF-16 unit takes at most three bytes.
    const more = (/^[\0-\x7f]*$/.test(item) ? item.length : item.length * 3) + 1;
    if (at > from && bytes + more > COMMAND_BYTES) {
      send(`${head}${items.slice(from, at).join()}]}`);
      from = at;
      bytes = ENVELOPE;
    }
    bytes += more;
  });
  send(`${head}${items.slice(from).join()}]}`);
}

/** What is written of a command, and what user code is asked instead of the server. */
export interface Writer {
  send_(text: string): void;
  token_(): string | undefined;
  /** Undefined: the server is asked. */
  readonly replayFrom_: ((entity: string, request: number, range: Range) => void) | undefined;
  readonly snapshotFrom_: ((entity: string, request: number) => void) | undefined;
}

export interface Range {
  readonly epoch: string;
  readonly from: number;
  /** `undefined`: up to the newest. */
  readonly to: number | undefined;
}

/** Writes the command `kind`; `numbers` are as the driver's `outputs.rs` lays them out. */
export function write(
  kind: number,
  request: number,
  numbers: Float64Array,
  entities: Entities,
  names: Names,
  { send_, token_, replayFrom_, snapshotFrom_ }: Writer,
): void {
  const { names_ } = entities;
  const { epochs_ } = names;
  let at = 0;
  const next = () => numbers[at++]!;
  /** Entity, epoch or −1, seq; undefined members are left out of the JSON. */
  const place = () => {
    const [handle, epoch, seq] = [next(), next(), next()];
    const isPlaced = epoch >= 0;
    return { handle_: handle, name_: names_[handle]!, epoch_: epochs_[epoch], seq_: isPlaced ? seq : undefined };
  };
  const items: string[] = [];
  const token = token_();
  switch (kind) {
    case HELLO:
      return send_(JSON.stringify({ type: 'hello', token, client: `inorder/${VERSION}` }));
    case AUTH:
      return send_(JSON.stringify({ type: 'auth', token }));
    case PING:
      return send_(`{"type":"ping","id":${request}}`);
    case SEND_SUBSCRIBE:
      // Each: its place, whether to add the cursor, how many are behind, the places of those.
      while (at < numbers.length) {
        const { handle_, name_, epoch_, seq_ } = place();
        const cell = entities.cellAt_(handle_);
        const cursor = next() ? cell?.cursor_ : undefined;
        const behind = Array.from({ length: next() }, () => {
          const member = place();
          return [member.name_, member.epoch_, member.seq_];
        });
        items.push(
          JSON.stringify({
            entity: name_,
            epoch: epoch_,
            after: seq_,
            params: cell?.params_,
            cursor,
            behind: behind.length ? behind : undefined,
          }),
        );
      }
      return split('subscribe', request, 'entities', items, send_);
    case SEND_REPLAY:
      // Each: a place, the last number or −1.
      while (at < numbers.length) {
        const { name_, epoch_, seq_ } = place();
        const to = next();
        const range: Range = { epoch: epoch_!, from: seq_!, to: to < 0 ? undefined : to };
        if (replayFrom_) replayFrom_(name_, request, range);
        else items.push(JSON.stringify({ entity: name_, ...range }));
      }
      if (items.length) split('replay', request, 'ranges', items, send_);
      return;
  }
  for (const handle of numbers) {
    if (kind === SEND_SNAPSHOT && snapshotFrom_) snapshotFrom_(names_[handle]!, request);
    else items.push(JSON.stringify(names_[handle]));
  }
  if (!items.length) return;
  if (kind === SEND_UNSUBSCRIBE) split('unsubscribe', NONE, 'entities', items, send_);
  else split(kind === SEND_SNAPSHOT ? 'snapshot' : 'heads', request, 'entities', items, send_);
}
