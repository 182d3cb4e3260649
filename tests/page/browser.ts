import { chromium, type Browser, type Page } from 'playwright-core';
import { chromiumFlags } from '../../scripts/tools.mjs';
import { watchPage } from './shown';

/** Where Chromium is; `npm test` says so. */
const executablePath = process.env['CHROMIUM'] || '/usr/bin/chromium';

/** Starts a browser without a window. */
export const launch = (): Promise<Browser> => chromium.launch({ executablePath, args: [...chromiumFlags] });

/** Opens a page that is watched; what its scripts throw is collected. */
export async function open(browser: Browser, url: string): Promise<{ page: Page; errors: string[] }> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error.stack ?? error)));
  await watchPage(page);
  await page.goto(url);
  return { page, errors };
}

/** Waits until `judge` finds nothing wrong any more; throws with what it found last. */
export async function until(ms: number, judge: () => Promise<string[]>): Promise<number> {
  const began = performance.now();
  for (;;) {
    const wrong = await judge().catch((error: unknown) => [String(error)]);
    const took = performance.now() - began;
    if (wrong.length === 0) return took;
    if (took > ms) throw new Error(`after ${ms} ms still:\n${wrong.slice(0, 20).join('\n')}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
