// Every case of `tests/cases` through the package, on a page of its own kind: with the browser's engine, window and
// document. Only time, sockets and what the page sees are scripted.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import type { Browser, Page } from 'playwright-core';
import type {} from '../package/cases/browser';
import { files } from '../package/cases/files';
import { launch } from './browser';

const TIMEOUT_MS = 120_000;

let browser: Browser;
let page: Page;
const errors: string[] = [];

/** The runner and the package as one script. */
async function bundle(): Promise<string> {
  const input = fileURLToPath(new URL('../package/cases/browser.ts', import.meta.url));
  const build = await rolldown({ input, platform: 'browser' });
  const { output } = await build.generate({ format: 'iife', codeSplitting: false });
  await build.close();
  return output[0].code;
}

beforeAll(async () => {
  browser = await launch();
  page = await browser.newPage();
  page.on('pageerror', (error) => errors.push(String(error.stack ?? error)));
  await page.addScriptTag({ content: await bundle() });
}, TIMEOUT_MS);

afterAll(() => browser?.close(), TIMEOUT_MS);

describe.each(files)('$file', ({ cases }) => {
  for (const given of cases) {
    test(
      `${given.id} ${given.title}`,
      async () => {
        expect(await page.evaluate((json) => runCase(json), JSON.stringify(given))).toEqual([]);
        expect(errors).toEqual([]);
      },
      TIMEOUT_MS,
    );
  }
});
