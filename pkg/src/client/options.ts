// Options: what may be given, what it must be, and what client and core make of it.
import { options } from '#given';
import { NONE } from '../boundary.js';
import { InorderError } from '../errors.js';
import { isNames, isObject, merge } from '../reduce.js';

/** Statuses with a number of their own; later ones cross the boundary as a hash. */
export const STATUSES = 1_024;

/** Models per client: their numbers are bytes, and one is that of topics. */
const MODELS = 254;

/** A number: what it is by default, its least (1) and its greatest value (what timers can hold). */
type Range = readonly [initial: number, min?: number | undefined, max?: number];

/**
 * What an option is: a number, close codes (those of its class by default), words (the first is the default), a type, a
 * group of options, or something that is looked at elsewhere.
 */
type Kind = Range | { readonly codes_: readonly number[] } | string | Kinds | undefined;
type Kinds = { readonly [name: string]: Kind };

const MAX = Number.MAX_SAFE_INTEGER;

/** The client's options; first the numbers, in the order of the driver's `options.rs`, and the close codes. */
const CLIENT: Kinds = {
  timeout: {
    connect: [15_000],
    subscribe: [5_000],
    replay: [3_000],
    snapshot: [5_000],
    probe: [5_000],
    user: [15_000],
  },
  backoff: { min: [100, 0], base: [500, 0], factor: [2, 1, 100], cap: [20_000, 0], stable: [5_000, 0] },
  gap: { grace: [100, 0], maxEvents: [1_000, 1, 1_000_000], maxBytes: [1 << 20, 1, MAX] },
  tries: { replay: [2, 1, 255] },
  requests: { max: [16, 1, 65_535] },
  badFrames: { max: [20] },
  maxAhead: [100_000, 1, MAX],
  linger: [1_000, 0],
  ping: [NONE],
  reconcile: [30_000],
  codes: {
    resume: { codes_: [] },
    anew: { codes_: [4009] },
    auth: { codes_: [4401] },
    stop: { codes_: [4400, 4403] },
  },
  ids: [32, 0, 65_535],
  flush: 'microtask sync frame',
  getToken: 'function',
  replayFrom: 'function',
  snapshotFrom: 'function',
  WebSocket: 'function',
  token: 'string',
  signal: 'object',
  logger: 'object',
  models: 'object',
  url: undefined,
  wasm: undefined,
};

/** Where they stand in the list that is read from them. */
const USER = 5;
const RESUME = 21;
const IDS = 25;

/** The options of a model; first those for the core. */
const MODEL: Kinds = {
  continuity: '+1 range prev none',
  onGap: 'replay snapshot skip',
  overlap: ' absolute',
  reopen: 'never epoch',
  resetSeq: [NONE, 0, MAX],
  ids: [NONE, 0, 65_535],
  replay: ' whole',
  reduce: undefined,
  terminal: undefined,
};

/** Close codes per class that are believed to be meant. */
const CODES = 32;

/** The longest time that timers can hold. */
const LONGEST = 0x7fff_ffff;

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

function refuse(what: string): never {
  throw new InorderError('invalid_option', what);
}

/** Checks options and returns their values in the order of `kinds`. What is misspelt is unknown, and refused. */
function read(where: string, given: any, kinds: Kinds): any[] {
  if (!isObject(given)) refuse(where ? `${where.slice(0, -1)}\` must be an object` : 'url` is missing, and `models`');
  const names = Object.keys(kinds);
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) refuse(`${where + name}\` is unknown; known are ${names.join(' ')}`);
  }
  return names.flatMap((name) => {
    const kind = kinds[name];
    const value = given[name];
    const must = (is: boolean, what: string) => is || refuse(`${where + name}\` must be ${what}`);
    const isIn = (value: unknown, min: number, max: number) =>
      Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max;
    if (typeof kind === 'string') {
      const words: unknown[] = kind.split(' ');
      const found = words.indexOf(value);
      if (words[1]) must(value === undefined || (!!value && found >= 0), `one of ${kind}`);
      else must(value === undefined || typeof value === kind, `of type ${kind}`);
      return words[1] ? Math.max(found, 0) : [value];
    }
    if (Array.isArray(kind)) {
      const [initial, min = 1, max = LONGEST] = kind;
      must(value === undefined || isIn(value, min, max), `a whole number from ${min} to ${max}`);
      return value ?? initial;
    }
    if (kind && 'codes_' in kind) {
      const list = value === undefined ? kind.codes_ : value;
      must(
        Array.isArray(list) && !list[CODES] && list.every((code) => isIn(code, 1_000, 4_999)),
        'a list of close codes from 1000 to 4999',
      );
      return [list];
    }
    return kind ? read(where + name + '.', value === undefined ? {} : value, kind as Kinds) : [value];
  });
}

/** What is wrong with a socket address: what it must be, or `undefined`. */
export function wrongUrl(url: unknown): string | undefined {
  let scheme = '';
  try {
    scheme = new URL(url as string).protocol;
  } catch {
    // Said below.
  }
  if (/^wss?:$/.test(scheme)) return undefined;
  return `a full address with 'wss:' or 'ws:'${scheme && `, not '${scheme}'`}`;
}

function readModel(name: string, given: any, isTopic = false): Model {
  const where = `models.${name}.`;
  const numbers = read(where, given, MODEL);
  const [reduce = 'replace', terminal = isTopic ? [] : ['completed', 'failed', 'cancelled']] = numbers.splice(7);
  const [continuity, onGap] = numbers;
  const judge = typeof terminal === 'function' ? terminal : undefined;
  const reduces = reduce === 'merge' ? merge : typeof reduce === 'function' ? reduce : undefined;
  if (/^topic$|\//.test(name) && !isTopic) refuse(`models\` must not name one '${name}'`);
  if (!reduces && reduce !== 'replace') refuse(`${where}reduce\` must be 'replace', 'merge' or a function`);
  if (!judge && !isNames(terminal)) refuse(`${where}terminal\` must be a list of statuses or a function`);
  if (onGap === SKIP && reduces) refuse(`${where}onGap\` must not be 'skip': \`reduce\` needs every change`);
  // A chain has no numbers to ask for.
  if (!given.onGap && continuity === PREV) numbers[1] = SNAPSHOT;
  if (numbers[5] < 0) numbers[5] = list[IDS];
  return {
    numbers_: [...numbers, +isTopic],
    reduce_: reduces,
    terminal_: new Set(judge ? [] : terminal),
    ends_: new Uint8Array(STATUSES),
    judge_: judge,
    isChained_: continuity === PREV,
    hasIds_: numbers[5] > 0,
    isTopic_: isTopic,
    isPlain_: !isTopic && !judge && !reduces,
  };
}

const list = read('', options, CLIENT);
const { url, models: given } = options;
const wrong = typeof url === 'function' ? undefined : wrongUrl(url);
if (wrong) refuse(`url\` must be ${wrong}`);
const names = Object.keys(given ?? {});
if (!given || names[MODELS]) refuse(`models\` must name up to ${MODELS} models`);

/** In the order of the driver's `options.rs`. */
export const numbers: readonly number[] = [...list.slice(0, RESUME), options.getToken ? 1 : 0];

/** Close codes by class: resume, anew, auth, stop, normal. */
export const codes: readonly (readonly number[])[] = [...list.slice(RESUME, IDS), [1_000]];

/** Milliseconds that user code has. */
export const userTimeout: number = list[USER];

/** By the core's number; the first is that of topics. */
export const models: readonly Model[] = [
  readModel('topic', {}, true),
  ...names.map((name) => readModel(name, given[name])),
];

/** The models' numbers by name. */
export const kinds: ReadonlyMap<string, number> = new Map(names.map((name, at) => [name, at + 1]));
