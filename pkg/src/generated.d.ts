// Made by scripts/build-package.mjs.

/** The wasm as text. */
declare module '#wasm' {
  const packed: string;
  export default packed;
}

/** `client/client.ts` and what it imports of its folder, wrapped into a function. */
declare module '#client' {
  export function makeClient(
    options: import('./public/api.js').ClientOptions<any>,
    source: import('./public/api.js').WasmSource,
  ): import('./public/api.js').Client<any>;
}

/** The arguments of that function. */
declare module '#given' {
  export const options: import('./public/api.js').ClientOptions<any>;
  /** The wasm; only asked for when it is needed. */
  export const source: import('./public/api.js').WasmSource;
}
