import { InorderError } from './errors.js';
import type { WasmSource } from './public/api.js';

let loading: Promise<WebAssembly.Module> | undefined;

/** The compiled wasm, once it is there. Every client makes an instance of its own. */
export let loaded: WebAssembly.Module | undefined;

/**
 * Loads and compiles the wasm, once per page. A failure is not kept: the next call tries again.
 *
 * @throws InorderError `load`
 */
export const load = (source: WasmSource): Promise<WebAssembly.Module> =>
  (loading ??= compile(source).then(
    (module) => (loaded = module),
    (cause) => {
      loading = undefined;
      // A policy will not change. Each browser has its own words and class for it.
      throw new InorderError('load', undefined, cause, !/eval|csp|security/i.test(cause));
    },
  ));

async function compile(source: WasmSource): Promise<WebAssembly.Module> {
  let wasm: any = await source;
  if (typeof wasm === 'function') return compile(wasm());
  if (typeof wasm === 'string' || wasm instanceof URL) wasm = await fetch(wasm);
  // Not `compileStreaming`: many servers send another content type.
  if (wasm?.arrayBuffer) {
    if (!wasm.ok) throw new Error(`${wasm.url}: ${wasm.status}`);
    wasm = await wasm.arrayBuffer();
  }
  return wasm instanceof WebAssembly.Module ? wasm : WebAssembly.compile(wasm);
}
