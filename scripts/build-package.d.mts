/** Writes bytes as plain text. */
export function pack(bytes: Uint8Array): string;
