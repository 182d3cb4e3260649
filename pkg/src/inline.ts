// The chunk that holds the wasm as text, with the code around it.
import * as generated from '#glue';
import packed from '#wasm';
import type { Glue } from './boundary.js';
import { unpack } from './unpack.js';

export const glue: Glue = generated;
export const bytes = (): BufferSource => unpack(packed);
