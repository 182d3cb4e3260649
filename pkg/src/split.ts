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
  let waiting: string[] = [];
  let bytes = ENVELOPE;
  const flush = () => {
    if (waiting[0]) send(`{"type":"${type}",${request < 0 ? '' : `"request":${request},`}"${list}":[${waiting}]}`);
    waiting = [];
    bytes = ENVELOPE;
  };
  for (const item of items) {
    // Outside ASCII a UTF-16 unit takes at most three bytes.
    const more = item.length * (/^[\0-\x7f]*$/.test(item) ? 1 : 3) + 1;
    if (bytes + more > COMMAND_BYTES) flush();
    waiting.push(item);
    bytes += more;
  }
  flush();
}
