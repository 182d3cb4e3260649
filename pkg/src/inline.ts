// The chunk that holds the wasm as text.
import packed from '#wasm';
import { unpack } from './unpack.js';

export const bytes = (): BufferSource => unpack(packed);
