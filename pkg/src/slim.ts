import { makeClient } from '#client';
import { InorderError } from './errors.js';
import { model } from './model.js';
import type { ClientOptions, Client } from './public/api.js';

export { InorderError, model };

/** Makes a client from wasm that the caller brings. */
export function createClient(options: ClientOptions): Client {
  if (!options?.wasm) {
    throw new InorderError('invalid_option', 'wasm` is needed: bytes, a URL, a Response or a Module of inorder.wasm');
  }
  return makeClient(options, options.wasm);
}
