/// <reference lib="esnext.disposable" />
/**
 * The same for callers that bring the WebAssembly themselves.
 *
 * @module inorder/slim
 */
import type { Client, ClientOptions, Model, ModelOptions, Models, WasmSource } from './api.js';

export * from './api.js';

/**
 * Makes a client from wasm that the caller brings: its bytes, a URL, a Response or a Module.
 *
 * @throws {@link InorderError} `invalid_option` when an option is wrong.
 */
export declare function createClient<const M extends Models>(
  options: ClientOptions<M> & { readonly wasm: WasmSource },
): Client<M>;

/** Declares how the entities of one kind behave. `S` is their state, `E` the data of their events. */
export declare function model<S = unknown, E = S>(options?: ModelOptions<S, E>): Model<S, E>;
