import { makeClient } from '#client';
import { model } from './model.js';
import type { ClientOptions, Client } from './public/api.js';

export { InorderError } from './errors.js';
export { model };

/** Makes a client; the wasm is in a chunk of its own and loaded when it is needed. */
export function createClient(options: ClientOptions): Client {
  return makeClient(options, options?.wasm ?? (() => import('./inline.js').then(({ bytes }) => bytes())));
}
