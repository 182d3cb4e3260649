import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Browser, Page } from 'playwright-core';
import { launch, open, Tape, until } from './browser';
import { Gateway } from './gateway';
import { Producer, readTruth, seeded } from './producer';
import { checkShown, differences, Log, readColumn, type Fault, type Marked } from './shown';

/** How long everything goes wrong, in seconds. `INORDER_FAULT_SECONDS` makes it longer or shorter. */
const FAULT_S = Number(process.env['INORDER_FAULT_SECONDS'] ?? 60);

/** Draws all faults, and what the jobs do. It is printed, and may be given to see a run again. */
const SEED = Number(process.env['INORDER_SEED'] ?? 1 + Math.floor(Math.random() * 1_000_000));

/** The wire is whole again; within this time the page shows what is true, in milliseconds. */
const RIGHT_MS = 30_000;

/** Everything at once, so that each fault happens many times and all meet each other. */
const FAULTS = {
  drop: 0.12,
  duplicate: 0.15,
  reorder: 0.15,
  delay: 250,
  stale_snapshot: 0.06,
  refuse_replay: 0.2,
  cut: 0.04,
  half_open: 0.01,
  crash: 0.02,
};

let browser: Browser;

beforeAll(async () => {
  console.log(`seed ${SEED}`);
  browser = await launch();
}, 60_000);

afterAll(() => browser?.close());

/** What is done by hand, in turn. */
type Deed = (page: Page, gateway: Gateway) => Promise<unknown>;

const press =
  (action: string): Deed =>
  (page) =>
    page.locator(`[data-action="${action}"]`).click();

const newEpoch =
  (events: number): Deed =>
  async (_, gateway) => {
    const answer = await fetch(`${gateway.url}/faults/new_epoch?events=${events}`, { method: 'POST' });
    expect(answer.status).toBe(200);
  };

/** How much of the wire is told of what was wrong, and of what never became right, in milliseconds. */
const TOLD_MS = 15_000;
const LONG_MS = 75_000;

/** What happened before something was wrong. */
const story = (wrong: readonly (Marked | Fault)[], tape: Tape): string =>
  wrong
    .slice(0, 2)
    .map((one) => {
      const at = ('at' in one ? one.at : one.shown.at) ?? Date.now();
      return [JSON.stringify(one), ...tape.before(at + 1, TOLD_MS, one.shown.entity)].join('\n  ');
    })
    .join('\n');

async function epochOf(gateway: Gateway): Promise<string> {
  const { epoch } = (await (await fetch(`${gateway.url}/health`)).json()) as { epoch: string };
  return epoch;
}

/** Lets everything go wrong for a while, then nothing, and compares. */
async function ordeal(seconds: number, deeds: readonly Deed[]): Promise<void> {
  const gateway = await Gateway.start('--faults', '--heartbeat', '5', '--log', 'error');
  const log = new Log();
  const producer = new Producer(gateway.url, seeded(SEED), (...change) => log.add(...change));
  try {
    log.began(await epochOf(gateway));
    for (let i = 0; i < 12; i++) await producer.step();
    const query = new URLSearchParams({ cap: '1000', seed: String(SEED), preset: 'custom' });
    for (const [name, value] of Object.entries(FAULTS)) query.set(name, String(value));
    const { page, errors, tape } = await open(browser, `${gateway.url}/?${query}`);
    producer.run(60);

    const end = performance.now() + seconds * 1_000;
    for (let turn = 0; performance.now() < end; turn++) {
      await page.waitForTimeout(Math.min(2_500, Math.max(0, end - performance.now())));
      await deeds[turn % deeds.length]?.(page, gateway);
      log.began(await epochOf(gateway));
    }
    await page.getByRole('button', { name: /^Calm/ }).click();
    await producer.stop();

    const right = async (): Promise<string[]> =>
      differences(await readColumn(page, 'inorder'), await readTruth(gateway.url));
    const took = await until(RIGHT_MS, right).catch((error: Error) => {
      const entity = /^(\S+): shown/m.exec(error.message)?.[1] ?? '';
      throw new Error([error.message, ...tape.before(Date.now(), LONG_MS, entity)].join('\n  '));
    });
    const { shown, wrong, marked } = await page.evaluate(() => ({
      shown: window.shown,
      wrong: window.wrong,
      marked: window.marked,
    }));
    const { faults, checked } = checkShown(shown.inorder, log);
    // The same check of the other column shows that the check finds what is wrong.
    const naive = checkShown(shown.naive, log);
    const counters = await page.locator('#counters dl').innerText();
    console.log(
      `right after ${(took / 1_000).toFixed(1)} s; ${checked} states shown; wrong at a time: ${wrong.naive} naive, ` +
        `${wrong.inorder} inorder; naive states that never were, or not then: ${naive.faults.length} of ${naive.checked}; ` +
        counters.replaceAll(/\s+/g, ' '),
    );
    expect(faults, story(faults, tape)).toEqual([]);
    expect(errors).toEqual([]);
    expect(marked, story(marked, tape)).toEqual([]);
    expect(checked).toBeGreaterThan(seconds * 2);
    expect(wrong.naive).toBeGreaterThan(0);
    expect(naive.faults.length).toBeGreaterThan(0);
    // What is right stays right.
    await page.waitForTimeout(2_000);
    expect(await right()).toEqual([]);
    await page.close();
  } finally {
    await producer.stop();
    await gateway.stop();
  }
}

test(
  'shows the truth after every fault, and nothing but truth in between',
  () =>
    ordeal(FAULT_S, [
      press('cut'),
      press('stale_snapshot'),
      press('crash'),
      press('trim'),
      newEpoch(0),
      press('half_open'),
    ]),
  FAULT_S * 1_000 + 120_000,
);

test(
  'follows a log that was put back',
  () => ordeal(FAULT_S / 3, [press('stale_snapshot'), newEpoch(3), press('cut'), press('new_epoch')]),
  FAULT_S * 1_000 + 120_000,
);
