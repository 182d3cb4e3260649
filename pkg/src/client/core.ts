// The instance of the wasm, and the one wrapper around every entry into it.
import { type Exports, NONE, REGISTERS } from '../boundary.js';

/** The longest time that timers can hold. */
const LONGEST = 0x7fff_ffff;

/** What the core calls. */
export interface Hooks {
  /** It has something to say; its numbers are in the registers. */
  output_(kind: number, registers: Float64Array): void;
  /** It has nothing more to say. */
  idle_(): void;
  /** The timer fired. */
  timeout_(): void;
  /** The wasm trapped, or this code has a bug. */
  trap_(cause: unknown): void;
}

let hooks: Hooks;

export function listenToCore(given: Hooks): void {
  hooks = given;
}

/** `undefined` before it is loaded, after a trap, and when the client is closed. */
export let wasm: Exports | undefined;
// From the exports' dictionary they would be looked up anew for each event.
export let accept: Exports['accept'];
export let acceptWithId: Exports['accept_with_id'];

let view: Float64Array;
let now = 0;
/** When the timer is due. */
let due = NONE;
let timer: ReturnType<typeof setTimeout> | undefined;

/** A change is being handed over, or outputs are: what comes meanwhile waits. */
export let isBusy = false;
let isAgain = false;
let tasks: (() => void)[] = [];

/** The socket of the frames in hand: a number that changes with it. */
export let line = 0;

export function changeLine(): void {
  line++;
}

/** The time of this entry. Read when it is first needed: a clean event needs none, and some clocks are slow. */
export function time(): number {
  return (now ||= performance.now());
}

export function registers(): Float64Array {
  // The view is void when the memory grew.
  if (!view.length) view = new Float64Array(wasm!.memory.buffer, wasm!.registers(), REGISTERS);
  return view;
}

/** Every way into the wasm leads through here: the only catch for its traps (R38). */
export function enter<A>(entry: (a: A) => unknown, a?: A): void {
  try {
    now = 0;
    entry(a as A);
  } catch (cause) {
    hooks.trap_(cause);
  }
}

/** Gives an input and returns the answer. */
export function give(input: number, ...numbers: number[]): number {
  if (!wasm) return 0;
  registers().set(numbers);
  return wasm.handle(input, time());
}

/** Gives an input and does what the core says. */
export function put(input: number, ...numbers: number[]): void {
  give(input, ...numbers);
  drain();
}

/** Does what the core says until it has nothing more to say. Inside itself it leaves that to the outer one. */
export function drain(): void {
  if (isBusy) isAgain = true;
  else if (wasm) enter(drainNow);
}

function drainNow(): void {
  isBusy = true;
  do {
    isAgain = false;
    // A callback may have trapped it.
    for (let kind; wasm && (kind = wasm.poll(time()));) hooks.output_(kind, registers());
    hooks.idle_();
    const task = tasks.shift();
    if (task) {
      isAgain = true;
      isBusy = false;
      task();
      isBusy = true;
    }
  } while (isAgain);
  isBusy = false;
  if (!wasm) return;
  // One that is due has fired, or is about to: a page that slept fires late, not never.
  const next = wasm.timeout();
  if (next === due && due > time()) return;
  clearTimeout(timer);
  due = next;
  if (due >= 0) timer = setTimeout(onTimer, Math.min(due - Math.floor(time()), LONGEST));
}

function onTimer(): void {
  due = NONE;
  enter(hooks.timeout_);
}

/** What comes from now on waits. */
export function hold(): void {
  isBusy = true;
}

/** What waits may go on. */
export function release(): void {
  isBusy = false;
  if (isAgain) drain();
}

/** Does something when the core has nothing more to say. */
export function later(task: () => void): void {
  tasks.push(task);
  isAgain = true;
}

/** Drains within a callback. */
export function drainAtOnce(): void {
  const outer = isBusy;
  isBusy = false;
  drain();
  isBusy = outer;
}

/** An instance that was made ahead. */
let spare: WebAssembly.Instance | undefined;

/** Makes an instance, to be used later. */
export function prepare(module: WebAssembly.Module): WebAssembly.Instance {
  return (spare = new WebAssembly.Instance(module));
}

/** Begins with a new instance. */
export function instantiate(module: WebAssembly.Module, seeds: readonly [number, number], numbers: readonly number[]) {
  wasm = (spare ?? prepare(module)).exports as unknown as Exports;
  spare = undefined;
  ({ accept, accept_with_id: acceptWithId } = wasm);
  view = new Float64Array(0);
  registers().set(numbers);
  wasm.create(...seeds);
}

/** Drops the instance. */
export function discard(): void {
  wasm = undefined;
  isBusy = isAgain = false;
  tasks = [];
  due = NONE;
  clearTimeout(timer);
}
