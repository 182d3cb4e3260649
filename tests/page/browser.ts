import { chromium, type Browser, type Page } from 'playwright-core';
import { chromiumFlags } from '../../scripts/tools.mjs';
import { watchPage } from './shown';

/** Where Chromium is; `npm test` says so. */
const executablePath = process.env['CHROMIUM'] || '/usr/bin/chromium';

/** Starts a browser without a window. */
export const launch = (): Promise<Browser> => chromium.launch({ executablePath, args: [...chromiumFlags] });

/** Opens a page that is watched; what its scripts throw is collected. */
export async function open(
  browser: Browser,
  url: string,
  viewport = { width: 1280, height: 900 },
): Promise<{ page: Page; errors: string[]; tape: Tape }> {
  const page = await browser.newPage({ viewport });
  const tape = new Tape(page);
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error.stack ?? error)));
  await watchPage(page);
  await page.goto(url);
  return { page, errors, tape };
}

/** What a socket brought or took, for whoever has to find out why a cell was wrong. */
export class Tape {
  readonly #messages: { readonly at: number; readonly text: string }[] = [];

  constructor(page: Page) {
    let sockets = 0;
    page.on('websocket', (socket) => {
      const name = ++sockets;
      const note = (text: string): void => void this.#messages.push({ at: Date.now(), text: `${name}${text}` });
      note(' opened');
      socket.on('framereceived', ({ payload }) => note(`< ${payload}`));
      socket.on('framesent', ({ payload }) => note(`> ${payload}`));
      socket.on('close', () => note(' closed'));
    });
  }

  /** The messages of the last `ms` milliseconds before `at` that concern an entity, or no entity at all. */
  before(at: number, ms: number, entity: string): string[] {
    return this.#messages
      .filter((message) => message.at > at - ms && message.at <= at)
      .filter(({ text }) => text.includes(`"${entity}"`) || !/"(event|snapshot|replay)"/.test(text))
      .map((message) => `${message.at - at} ms ${message.text}`);
  }
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
