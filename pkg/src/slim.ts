import { Client } from './client.js';
import { InorderError } from './errors.js';
import { glue } from './glue.js';
import { model } from './model.js';
import type { ClientOptions, Client as PublicClient } from './public/api.js';

export { InorderError, model };

/** Makes a client from wasm that the caller brings. */
export function createClient(options: ClientOptions): PublicClient {
  const { wasm } = options;
  if (wasm === undefined) {
    throw new InorderError(
      'invalid_option',
      "Option `wasm` is needed with 'inorder/slim': bytes, a URL, a Response or a Module of inorder.wasm.",
    );
  }
  return new Client(options, async () => ({ glue, wasm }));
}
