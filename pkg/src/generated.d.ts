// Both are made by scripts/build-package.mjs. `boundary.ts` has the types of the first.
declare module '#glue';

declare module '#wasm' {
  const packed: string;
  export default packed;
}
