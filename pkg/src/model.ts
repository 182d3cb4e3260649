import type { Model, ModelOptions } from './public/api.js';

/** Declares how the entities of one kind behave; checked by `createClient`. */
export function model<S = unknown, E = S>(options: ModelOptions<S, E> = {}): Model<S, E> {
  return options as Model<S, E>;
}
