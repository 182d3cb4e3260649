// Both are made by scripts/build-package.mjs. `boundary.ts` has the types of the first.
declare module '#glue';

declare module '#wasm' {
  const base64: string;
  export default base64;
}
