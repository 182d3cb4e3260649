import type { ErrorCode } from './public/api.js';

/** What is thrown for wrong options and reported for everything else. */
export class InorderError extends Error {
  override readonly name = 'InorderError';
  declare readonly entity?: string;

  constructor(
    readonly code: ErrorCode,
    message: string,
    readonly retryable = false,
    entity?: string,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
    if (entity !== undefined) this.entity = entity;
  }
}

/** What is asked of a client that was closed. */
export const closedError = (entity?: string): InorderError =>
  new InorderError('closed', 'The client is closed: make a new one.', false, entity);

/** What the core reports, by its number: code, message with the entity for %, whether the entity's snapshot shows it. */
export const FAULTS: readonly (readonly [ErrorCode, string, boolean?])[] = [
  ['bad_frame', 'An unusable frame was skipped: mend the server.'],
  ['bad_frame', 'A number absurdly far ahead of %: mend the server, or see `maxAhead`.'],
  ['after_final', 'A change came after the final one of %: see `reopen` if that is meant.'],
  ['diverged', 'Two events of % have one number: mend the server; a snapshot decides.'],
  ['epoch_flapping', 'An old epoch of % came back: do two histories share one address?'],
  ['auth_failed', 'The token was refused twice: check `getToken`.'],
  ['token', '`getToken` failed, see `cause`: it is asked again.'],
  ['forbidden', '% is forbidden: check the token, then subscribe anew.', true],
  ['not_found', '% is not known: check the name, then subscribe anew.', true],
  ['server', 'The server failed on %, see `cause`: it is asked again.', true],
  ['failed', 'Five snapshots of % failed: it is tried again every 30 s.', true],
  ['stopped', 'The server said stop: `connect()` starts again.'],
];
