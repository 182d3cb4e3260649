import type { Exports } from './boundary.js';

/** What the wasm of `inorder/debug` exports besides. */
interface Talking extends Exports {
  /** Where the text of the last panic begins. */
  message(): number;
  /** Its bytes; 0: there was none. */
  message_length(): number;
}

/** What the wasm said before it trapped, with the trap as its cause. A wasm that says nothing leaves the trap as it is. */
export function explain(cause: unknown, wasm: Exports): unknown {
  const { memory, message, message_length } = wasm as Talking;
  const length = message_length?.();
  if (!length) return cause;
  return new Error(new TextDecoder().decode(new Uint8Array(memory.buffer, message(), length)), { cause });
}
