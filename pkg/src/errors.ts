import type { ErrorCode } from './public/api.js';

/**
 * What is wrong and what to do about it, in few words; docs/errors.md says more. `%` is what it is about.
 *
 * Those that begin with `!` are for good: the client does not go on by itself.
 */
const TEXTS: Readonly<Record<ErrorCode, string>> = {
  // Those of the core, in the order of its numbers.
  bad_frame: 'An unusable frame, or a number beyond `maxAhead`, was skipped: mend the server.',
  after_final: 'A change came after the final one of %: see `reopen` if that is meant.',
  diverged: 'Two events of % have one number: mend the server; a snapshot is asked for.',
  epoch_flapping: 'An old epoch of % came back: do two histories share one address?',
  auth_failed: 'The token was refused twice: check `getToken`.',
  token: '`getToken` failed, see `cause`: it is asked again.',
  forbidden: '!% is forbidden: check the token, then subscribe anew.',
  not_found: '!% is not known: check the name, then subscribe anew.',
  server: 'The server failed for %, see `cause`: it is asked again.',
  failed: 'Five snapshots of % failed: it is asked again every 30 s.',
  stopped: '!The server said stop: `connect()` starts again.',
  // The others.
  invalid_option: '!Option `%.',
  unknown_model: "!No model for '%': add one for the part before the first '/'.",
  params: '!`params` of % must be plain JSON data.',
  params_conflict: '!% is followed with other `params`: use the same, or end that first.',
  closed: '!The client is closed: make a new one.',
  listener: '!A listener %.',
  reduce: '`reduce` or `terminal` failed for %, see `cause`: a snapshot is asked for.',
  url: '`url` failed, see `cause`: it is asked again.',
  socket:
    'No connection: is inorder.v1.json spoken at `url`? https pages need wss:, Node before 22 the option `WebSocket`.',
  protocol: "The server chose '%' instead of inorder.v1.json: check `url`.",
  source: '`replayFrom` or `snapshotFrom` failed for %, see `cause`: it is asked again.',
  load: 'The wasm failed to load, see `cause`: serve the package whole; a policy needs `wasm-unsafe-eval`.',
  fault: 'The wasm failed, see `cause`: please report it; it starts anew.',
};

/** What is thrown for wrong options and reported for everything else. */
export class InorderError extends Error {
  /** Minifiers call classes as they like. */
  static override readonly name = 'InorderError';

  declare readonly code: ErrorCode;
  declare readonly retryable: boolean;
  declare readonly entity?: string;

  /** `about` is an entity, unless the code is about something else. */
  constructor(code: ErrorCode, about?: string, cause?: unknown, retryable = TEXTS[code][0] !== '!') {
    super(
      TEXTS[code].replace('!', '').replace('%', () => about ?? 'this client'),
      cause === undefined ? {} : { cause },
    );
    this.code = code;
    this.retryable = retryable;
    if (about !== undefined && !/^(inv|prot|list)/.test(code)) this.entity = about;
  }

  /** Of the class, not of each error: what an error's stack begins with is fixed before it has properties. */
  override get name(): string {
    return InorderError.name;
  }
}

const CODES = Object.keys(TEXTS) as ErrorCode[];

/** What the core reports, by its number. The first two are one to the application: a frame of no use. */
export const codeOf = (fault: number): ErrorCode => CODES[fault ? fault - 1 : 0]!;

/** Codes that the snapshot of their entity shows. */
export const IS_SHOWN = /^(forb|not|ser|so|fail|red)/;
