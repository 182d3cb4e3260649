// Both are made by scripts/build-package.mjs. `boundary.ts` has the types of the first.
declare module '#glue' {
  export const __wbg_reset_state: any;
  export const attach: any;
  export const initSync: any;
  export const open_socket: any;
  export const stats: any;
}

declare module '#wasm' {
  const packed: string;
  export default packed;
}
