// Options: what may be given, what it must be, and what client and core make of it.
import { NONE } from './boundary.js';
import { InorderError } from './errors.js';
import type { ClientOptions } from './public/api.js';
import { isObject, merge } from './reduce.js';

/** Statuses with a number of their own; later ones cross the boundary as a hash. */
export const STATUSES = 1_024;

/** Models per client: their numbers are bytes. One is taken by topics. */
const MODELS = 255;

/** The statuses that end a history where the model does not say. */
const TERMINAL: unknown = ['completed', 'failed', 'cancelled'];

/** The options that are numbers, with their defaults, in the order of the driver's `options.rs`. */
const NUMBERS = {
  timeout: { connect: 15_000, subscribe: 5_000, replay: 3_000, snapshot: 5_000, probe: 5_000, user: 15_000 },
  backoff: { min: 100, base: 500, factor: 2, cap: 20_000, stable: 5_000 },
  gap: { grace: 100, maxEvents: 1_000, maxBytes: 1 << 20 },
  tries: { replay: 2 },
  requests: { max: 16 },
  badFrames: { max: 20 },
  maxAhead: 100_000,
  linger: 1_000,
  ping: NONE,
  reconcile: 30_000,
};

/** Where `timeout.user` is among them. */
const USER = 5;

/** The numbers that may be 0; the others are at least 1. */
const ZERO = /^(min|base|cap|stable|grace|linger|ids|resetSeq)$/;

/** Close codes by class, in the order of the boundary. */
const CODES = { resume: [], anew: [4009], auth: [4401], stop: [4400, 4403] };

/** Options of a type; some more are looked at one by one. */
const TYPES = {
  getToken: 'function',
  replayFrom: 'function',
  snapshotFrom: 'function',
  WebSocket: 'function',
  token: 'string',
};

/** A model's words, by their numbers; the first is the default. */
const WORDS = {
  continuity: '+1 range prev none',
  onGap: 'replay snapshot skip',
  overlap: ' absolute',
  reopen: 'never epoch',
  replay: ' whole',
  reduce: 'replace merge',
};

const PREV = 2;
const SNAPSHOT = 1;
const SKIP = 2;

/** A model, ready for use. */
export interface Model {
  /** In the order of the driver's `options.rs`. */
  readonly numbers_: readonly number[];
  /** `undefined`: data is the whole state. */
  readonly reduce_: ((state: any, data: any) => unknown) | undefined;
  readonly terminal_: ReadonlySet<unknown>;
  /** By status number: does it end the history? */
  readonly ends_: Uint8Array;
  readonly judge_: ((status: string | undefined, state: any) => boolean) | undefined;
  /** Its events name their predecessor, so that a missing `prev` must not be guessed. */
  readonly isChained_: boolean;
  readonly hasIds_: boolean;
  readonly isTopic_: boolean;
  /** Data is the whole state, and no user code judges it. */
  readonly isPlain_: boolean;
}

/** Options, ready for use. */
export interface Ready {
  /** In the order of the driver's `options.rs`. */
  readonly numbers_: readonly number[];
  /** By the core's number; the first is that of topics. */
  readonly models_: readonly Model[];
  /** The models' numbers by name. */
  readonly kinds_: ReadonlyMap<string, number>;
  readonly codes_: readonly (readonly number[])[];
  /** Milliseconds that user code has. */
  readonly user_: number;
}

type Given = Record<string, any>;
type Numbers = { readonly [name: string]: number | Numbers };

function refuse(name: string, must: string): never {
  throw new InorderError('invalid_option', `Option \`${name}\` must be ${must}.`);
}

/** Refuses what is not known, so that a misspelt option is noticed. */
function know(where: string, given: Given, names: readonly string[]): void {
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) {
      throw new InorderError('invalid_option', `Option \`${where + name}\` is unknown. Known are: ${names.join(' ')}.`);
    }
  }
}

function readGroup(name: string, value: unknown): Given {
  if (value !== undefined && !isObject(value)) refuse(name, 'an object');
  return value ?? {};
}

function readNumber(where: string, name: string, value: unknown, initial: number): number {
  if (value === undefined) return initial;
  const min = ZERO.test(name) ? 0 : 1;
  if (!Number.isSafeInteger(value) || (value as number) < min) refuse(where + name, `a whole number from ${min} up`);
  return value as number;
}

/** All numbers of a table, and of those in it. */
function readNumbers(where: string, given: Given, table: Numbers, others: readonly string[]): number[] {
  know(where, given, [...others, ...Object.keys(table)]);
  return Object.entries(table).flatMap(([name, initial]) =>
    typeof initial === 'object'
      ? readNumbers(name + '.', readGroup(name, given[name]), initial, [])
      : readNumber(where, name, given[name], initial),
  );
}

function readWord(name: string, value: unknown, words: string): number {
  const list: unknown[] = words.split(' ');
  const found = value === undefined ? 0 : list.indexOf(value);
  if (found < 0) refuse(name, `'${words.trim().replaceAll(' ', "' or '")}'`);
  return found;
}

function readCodes(given: Given): number[][] {
  know('codes.', given, Object.keys(CODES));
  return Object.entries(CODES).map(([name, initial]) => {
    const list = given[name] ?? initial;
    const isCode = (code: unknown) => Number.isInteger(code) && (code as number) >= 1_000 && (code as number) < 5_000;
    if (!Array.isArray(list) || !list.every(isCode)) refuse(`codes.${name}`, 'a list of close codes from 1000 to 4999');
    return list;
  });
}

function readModel(name: string, given: Given, ids: number, isTopic: boolean): Model {
  const where = `models.${name}.`;
  if (!isObject(given)) refuse(`models.${name}`, 'made by model()');
  const { terminal = isTopic ? [] : TERMINAL, reduce } = given as Given;
  know(where, given, ['terminal', 'resetSeq', 'ids', ...Object.keys(WORDS)]);
  const word = (name: keyof typeof WORDS) => readWord(where + name, given[name], WORDS[name]);
  const isJudged = typeof terminal === 'function';
  if (!isJudged && !(Array.isArray(terminal) && terminal.every((status) => typeof status === 'string'))) {
    refuse(where + 'terminal', 'a list of statuses or a function');
  }
  const reduces = typeof reduce === 'function' ? reduce : word('reduce') > 0 ? merge : undefined;
  const continuity = word('continuity');
  const onGap = word('onGap');
  if (onGap === SKIP && reduces) {
    refuse(where + 'onGap', "'replay' or 'snapshot' unless `reduce` is 'replace': deltas can't be skipped");
  }
  const ring = readNumber(where, 'ids', given['ids'], ids);
  return {
    numbers_: [
      continuity,
      // A chain has no numbers to ask for.
      given['onGap'] === undefined && continuity === PREV ? SNAPSHOT : onGap,
      word('overlap'),
      word('reopen'),
      readNumber(where, 'resetSeq', given['resetSeq'], NONE),
      ring,
      word('replay'),
      +isTopic,
    ],
    reduce_: reduces,
    terminal_: new Set(isJudged ? [] : (terminal as unknown[])),
    ends_: new Uint8Array(STATUSES),
    judge_: isJudged ? (terminal as Model['judge_']) : undefined,
    isChained_: continuity === PREV,
    hasIds_: ring > 0,
    isTopic_: isTopic,
    isPlain_: !isTopic && !isJudged && !reduces,
  };
}

/** What is wrong with a socket address: what it must be, or `undefined`. */
export function wrongUrl(url: unknown): string | undefined {
  let scheme = '';
  try {
    scheme = new URL(String(url)).protocol;
  } catch {
    // Said below.
  }
  if (/^wss?:$/.test(scheme)) return undefined;
  const better = scheme.replace('http', 'ws');
  return better === scheme
    ? "a full address that begins with 'wss:' or 'ws:'"
    : `an address that begins with '${better}' instead of '${scheme}'`;
}

/** Checks all options. */
export function readOptions(options: ClientOptions<any>): Ready {
  if (!isObject(options)) {
    throw new InorderError('invalid_option', 'createClient needs an object with `url` and `models`.');
  }
  const given = options as Given;
  const { url, models, signal, logger } = given;
  const others = ['url', 'models', 'codes', 'flush', 'signal', 'logger', 'wasm', 'ids', ...Object.keys(TYPES)];
  const numbers = readNumbers('', given, NUMBERS, others);
  const wrong = typeof url === 'function' ? undefined : wrongUrl(url);
  if (wrong) refuse('url', wrong);
  for (const [name, type] of Object.entries(TYPES)) {
    if (given[name] !== undefined && typeof given[name] !== type) refuse(name, `a ${type}`);
  }
  if (signal !== undefined && !signal?.addEventListener) refuse('signal', 'an AbortSignal');
  if (logger && !logger.error) refuse('logger', 'an object with `error`, or null');
  readWord('flush', given['flush'], 'microtask sync frame');
  const codes = readCodes(readGroup('codes', given['codes']));

  if (!isObject(models)) refuse('models', 'an object of models by name');
  const names = Object.keys(models);
  if (!names.length || names.length >= MODELS) refuse('models', `an object with 1 to ${MODELS - 1} models`);
  const ids = readNumber('', 'ids', given['ids'], 32);
  return {
    numbers_: [...numbers, given['getToken'] ? 1 : 0],
    models_: [
      readModel('topic', {}, ids, true),
      ...names.map((name) => {
        if (/^topic$|\//.test(name)) refuse(`models.${name}`, "named otherwise: not 'topic' and without '/'");
        return readModel(name, models[name] as Given, ids, false);
      }),
    ],
    kinds_: new Map(names.map((name, at) => [name, at + 1])),
    codes_: codes,
    user_: numbers[USER]!,
  };
}
