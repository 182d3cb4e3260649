// Every case of `tests/cases` through the package. `tests/page/cases.test.ts` runs them in a browser.
import { beforeAll, describe, expect, test } from 'vitest';
import { files } from './files.js';
import { isPlain, prepare, run } from './runner.js';

beforeAll(prepare);

describe.each(files)('$file', ({ cases }) => {
  for (const given of cases) {
    test(`${given.id} ${given.title}`, async () => {
      expect(await run(given)).toEqual([]);
      if (isPlain(given)) expect(await run(given, true), 'plainly').toEqual([]);
    });
  }
});
