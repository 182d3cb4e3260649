// The built page as somebody meets it who sees little, uses no mouse, listens, or wants no motion.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AxeResults } from 'axe-core';
import type { Browser, Page } from 'playwright-core';
import { launch, open, until } from './browser';
import { Files } from './files';
import { page as folder } from './gateway';

const TIMEOUT_MS = 120_000;

/** The auditor, as one script. */
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** WCAG 2.2 up to AA, and what the auditors call good practice. */
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

let browser: Browser;
let files: Files;
let page: Page;
let errors: string[];

beforeAll(async () => {
  browser = await launch();
  files = await Files.of(folder);
}, TIMEOUT_MS);

afterAll(async () => {
  await browser?.close();
  await files?.stop();
}, TIMEOUT_MS);

afterEach(async () => {
  await page?.close();
  expect(errors).toEqual([]);
}, TIMEOUT_MS);

async function visit(query: string, width = 1280): Promise<void> {
  ({ page, errors } = await open(browser, `${files.url}?static&${query}`, { width, height: 844 }));
  await page.locator('.cell[data-column="inorder"][data-sync="live"]').first().waitFor();
}

/** What the auditor finds, as one line for each element. */
async function audit(): Promise<string[]> {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(
    (values) =>
      (window as unknown as { axe: { run(options: object): Promise<AxeResults> } }).axe.run({
        runOnly: { type: 'tag', values },
      }),
    TAGS,
  );
  return violations.flatMap(({ id, impact, help, nodes }) =>
    nodes.map(({ html, any }) => `${impact} ${id}: ${help}: ${html.slice(0, 160)} ${any[0]?.message ?? ''}`),
  );
}

const name = (status: string): string => `tr:has(.cell[data-column="inorder"][data-status="${status}"]) .name`;

async function openTimeline(): Promise<void> {
  await page.locator(name('running')).first().focus();
  await page.keyboard.press('Enter');
  await page.locator('#timeline').waitFor();
}

test(
  'the auditor finds nothing, in both themes, on desks and phones',
  async () => {
    await visit('seed=11&preset=custom&drop=0.1&duplicate=0.4&reorder=0.3&stale_snapshot=0.2');
    const everywhere = async (what: string): Promise<void> => {
      for (const width of [1280, 390]) {
        await page.setViewportSize({ width, height: 844 });
        for (let i = 0; i < 2; i++) {
          await page.getByRole('button', { name: /^Use (light|dark) colours$/ }).click();
          const theme = await page.locator('html').getAttribute('data-theme');
          expect(await audit(), `${what}, ${theme}, ${width} pixels`).toEqual([]);
        }
      }
    };
    // With everything on it that it can show: wrong cells, a revival, counters that count, an open timeline.
    await until(60_000, async () =>
      (await page.locator('.cell[data-resurrected]').count()) > 0 ? [] : ['nothing came back from the dead yet'],
    );
    await openTimeline();
    await until(30_000, async () =>
      (await page.locator('#timeline .mark.applied').count()) > 0 ? [] : ['nothing in the timeline yet'],
    );
    await everywhere('with a timeline');
    await page.keyboard.press('Escape');
    const next = page.getByRole('button', { name: 'Next delivery' });
    for (let i = 0; i < 7; i++) await next.click();
    await page.locator('.deployment:has([data-wrong])').first().waitFor();
    // Another badge, a button in it, and stale cells.
    await page.locator('[data-action="new_epoch"]').click();
    await page.getByRole('button', { name: 'Try now' }).waitFor();
    await everywhere('offline, in the story');
  },
  TIMEOUT_MS,
);

test(
  'a gateway without faults leaves a notice, and nothing that does nothing',
  async () => {
    ({ page, errors } = await open(browser, files.url));
    await page.locator('#notice:has-text("plays one itself")').waitFor();
    files.missing.length = 0;
    expect(await audit()).toEqual([]);
  },
  TIMEOUT_MS,
);

/** What has the focus: how it can be known again, and whether it can be seen. */
interface Stop {
  readonly what: string;
  readonly row: boolean;
  readonly ring: boolean;
  /** Something of the page lies over it. */
  readonly covered: string;
}

function readStop(): Stop {
  const at = document.activeElement;
  if (!at || at === document.body) return { what: '', row: false, ring: true, covered: '' };
  const { outlineStyle, outlineWidth } = getComputedStyle(at);
  const { left, top, width, height } = at.getBoundingClientRect();
  const over = document.elementFromPoint(left + width / 2, top + height / 2);
  const free = over !== null && (at.contains(over) || over.contains(at) || over.closest('label') !== null);
  return {
    what: at.id || `${at.tagName} ${(at.getAttribute('aria-label') ?? at.textContent ?? '').trim()}`,
    row: at.classList.contains('name'),
    ring: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2,
    covered: free ? '' : `${over?.tagName}.${over?.className}`,
  };
}

/** Everything that a person can use, in the order in which it is written. */
const controls = (): Promise<string[]> =>
  page.evaluate(() =>
    [...document.querySelectorAll<HTMLElement>('a[href], button, input')]
      .filter((element) => element.checkVisibility() && !element.classList.contains('name'))
      .map((at) => at.id || `${at.tagName} ${(at.getAttribute('aria-label') ?? at.textContent ?? '').trim()}`),
  );

/** Presses a key until the focus leaves the page; what had it on the way. */
async function walk(key: string): Promise<Stop[]> {
  const stops: Stop[] = [];
  for (let i = 0; i < 200; i++) {
    await page.keyboard.press(key);
    const stop = await page.evaluate(readStop);
    if (stop.what === '' || (stops.length > 0 && stop.what === stops[0]?.what)) return stops;
    stops.push(stop);
  }
  throw new Error('the focus never leaves the page');
}

describe('by keyboard', () => {
  test.each([1280, 390])(
    'every control is reached, and can be seen when it is, at %s pixels',
    async (width) => {
      await visit('seed=11&preset=calm', width);
      const expected = await controls();
      expect(expected.length).toBeGreaterThan(25);
      const there = await walk('Tab');
      const back = await walk('Shift+Tab');
      const without = (stops: Stop[]): string[] => stops.filter(({ row }) => !row).map(({ what }) => what);
      expect(without(there)).toEqual(expected);
      expect(without(back)).toEqual([...expected].reverse());
      expect(there.filter(({ row }) => row).length).toBeGreaterThan(5);
      expect([...there, ...back].filter(({ ring }) => !ring)).toEqual([]);
      expect([...there, ...back].filter(({ covered }) => covered !== '')).toEqual([]);
    },
    TIMEOUT_MS,
  );

  test(
    'the open timeline covers no row that has the focus',
    async () => {
      await visit('seed=11&preset=calm');
      await openTimeline();
      await page.locator('#board').focus();
      for (let i = 0; i < 8; i++) {
        await page.keyboard.press('Tab');
        expect(await page.evaluate(readStop)).toMatchObject({ row: true, ring: true, covered: '' });
      }
    },
    TIMEOUT_MS,
  );

  test.each([1280, 390])(
    'the row whose timeline opens can be seen, at %s pixels',
    async (width) => {
      await visit('seed=11&preset=calm', width);
      const rows = page.locator('.board .name');
      for (const row of [rows.first(), rows.nth(7)]) {
        await row.focus();
        await page.keyboard.press('Enter');
        await until(5_000, () =>
          page.evaluate(() => {
            const row = document.querySelector('tr[data-open]')?.getBoundingClientRect();
            const panel = document.querySelector('#timeline')?.getBoundingClientRect();
            const visible = row && panel && row.bottom <= panel.top && row.top >= 0;
            return visible ? [] : [`the row ends at ${row?.bottom}, the panel begins at ${panel?.top}`];
          }),
        );
        await page.keyboard.press('Escape');
      }
    },
    TIMEOUT_MS,
  );

  test(
    'Escape closes the timeline wherever the focus is, and the focus goes back to the row',
    async () => {
      await visit('seed=11&preset=calm');
      const timeline = page.locator('#timeline');
      await openTimeline();
      const row = await page.locator('tr[data-open]').getAttribute('data-entity');
      expect(await page.evaluate(() => document.activeElement?.id)).toBe('timeline');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Escape');
      expect(await timeline.isHidden()).toBe(true);
      expect(await page.evaluate(() => document.activeElement?.closest('tr')?.getAttribute('data-entity'))).toBe(row);

      await openTimeline();
      await page.getByRole('button', { name: 'Close the timeline' }).click();
      expect(await page.evaluate(() => document.activeElement?.className)).toBe('name');

      // Elsewhere it closes too, and takes the focus from nobody.
      await openTimeline();
      await page.getByLabel('Drop', { exact: true }).focus();
      await page.keyboard.press('Escape');
      expect(await timeline.isHidden()).toBe(true);
      expect(await page.evaluate(() => document.activeElement?.id)).toBe('fault-drop');
    },
    TIMEOUT_MS,
  );

  test(
    'the focus is not lost with a row that left',
    async () => {
      await visit('seed=11&preset=calm');
      await openTimeline();
      await page.locator('tr[data-open]').evaluate((row) => {
        row.setAttribute('data-entity', '');
        row.remove();
      });
      await page.keyboard.press('Escape');
      expect(await page.evaluate(() => document.activeElement?.closest('#board') !== null)).toBe(true);
    },
    TIMEOUT_MS,
  );

  test(
    'the links lead to what they name, and the story keeps the focus at its ends',
    async () => {
      await visit('seed=11&preset=calm');
      const links = [
        ['Skip to the comparison', 'board'],
        ['or step through one case', 'story'],
      ] as const;
      for (const [link, id] of links) {
        await page.getByRole('link', { name: link }).focus();
        await page.keyboard.press('Enter');
        expect(await page.evaluate(() => document.activeElement?.id)).toBe(id);
      }
      await page.getByRole('button', { name: 'Next delivery' }).focus();
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Back', exact: true }).focus();
      for (let i = 0; i < 2; i++) await page.keyboard.press('Enter');
      expect(await page.locator('.story .steps .count').innerText()).toBe('0 of 11');
      expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('Back');
      expect(await page.locator('.story .steps button').first().getAttribute('aria-disabled')).toBe('true');
    },
    TIMEOUT_MS,
  );
});

test(
  'nothing is read out more than now and then while everything changes',
  async () => {
    await visit('seed=11&preset=custom&drop=0.2&duplicate=0.3&reorder=0.3&cut=0.4');
    await page.evaluate(() => {
      const live = [...document.querySelectorAll('[aria-live], [role="status"], [role="alert"], [role="log"], output')];
      const said: string[] = [];
      (window as unknown as { said: string[] }).said = said;
      const observer = new MutationObserver(() => said.push(live.map(({ textContent }) => textContent).join('|')));
      for (const region of live) observer.observe(region, { subtree: true, childList: true, characterData: true });
    });
    await page.waitForTimeout(12_000);
    expect(Number(await page.locator('[data-counter="applied"]').innerText())).toBeGreaterThan(5);
    const said = await page.evaluate(() => (window as unknown as { said: string[] }).said);
    expect(said.length).toBeGreaterThan(0);
    expect(said.length, said.join('\n')).toBeLessThanOrEqual(3);
    // A preset moves nine sliders at once.
    await page.getByRole('button', { name: /^Broker redelivers/ }).click();
    await page.waitForTimeout(500);
    const after = await page.evaluate(() => (window as unknown as { said: string[] }).said.length);
    expect(after - said.length).toBeLessThanOrEqual(1);
  },
  TIMEOUT_MS,
);

test(
  'who wants less motion gets less',
  async () => {
    await visit('seed=11&preset=broker');
    const revived = page.locator('.cell[data-resurrected]').first();
    await page.emulateMedia({ reducedMotion: 'reduce' });
    await revived.waitFor({ timeout: 60_000 });
    expect(await revived.evaluate((cell) => getComputedStyle(cell).animationName)).toBe('none');
    expect(await page.evaluate(() => document.getAnimations().length)).toBe(0);
    const repaints = async (): Promise<number> => {
      await page.locator('.lanes svg').evaluate((drawing) => {
        const counting = window as unknown as { repaints: number };
        counting.repaints = 0;
        new MutationObserver(() => (counting.repaints += 1)).observe(drawing, { childList: true });
      });
      await page.waitForTimeout(3_000);
      return page.evaluate(() => (window as unknown as { repaints: number }).repaints);
    };
    await openTimeline();
    expect(await repaints()).toBeLessThanOrEqual(4);
    await page.emulateMedia({ reducedMotion: 'no-preference' });
    expect(await repaints()).toBeGreaterThan(8);
    await revived.waitFor({ timeout: 60_000 });
    expect(await revived.evaluate((cell) => getComputedStyle(cell).animationName)).toBe('resurrection');
  },
  TIMEOUT_MS,
);
