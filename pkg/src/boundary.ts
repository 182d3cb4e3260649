// The numbers that cross between the facade and the wasm; `src/web.rs` and `src/web/` have the same tables.

/** The wasm's exports. They take and give numbers only; one instance is one client. */
export interface Exports {
  readonly memory: WebAssembly.Memory;
  /** Where the registers are: `REGISTERS` doubles. */
  registers(): number;
  /** Makes the client; the registers hold its options. */
  create(seedHigh: number, seedLow: number): void;
  /** The registers hold the model. */
  add_model(): number;
  add_entity(model: number): number;
  accept(entity: number, prev: number, seq: number, epoch: number, status: number, visible: number): number;
  accept_with_id(
    entity: number,
    prev: number,
    seq: number,
    epoch: number,
    status: number,
    visible: number,
    idHigh: number,
    idLow: number,
  ): number;
  /** One input; the registers hold its numbers. */
  handle(input: number, now: number): number;
  /** The next output, its numbers in the registers; 0 when there is none. */
  poll(now: number): number;
  /** What is known of an entity, into the registers: sync, held events, epoch or −1, seq, status. After a trap, too. */
  read(entity: number): void;
  /** When `handle` wants to hear of a timeout; −1: never. */
  timeout(): number;
  /** The counters, into the registers, in the order of `STATS`. */
  stats(): void;
}

/** How many registers there are. */
export const REGISTERS = 64;

/** "None" in a register. */
export const NONE = -1;

// Inputs. What is about an entity has one layout: entity, request, epoch, seq (or head, or from), status (or to), slot,
// prev, id (two halves), whether it has data, bytes.
export const CONNECT = 1;
export const CLOSE = 2;
export const SUBSCRIBE = 3;
export const UNSUBSCRIBE = 4;
export const RELEASE = 5;
export const ADD_MEMBER = 6;
export const REMOVE_MEMBER = 7;
export const OPENED = 8;
/** The generation, and the class of the close code: resume, anew, auth, stop, normal. */
export const CLOSED = 9;
export const HEARD = 10;
export const WELCOME = 11;
export const EVENT = 12;
export const VACANT = 13;
export const SNAPSHOT = 14;
export const PART = 15;
export const SUBSCRIBED = 16;
export const BEGIN_REPLAY = 17;
export const END_REPLAY = 18;
export const GONE = 19;
export const AHEAD = 20;
export const FINAL = 21;
export const HEAD = 22;
export const END_HEADS = 23;
export const CURSOR = 24;
export const DISCONTINUITY = 25;
export const ERROR = 26;
export const GOODBYE = 27;
export const PONG = 28;
export const COUNT = 29;
export const BAD_FRAME = 30;
export const UNKNOWN = 31;
export const TOKEN = 32;
export const WAKE = 33;
export const VISIBLE = 34;
export const ONLINE = 35;
export const OFFLINE = 36;
export const PAGEHIDE = 37;
export const PAGESHOW = 38;
export const TIMEOUT = 39;
export const LOCK = 40;
export const ROLLBACK = 41;
export const RESTORE = 42;
/** The registers get as many epochs that are in use as fit; the answer is how many there are from the one named on. */
export const EPOCHS = 43;

// Verdicts of `accept`: 0 is "hand it over as an input", above APPLY there is nothing to show.
export const APPLY = 1;

// Outputs. All have one layout, that of inputs with: what it is about, kind (or sync, fault, state, close code, attempt,
// command), epoch, seq, status, slot, prev, id (two halves), 0, bytes, reset (or whether to add the cursor), from (or a
// wait), to, locks, request.
export const OUT_CHANGE = 1;
export const OUT_DISCARD = 2;
export const OUT_SYNC = 3;
export const OUT_GAP = 4;
export const OUT_FINAL = 5;
export const OUT_FAULT = 6;
export const OUT_FORGOTTEN = 7;
export const OUT_CONNECTION = 8;
export const OUT_DIAL = 9;
export const OUT_CLOSE = 10;
export const OUT_GET_TOKEN = 11;
export const OUT_CANCEL_TOKEN = 12;
export const OUT_SEND = 13;

// Commands
export const HELLO = 0;
export const AUTH = 1;
export const SEND_SUBSCRIBE = 2;
export const SEND_UNSUBSCRIBE = 3;
export const SEND_REPLAY = 4;
export const SEND_SNAPSHOT = 5;
export const PING = 7;
/** A member that is behind, of the `subscribe` before it. */
export const BEHIND = 8;

// `sync` of an entity
export const JOINING = 0;
export const LIVE = 1;
export const STALE = 3;
export const FINAL_SYNC = 4;

/** Names of the counters, in the order of the core's `Stats`. */
export const STATS =
  'applied adopted duplicates silent held overflowed gaps replays snapshots stale afterFinal retired diverged resets badFrames unknown unwanted dials replaced';
