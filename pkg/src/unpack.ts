/** Characters that JavaScript, HTML or a template might mind; the other 89 printable ones are digits. */
const UNUSED = '"$\'<\\`';

/** The digits that begin a pair; the others stand for a byte by themselves. */
const PAIRS = 2;

/**
 * Reads bytes from the text that `scripts/build-package.mjs` packs them into.
 *
 * The 87 most frequent bytes are one character each, the others two. Unlike base64 that leaves to the network's
 * compression what it is good at, and needs neither `DecompressionStream` nor `atob`. The first 64 characters say in
 * hexadecimal which bytes are the frequent ones.
 */
export function unpack(text: string): Uint8Array<ArrayBuffer> {
  const digits = new Uint8Array(127);
  let count = 0;
  for (let code = 32; code < 127; code++) if (!UNUSED.includes(String.fromCharCode(code))) digits[code] = count++;
  const singles: number[] = [];
  const others: number[] = [];
  for (let byte = 0; byte < 256; byte++) {
    const isSingle = (parseInt(text[byte >> 2]!, 16) >> (byte & 3)) & 1;
    (isSingle ? singles : others).push(byte);
  }
  const bytes = new Uint8Array(text.length);
  let length = 0;
  for (let at = 64; at < text.length;) {
    const digit = digits[text.charCodeAt(at++)]!;
    bytes[length++] = digit < PAIRS ? others[digit * count + digits[text.charCodeAt(at++)]!]! : singles[digit - PAIRS]!;
  }
  return bytes.subarray(0, length);
}
