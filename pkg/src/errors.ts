import type { ErrorCode } from './public/api.js';

/** What is thrown for wrong options and reported for everything else. */
export class InorderError extends Error {
  override readonly name = 'InorderError';
  readonly code: ErrorCode;
  readonly retryable: boolean;
  declare readonly entity?: string;

  constructor(code: ErrorCode, message: string, retryable = false, entity?: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.retryable = retryable;
    if (entity !== undefined) this.entity = entity;
  }
}
