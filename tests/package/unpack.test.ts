// The wasm as text: what scripts/build-package.mjs packs, the package unpacks.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { unpack } from '../../pkg/src/unpack.js';
import { pack } from '../../scripts/build-package.mjs';

test('any bytes come back', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 2_000 }), (bytes) => {
      expect(unpack(pack(bytes))).toEqual(bytes);
    }),
  );
  const all = Uint8Array.from({ length: 256 }, (_, i) => i);
  expect(unpack(pack(all))).toEqual(all);
});

test('the text is plain: nothing to escape in JavaScript or HTML', () => {
  const wasm = readFileSync(new URL('../../pkg/dist/inorder.wasm', import.meta.url));
  const text = pack(wasm);
  expect(text).toMatch(/^[ !#%&(-;=-[\]^_a-~]*$/);
  expect(text.length).toBeLessThan(wasm.length * 1.1);
});
