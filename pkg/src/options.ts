import { InorderError } from './errors.js';
import type { ClientOptions, ModelOptions } from './public/api.js';
import { isObject, merge } from './reduce.js';

/** Statuses with a number of their own; later ones cross the boundary as a hash. */
export const STATUSES = 1_024;

/** Models per client: their numbers are bytes. One is taken by topics. */
const MODELS = 255;

/** Close codes per class that are believed to be meant. */
const CODES = 32;

/** The statuses that end a history where the model does not say. */
const TERMINAL = ['completed', 'failed', 'cancelled'];

/** A model, ready for use. */
export interface ReadyModel {
  readonly numbers: readonly number[];
  readonly reduce: ((state: any, data: any) => unknown) | undefined;
  /** By status number: does it end the history? */
  readonly ends: Uint8Array;
  readonly terminal: ReadonlySet<string> | undefined;
  readonly judge: ((status: string | undefined, state: any) => boolean) | undefined;
  /** Its events name their predecessor, so that a missing `prev` must not be guessed. */
  readonly chained: boolean;
  readonly ids: boolean;
  readonly topic: boolean;
  /** Data is the whole state, and no user code judges it. */
  readonly plain: boolean;
  /** The core's number for it. */
  id: number;
}

/** Options, ready for use. Numbers are in the order of the driver's `options.rs`; `NaN` means the default. */
export interface ReadyOptions {
  readonly numbers: readonly number[];
  readonly models: ReadonlyMap<string, ReadyModel>;
  readonly topics: ReadyModel;
  readonly user: number;
}

function refuse(name: string, must: string): never {
  throw new InorderError('invalid_option', `Option \`${name}\` must be ${must}.`);
}

function number(name: string, value: unknown, min = 0, max = Number.MAX_SAFE_INTEGER): number {
  if (value === undefined) return NaN;
  if (!Number.isSafeInteger(value) || (value as number) < min || (value as number) > max) {
    refuse(name, `a whole number from ${min} to ${max}`);
  }
  return value as number;
}

function oneOf<T extends string>(name: string, value: unknown, ...allowed: T[]): number {
  if (value === undefined) return NaN;
  const index = allowed.indexOf(value as T);
  if (index < 0) refuse(name, allowed.map((word) => `'${word}'`).join(' or '));
  return index;
}

function group(options: object, name: string): Record<string, unknown> {
  const value = (options as Record<string, unknown>)[name];
  if (value !== undefined && !isObject(value)) refuse(name, 'an object');
  return (value ?? {}) as Record<string, unknown>;
}

/** Refuses what is not known, so that a misspelt option is noticed. */
function known(where: string, value: object, names: string): void {
  for (const key of Object.keys(value)) {
    if (!` ${names} `.includes(` ${key} `)) {
      throw new InorderError('invalid_option', `Option \`${where}${key}\` is unknown. Known are: ${names}.`);
    }
  }
}

/** The longest time: what timers can hold. */
const LONGEST = 0x7fff_ffff;

function times(options: object, name: string, keys: string, min = 0): number[] {
  const values = group(options, name);
  return keys.split(' ').map((key) => number(`${name}.${key}`, values[key], min, LONGEST));
}

function codes(options: object): number[] {
  const values = group(options, 'codes');
  known('codes.', values, 'resume anew auth stop');
  return ['resume', 'anew', 'auth', 'stop'].flatMap((name) => {
    const list = values[name];
    if (list === undefined) return [NaN];
    if (!Array.isArray(list) || list.length > CODES) refuse(`codes.${name}`, `a list of at most ${CODES} close codes`);
    return [list.length, ...list.map((code) => number(`codes.${name}`, code, 1_000, 4_999))];
  });
}

const replace = undefined;

function readModel(name: string, options: ModelOptions<any, any>, ids: number, topic = false): ReadyModel {
  const at = `models.${name}`;
  if (!isObject(options)) refuse(at, 'made by model()');
  known(`${at}.`, options, 'terminal reduce onGap continuity overlap reopen resetSeq ids replay');
  const { terminal = topic ? [] : TERMINAL, reduce } = options;
  const judged = typeof terminal === 'function';
  if (!judged && !(Array.isArray(terminal) && terminal.every((status) => typeof status === 'string'))) {
    refuse(`${at}.terminal`, 'a list of statuses or a function');
  }
  if (typeof reduce !== 'function') oneOf(`${at}.reduce`, reduce, 'replace', 'merge');
  const onGap = oneOf(`${at}.onGap`, options.onGap, 'replay', 'snapshot', 'skip');
  if (onGap === 2 && reduce !== undefined && reduce !== 'replace') {
    refuse(
      `${at}.onGap`,
      "'replay' or 'snapshot' unless `reduce` is 'replace': changes that build on each other can't be skipped",
    );
  }
  const continuity = oneOf(`${at}.continuity`, options.continuity, '+1', 'range', 'prev', 'none');
  const remembered = options.ids === undefined ? ids : number(`${at}.ids`, options.ids, 0, 65_535);
  return {
    numbers: [
      continuity,
      onGap,
      oneOf(`${at}.overlap`, options.overlap, 'absolute'),
      oneOf(`${at}.reopen`, options.reopen, 'never', 'epoch'),
      number(`${at}.resetSeq`, options.resetSeq),
      remembered,
      oneOf(`${at}.replay`, options.replay, 'whole'),
      topic ? 1 : NaN,
    ],
    reduce: reduce === 'merge' ? merge : typeof reduce === 'function' ? (reduce as ReadyModel['reduce']) : replace,
    ends: new Uint8Array(STATUSES),
    terminal: judged ? undefined : new Set(terminal),
    judge: judged ? (terminal as ReadyModel['judge']) : undefined,
    chained: continuity === 2,
    ids: remembered !== 0,
    topic,
    plain: !topic && !judged && (reduce === undefined || reduce === 'replace'),
    id: -1,
  };
}

/** Checks a socket address; says what is wrong with it, or `undefined`. */
export function wrongUrl(url: unknown): string | undefined {
  let scheme: string;
  try {
    scheme = new URL(String(url)).protocol;
  } catch {
    return "a full address such as 'wss://example.com/ws'";
  }
  if (scheme === 'ws:' || scheme === 'wss:') return undefined;
  return scheme.startsWith('http')
    ? `an address that begins with '${scheme === 'http:' ? 'ws:' : 'wss:'}' instead of '${scheme}'`
    : "an address that begins with 'wss:' or 'ws:'";
}

function isFunction(options: ClientOptions, ...names: (keyof ClientOptions)[]): void {
  for (const name of names) {
    if (options[name] !== undefined && typeof options[name] !== 'function') refuse(name, 'a function');
  }
}

/** Checks all options. */
export function readOptions(options: ClientOptions<any>): ReadyOptions {
  if (!isObject(options))
    throw new InorderError('invalid_option', 'createClient needs an object with `url` and `models`.');
  known(
    '',
    options,
    'url models getToken token replayFrom snapshotFrom flush WebSocket signal logger wasm timeout tries backoff codes requests badFrames gap maxAhead linger ids ping reconcile',
  );
  const { url, models, token, signal, logger } = options;
  if (typeof url !== 'function') {
    const wrong = wrongUrl(url);
    if (wrong) refuse('url', wrong);
  }
  isFunction(options, 'getToken', 'replayFrom', 'snapshotFrom', 'WebSocket');
  if (token !== undefined && typeof token !== 'string') refuse('token', 'a string');
  if (signal !== undefined && typeof signal?.addEventListener !== 'function') refuse('signal', 'an AbortSignal');
  if (logger && typeof logger.error !== 'function') refuse('logger', 'an object with `error` and `warn`, or null');
  oneOf('flush', options.flush, 'microtask', 'sync', 'frame');

  const timeout = group(options, 'timeout');
  const backoff = group(options, 'backoff');
  const gap = group(options, 'gap');
  const tries = group(options, 'tries');
  const requests = group(options, 'requests');
  const badFrames = group(options, 'badFrames');
  known('timeout.', timeout, 'connect subscribe replay snapshot probe user');
  known('backoff.', backoff, 'min base factor cap stable');
  known('gap.', gap, 'grace maxEvents maxBytes');
  known('tries.', tries, 'replay');
  known('requests.', requests, 'max');
  known('badFrames.', badFrames, 'max');
  const ids = number('ids', options.ids, 0, 65_535);
  const numbers = [
    ...times(options, 'timeout', 'connect subscribe replay snapshot probe user', 1),
    ...times(options, 'backoff', 'min base'),
    number('backoff.factor', backoff['factor'], 1, 100),
    ...times(options, 'backoff', 'cap stable'),
    number('gap.grace', gap['grace'], 0, LONGEST),
    number('gap.maxEvents', gap['maxEvents'], 1, 1_000_000),
    number('gap.maxBytes', gap['maxBytes'], 1),
    number('tries.replay', tries['replay'], 1, 255),
    number('requests.max', requests['max'], 1, 65_535),
    number('badFrames.max', badFrames['max'], 1, LONGEST),
    number('maxAhead', options.maxAhead, 1),
    number('linger', options.linger, 0, LONGEST),
    number('ping', options.ping, 1, LONGEST),
    number('reconcile', options.reconcile, 1, LONGEST),
    options.getToken ? 1 : 0,
    ...codes(options),
  ];

  if (!isObject(models)) refuse('models', 'an object of models by name');
  const names = Object.keys(models);
  if (names.length === 0 || names.length >= MODELS) refuse('models', `an object with 1 to ${MODELS - 1} models`);
  const ready = new Map<string, ReadyModel>();
  for (const name of names) {
    if (name === 'topic' || name.includes('/'))
      refuse(`models.${name}`, "named otherwise: not 'topic' and without '/'");
    ready.set(name, readModel(name, models[name] as ModelOptions, ids));
  }
  return {
    numbers,
    models: ready,
    topics: readModel('topic', {}, ids, true),
    user: (timeout['user'] as number | undefined) ?? 15_000,
  };
}
