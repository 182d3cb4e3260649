/// <reference lib="esnext.disposable" />
/**
 * The whole package; its WebAssembly comes in a chunk that is loaded when it is needed.
 *
 * @module inorder
 */
import type { Client, ClientOptions, Model, ModelOptions, Models } from './api.js';

export * from './api.js';

/**
 * Makes a client. Opens nothing and loads nothing: that happens at the first `connect()`, `subscribe()` or `preload()`,
 * so it may be called on a server.
 *
 * @throws {@link InorderError} `invalid_option` when an option is wrong.
 */
export declare function createClient<const M extends Models>(options: ClientOptions<M>): Client<M>;

/** Declares how the entities of one kind behave. `S` is their state, `E` the data of their events. */
export declare function model<S = unknown, E = S>(options?: ModelOptions<S, E>): Model<S, E>;
