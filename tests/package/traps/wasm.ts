// Real traps in the shipped wasm, without a line of it made for tests: the n-th call of an export runs a small module
// that traps, or the memory may not grow any more.
import { readFileSync } from 'node:fs';
import { root } from '../pages.js';

/** The shipped wasm. */
export const bytes = (): Uint8Array<ArrayBuffer> => new Uint8Array(readFileSync(`${root}pkg/dist/inorder.wasm`));

const CONST = 0x41;
const END = 0x0b;

/** Bodies of functions that trap, as the engine sees them after a panic, an overflow or a wild pointer. */
const BODIES = {
  /** What a Rust panic becomes. */
  panic: [0x00],
  /** A recursion without end: the call stack overflows. */
  'stack overflow': (self: number) => [0x10, self],
  /** −2³¹ / −1 does not fit. */
  'integer overflow': [CONST, 0x80, 0x80, 0x80, 0x80, 0x78, CONST, 0x7f, 0x6d, 0x1a],
  /** Reads behind the end of the memory. */
  'wild pointer': [CONST, 0x7f, 0x28, 0x02, 0x00, 0x1a],
} as const;

export type Kind = keyof typeof BODIES;
export const KINDS = Object.keys(BODIES) as Kind[];

const section = (id: number, content: readonly number[]): number[] => [id, content.length, ...content];

/** Functions that trap, each in its own way. */
const traps = ((): Record<Kind, () => void> => {
  const bodies = Object.values(BODIES).map((body, at) => (typeof body === 'function' ? body(at) : [...body]));
  const module = new Uint8Array([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, [1, 0x60, 0, 0]),
    ...section(3, [bodies.length, ...bodies.map(() => 0)]),
    ...section(5, [1, 0x00, 1]),
    ...section(7, [bodies.length, ...bodies.flatMap((_, at) => [1, 0x61 + at, 0x00, at])]),
    ...section(10, [bodies.length, ...bodies.flatMap((body) => [body.length + 2, 0, ...body, END])]),
  ]);
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(module));
  return Object.fromEntries(
    KINDS.map((kind, at) => [kind, exports[String.fromCharCode(0x61 + at)]]),
  ) as unknown as Record<Kind, () => void>;
})();

/** When a trap comes: before the function did anything, or after it did everything and before it answers. */
export type When = 'before' | 'after';

/** Counts the calls into all instances that are made while it watches, and traps one of them. */
export class Watch {
  /** The instances that were made, as long as somebody holds them. */
  readonly instances: WeakRef<object>[] = [];
  made = 0;
  /** Calls since the last `reset`. */
  calls = 0;
  trapped = 0;
  /** From a trap to the next instance, in milliseconds. */
  readonly took: number[] = [];
  private due: { readonly call: number; readonly when: When; readonly kind: Kind } | undefined;
  private since: number | undefined;
  private readonly real = WebAssembly.Instance;
  private readonly clock: () => number;

  constructor(clock: () => number) {
    this.clock = clock;
    const watch = this;
    WebAssembly.Instance = function (module: WebAssembly.Module, imports?: WebAssembly.Imports) {
      const exports = watch.wrap(new watch.real(watch.choose(module), imports).exports);
      watch.made += 1;
      if (watch.since !== undefined) watch.took.push(watch.clock() - watch.since);
      watch.since = undefined;
      watch.instances.push(new WeakRef(exports));
      return Object.create(watch.real.prototype, { exports: { value: exports } });
    } as unknown as typeof WebAssembly.Instance;
  }

  /** The module of the next instance; the one that is asked for unless something else is wanted. */
  choose = (module: WebAssembly.Module): WebAssembly.Module => module;

  stop(): void {
    WebAssembly.Instance = this.real;
  }

  /** Counts from here on. */
  reset(): void {
    this.calls = 0;
    this.due = undefined;
  }

  /** Traps the n-th call from here on. */
  trap(call: number, when: When, kind: Kind): void {
    this.reset();
    this.due = { call, when, kind };
  }

  /** A trap that somebody else brought about. */
  noteTrap(): void {
    this.since = this.clock();
  }

  private wrap(exports: WebAssembly.Exports): WebAssembly.Exports {
    const wrapped: WebAssembly.Exports = {};
    for (const [name, value] of Object.entries(exports)) {
      wrapped[name] = typeof value === 'function' ? this.wrapFunction(value as (...args: any[]) => unknown) : value;
    }
    return wrapped;
  }

  private wrapFunction(real: (...args: any[]) => unknown): (...args: any[]) => unknown {
    return (...args) => {
      const { due } = this;
      const isDue = ++this.calls === due?.call;
      if (isDue && due.when === 'before') this.explode(due.kind);
      const result = real(...args);
      if (isDue) this.explode(due.kind);
      return result;
    };
  }

  private explode(kind: Kind): void {
    this.due = undefined;
    this.trapped += 1;
    this.noteTrap();
    traps[kind]();
  }
}

/** The same module with a memory that may grow by so many pages and no more. */
export function limited(source: Uint8Array, pages: number): Uint8Array<ArrayBuffer> {
  const read = (at: number): { value: number; next: number } => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = source[at++]!;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return { value, next: at };
    }
  };
  const write = (value: number): number[] => (value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...write(value >>> 7)]);
  for (let at = 8; at < source.length;) {
    const id = source[at]!;
    const { value: size, next } = read(at + 1);
    const end = next + size;
    if (id === 5) {
      const { value: least } = read(next + 2);
      const content = [1, 0x01, ...write(least), ...write(least + pages)];
      return new Uint8Array([
        ...source.subarray(0, at),
        id,
        ...write(content.length),
        ...content,
        ...source.subarray(end),
      ]);
    }
    at = end;
  }
  throw new Error('the wasm has no memory of its own');
}
