import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { Browser, Page } from 'playwright-core';
import { launch, open, until } from './browser';
import { Files } from './files';
import { page as folder } from './gateway';
import { readColumn } from './shown';

const TIMEOUT_MS = 120_000;
const RIGHT_MS = 30_000;

let browser: Browser;
let files: Files;
let page: Page | undefined;
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
  page = undefined;
  expect(errors).toEqual([]);
  expect(files.missing).toEqual([]);
}, TIMEOUT_MS);

async function visit(query: string): Promise<Page> {
  ({ page, errors } = await open(browser, `${files.url}?static&${query}`));
  return page;
}

const count = (on: Page, selector: string): Promise<number> => on.locator(selector).count();

/** In what the cells of a column differ from those of the server's column beside it. */
async function apart(on: Page, column: 'inorder' | 'naive'): Promise<string[]> {
  const truth = await readColumn(on, 'truth');
  const cells = await readColumn(on, column);
  return [...truth].flatMap(([entity, is]) => {
    const shown = cells.get(entity);
    const same = shown?.seq === is.seq && shown.status === is.status && shown.progress === is.progress;
    return same ? [] : [`${entity}: shown #${shown?.seq} ${shown?.status}, is #${is.seq} ${is.status}`];
  });
}

test(
  'runs from plain files, with faults, and heals',
  async () => {
    const on = await visit('seed=11&preset=custom&drop=0.25&duplicate=0.3&reorder=0.3&stale_snapshot=0.1');
    await until(RIGHT_MS, async () => ((await on.evaluate(() => window.wrong.naive)) > 1 ? [] : ['nothing wrong yet']));
    for (const action of ['cut', 'new_epoch', 'crash', 'stale_snapshot', 'trim']) {
      await on.locator(`[data-action="${action}"]`).click();
      await on.waitForTimeout(1_000);
    }
    await on.getByRole('button', { name: /^Calm/ }).click();
    expect(new URL(on.url()).searchParams.get('preset')).toBe('calm');
    await until(RIGHT_MS, () => apart(on, 'inorder'));
    const shown = await on.evaluate(() => window.shown.inorder);
    const final = new Map<string, string>();
    for (const { entity, status, seq } of shown) {
      const before = final.get(entity);
      if (before !== undefined) expect(`${entity} #${seq} ${status}`).toBe(before);
      if (['completed', 'failed', 'cancelled'].includes(status) && entity.startsWith('job/')) {
        final.set(entity, `${entity} #${seq} ${status}`);
      }
    }
    expect(final.size).toBeGreaterThan(0);
  },
  TIMEOUT_MS,
);

test(
  'plays the gateway where there is none',
  async () => {
    ({ page, errors } = await open(browser, files.url));
    await page.locator('#notice:has-text("plays one itself")').waitFor();
    await page.locator('.cell[data-column="inorder"][data-sync="live"]').first().waitFor();
    expect(files.missing.splice(0)).toEqual(['/health']);
  },
  TIMEOUT_MS,
);

test(
  'has no faults and no differences when it is calm',
  async () => {
    const on = await visit('seed=11&preset=calm');
    await until(RIGHT_MS, async () =>
      (await count(on, '.cell[data-column="inorder"][data-sync]')) > 8 ? [] : ['empty'],
    );
    await on.waitForTimeout(3_000);
    expect(await on.evaluate(() => window.wrong)).toEqual({ inorder: 0, naive: 0 });
    expect(await on.locator('[data-counter="held"]').innerText()).toBe('0');
    expect(await on.locator('[data-counter="replays"]').innerText()).toBe('0');
    expect(await on.locator('#badge .label').innerText()).toBe('Live');
  },
  TIMEOUT_MS,
);

test(
  'the same seed is the same address, and a slider writes it',
  async () => {
    const on = await visit('seed=42&preset=broker');
    await expect.poll(() => on.locator('#seed').inputValue()).toBe('42');
    expect(await on.getByRole('button', { name: /^Broker redelivers/ }).getAttribute('aria-pressed')).toBe('true');
    const slider = on.getByLabel('Drop', { exact: true });
    await slider.focus();
    for (let i = 0; i < 3; i++) await slider.press('ArrowRight');
    const query = new URL(on.url()).searchParams;
    expect([query.get('seed'), query.get('preset'), query.get('drop')]).toEqual(['42', 'custom', '0.03']);
    expect(await slider.getAttribute('aria-valuetext')).toBe('3 %');
  },
  TIMEOUT_MS,
);

test(
  'a job opens its timeline by keyboard, and a gap heals in it',
  async () => {
    const on = await visit('seed=5&preset=custom&reorder=0.4&drop=0.2');
    const timeline = on.locator('#timeline');
    const healed = timeline.locator('.gap.healed');
    const running = on.locator('tr:has(.cell[data-column="inorder"][data-status="running"]) .name');
    // Faults are a matter of chance: if this job has no gap soon, another one has.
    for (let turn = 0; turn < 8 && (await healed.count()) === 0; turn++) {
      await on.keyboard.press('Escape');
      await running.nth(turn % Math.max(1, await running.count())).focus();
      await on.keyboard.press('Enter');
      await timeline.waitFor();
      await healed
        .first()
        .waitFor({ state: 'attached', timeout: 8_000 })
        .catch(() => undefined);
    }
    expect(await healed.count()).toBeGreaterThan(0);
    expect(await on.locator('.board .name[aria-expanded="true"]').count()).toBe(1);
    const lanes = await timeline.locator('.lane-name').allTextContents();
    expect(lanes).toEqual(['received', 'held', 'applied', 'dropped', 'replayed']);
    expect(await timeline.locator('.mark.held').count()).toBeGreaterThan(0);
    expect(await timeline.locator('.mark.applied').count()).toBeGreaterThan(0);
    await timeline.focus();
    await on.keyboard.press('Escape');
    expect(await timeline.isHidden()).toBe(true);
    expect(await on.evaluate(() => document.activeElement?.className)).toBe('name');
  },
  TIMEOUT_MS,
);

test(
  'the deployments case ends on the truth in one column',
  async () => {
    const on = await visit('seed=1&preset=calm');
    const next = on.getByRole('button', { name: 'Next delivery' });
    for (let i = 0; i < 5; i++) await next.click();
    const cards = (column: string): Promise<string[]> =>
      on.locator(`.cards[data-column="${column}"] .state`).allInnerTexts();
    // Change 3 of dep_301 came before change 2: shown at once there, held here.
    await expect.poll(() => cards('naive')).toEqual(['live', 'building', 'queued']);
    await expect.poll(() => cards('inorder')).toEqual(['queued · 1 held', 'building', 'queued']);
    await on.getByRole('button', { name: 'Back', exact: true }).click();
    await expect.poll(() => cards('inorder')).toEqual(['queued', 'building', 'queued']);
    for (let i = 0; i < 7; i++) await next.click();
    await expect.poll(() => cards('inorder')).toEqual(['live · final', 'building', 'live · final']);
    expect(await cards('naive')).toEqual(['building · really live', 'building', 'building · really live']);
  },
  TIMEOUT_MS,
);

test(
  'tells offline from recovering, and counts down',
  async () => {
    const on = await visit('seed=3&preset=calm&cap=20000');
    const label = on.locator('#badge .label');
    await expect.poll(() => label.innerText(), { timeout: RIGHT_MS }).toBe('Live');
    await on.locator('[data-action="new_epoch"]').click();
    await expect.poll(() => label.innerText(), { timeout: RIGHT_MS }).toBe('Offline');
    expect(await on.locator('#badge .detail').innerText()).toMatch(/^next try in \d+\.\d s$/);
    await until(RIGHT_MS, () => apart(on, 'inorder'));
    await expect.poll(() => label.innerText(), { timeout: RIGHT_MS }).toBe('Live');
  },
  TIMEOUT_MS,
);

test(
  'fits a phone, in both themes',
  async () => {
    const on = await visit('seed=3&preset=broker');
    for (const width of [390, 1280]) {
      await on.setViewportSize({ width, height: 844 });
      const root = on.locator('html');
      for (let i = 0; i < 2; i++) {
        const theme = await root.getAttribute('data-theme');
        await on.getByRole('button', { name: /^Use (light|dark) colours$/ }).click();
        expect(await root.getAttribute('data-theme')).not.toBe(theme);
        expect(await on.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)).toBeLessThanOrEqual(
          0,
        );
      }
    }
  },
  TIMEOUT_MS,
);
