// What wasm-bindgen generates, by name, so that the rest of it is left out.
import { __wbg_reset_state, attach, initSync, open_socket, stats } from '#glue';
import type { Glue } from './boundary.js';

export const glue: Glue = { __wbg_reset_state, attach, initSync, open_socket, stats };
