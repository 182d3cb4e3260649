// The instance of the wasm, and the one wrapper around every entry into it.
import { type Exports, NONE, REGISTERS } from './boundary.js';
import { none } from './store.js';
import type { WebSocketLike } from './public/api.js';

/** The longest time that timers can hold. */
const LONGEST = 0x7fff_ffff;

/** What the core calls. */
export interface Hooks {
  /** The core has something to say; its numbers are in the registers. */
  output_(kind: number, registers: Float64Array): void;
  /** The timer fired. */
  timeout_(): void;
  /** The wasm trapped, or this code has a bug. */
  trap_(cause: unknown): void;
}

/** The decisions: numbers in, numbers out. */
export interface Core {
  /** `undefined` before it is loaded, after a trap, and when the client is closed. */
  wasm_: Exports | undefined;
  accept_: Exports['accept'];
  acceptWithId_: Exports['accept_with_id'];
  /** A change is being handed over, or outputs are: what comes meanwhile waits. */
  isBusy_: boolean;
  /** What came meanwhile. */
  isAgain_: boolean;
  /** The socket of the frames in hand. */
  socket_: WebSocketLike | undefined;
  /** What is to be ended with the client, by what it is. */
  readonly ends_: Map<string, () => void>;
  /** The time of this entry. */
  time_(): number;
  registers_(): Float64Array;
  /** Every way into the wasm leads through here: the only catch for its traps (R38). */
  enter_<A>(entry: (a: A) => unknown, a?: A): void;
  /** Gives an input and returns the answer. */
  give_(input: number, ...numbers: number[]): number;
  /** Gives an input and does what the core says. */
  put_(input: number, ...numbers: number[]): void;
  /** Does what the core says until it has nothing more to say. Inside itself it leaves that to the outer one. */
  drain_(): void;
  /** Does something when the core has nothing more to say. */
  later_(task: () => void): void;
  begin_(module: WebAssembly.Module, seedHigh: number, seedLow: number, numbers: readonly number[]): void;
  /** There is no core any more. */
  end_(): void;
}

export function makeCore(hooks: Hooks): Core {
  let registers: Float64Array;
  let now = 0;
  let due = NONE;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let tasks: (() => void)[] = [];

  const onTimer = () => {
    due = NONE;
    it.enter_(hooks.timeout_);
  };

  /** Sets the timer to the next deadline, unless it is already. */
  const arm = () => {
    const next = it.wasm_!.timeout();
    // One that is due has fired, or is about to: a page that slept fires late, not never.
    if (next === due && due > it.time_()) return;
    clearTimeout(timer);
    due = next;
    if (due >= 0) timer = setTimeout(onTimer, Math.min(due - Math.floor(it.time_()), LONGEST));
  };

  const drain = () => {
    it.isBusy_ = true;
    do {
      it.isAgain_ = false;
      // A callback may have trapped it.
      for (let kind; it.wasm_ && (kind = it.wasm_.poll(it.time_())) > 0;) hooks.output_(kind, it.registers_());
      const task = tasks.shift();
      if (task) {
        it.isAgain_ = true;
        it.isBusy_ = false;
        task();
        it.isBusy_ = true;
      }
    } while (it.isAgain_);
    it.isBusy_ = false;
    if (it.wasm_) arm();
  };

  const it: Core = {
    wasm_: undefined,
    accept_: none as never,
    acceptWithId_: none as never,
    isBusy_: false,
    isAgain_: false,
    socket_: undefined,
    ends_: new Map(),

    // Read when it is first needed: a clean event needs none, and some clocks are slow.
    time_: () => (now ||= performance.now()),

    registers_() {
      // The view is void when the memory grew.
      if (!registers.length) registers = new Float64Array(it.wasm_!.memory.buffer, it.wasm_!.registers(), REGISTERS);
      return registers;
    },

    enter_(entry, a) {
      try {
        now = 0;
        entry(a as never);
      } catch (cause) {
        hooks.trap_(cause);
      }
    },

    give_(input, ...numbers) {
      if (!it.wasm_) return 0;
      it.registers_().set(numbers);
      return it.wasm_.handle(input, it.time_());
    },

    put_(input, ...numbers) {
      it.give_(input, ...numbers);
      it.drain_();
    },

    drain_() {
      if (it.isBusy_) it.isAgain_ = true;
      else if (it.wasm_) it.enter_(drain);
    },

    later_(task) {
      tasks.push(task);
      it.isAgain_ = true;
    },

    begin_(module, seedHigh, seedLow, numbers) {
      const wasm = (it.wasm_ = new WebAssembly.Instance(module).exports as unknown as Exports);
      // From the exports' dictionary they would be looked up anew for each event.
      it.accept_ = wasm.accept;
      it.acceptWithId_ = wasm.accept_with_id;
      registers = new Float64Array(0);
      it.registers_().set(numbers);
      wasm.create(seedHigh, seedLow);
    },

    end_() {
      it.wasm_ = undefined;
      it.isBusy_ = it.isAgain_ = false;
      tasks = [];
      due = NONE;
      clearTimeout(timer);
    },
  };
  return it;
}
