// Made by scripts/build-package.mjs.
declare module '#wasm' {
  const packed: string;
  export default packed;
}
