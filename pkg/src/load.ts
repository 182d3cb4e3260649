import type { Core, Glue } from './boundary.js';
import type { Client } from './client.js';
import { InorderError } from './errors.js';
import type { WasmSource } from './public/api.js';

/** The code around the wasm, and the wasm itself. */
export interface Parts {
  readonly glue: Glue;
  readonly wasm: WasmSource;
}

/** The one instance of the wasm on this page; all clients share it. */
export interface Instance {
  readonly glue: Glue;
  core: Core;
  /** Clients that a trap concerns. */
  readonly clients: Set<Client>;
}

let loading: Promise<Instance> | undefined;

/** The instance, once it is there. */
export let loaded: Instance | undefined;

/**
 * Loads the wasm, once per page. A failure is not kept: the next call tries again.
 *
 * @throws InorderError `load`
 */
export function load(find: () => Promise<Parts>): Promise<Instance> {
  loading ??= begin(find).catch((cause) => {
    loading = undefined;
    const forbidden = cause instanceof WebAssembly.CompileError && /security|unsafe-eval/i.test(cause.message);
    const what = forbidden
      ? "The page's policy forbids wasm: add 'wasm-unsafe-eval' to script-src."
      : 'The wasm could not be loaded, see `cause`: serve the package whole.';
    throw new InorderError('load', what, !forbidden, undefined, cause);
  });
  return loading;
}

async function begin(find: () => Promise<Parts>): Promise<Instance> {
  const { glue, wasm } = await find();
  const module = await compile(wasm);
  return (loaded = { glue, core: glue.initSync({ module }), clients: new Set() });
}

async function compile(source: WasmSource): Promise<WebAssembly.Module> {
  let wasm: any = await source;
  if (typeof wasm === 'function') return compile(wasm());
  if (typeof wasm === 'string' || wasm instanceof URL) wasm = await fetch(wasm);
  // Not `compileStreaming`: many servers send another content type.
  if (typeof wasm?.arrayBuffer === 'function') {
    if (wasm.ok === false) throw new Error(`${wasm.url}: ${wasm.status}`);
    wasm = await wasm.arrayBuffer();
  }
  return wasm instanceof WebAssembly.Module ? wasm : WebAssembly.compile(wasm);
}
