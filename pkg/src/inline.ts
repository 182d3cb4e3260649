// The chunk that holds the wasm as text, with the code around it.
import packed from '#wasm';
import { unpack } from './unpack.js';

export { glue } from './glue.js';
export const bytes = (): BufferSource => unpack(packed);
