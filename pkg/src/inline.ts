// The chunk that holds the wasm: deflated, in base64, with the code around it.
import * as generated from '#glue';
import base64 from '#wasm';
import type { Glue } from './boundary.js';
import { unpack } from './load.js';

export const glue: Glue = generated;
export const bytes = (): Promise<ArrayBuffer> => unpack(base64);
