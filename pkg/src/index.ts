import { Client } from './client.js';
import { model } from './model.js';
import type { ClientOptions, Client as PublicClient } from './public/api.js';

export { InorderError } from './errors.js';
export { model };

/** Makes a client; the wasm is in a chunk of its own and loaded when it is needed. */
export function createClient(options: ClientOptions): PublicClient {
  return new Client(options, async () => {
    const { glue, bytes } = await import('./inline.js');
    return { glue, wasm: options.wasm ?? bytes() };
  });
}
