import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Browser, Page } from 'playwright-core';
import { launch, open, until } from './browser';
import { Gateway } from './gateway';
import { Producer, readTruth, seeded } from './producer';
import { checkShown, differences, Log, readColumn } from './shown';
import { Wire } from './wire';

/** A loaded machine is slow; a hang is endless. */
const TIMEOUT_MS = 120_000;

/** Within this time a page shows what is true, whatever was broken, in milliseconds. */
const RIGHT_MS = 30_000;

let browser: Browser;
let gateway: Gateway;
let wire: Wire;
let page: Page;
let errors: string[];
let producer: Producer;
let log: Log;

beforeAll(async () => {
  browser = await launch();
}, TIMEOUT_MS);

afterAll(() => browser?.close());

beforeEach(async () => {
  gateway = await Gateway.start('--heartbeat', '5', '--log', 'warn');
  wire = await Wire.to(() => gateway.port);
  log = new Log();
  producer = new Producer(gateway.url, seeded(7), (...change) => log.add(...change));
  for (let i = 0; i < 12; i++) await producer.step();
  ({ page, errors } = await open(browser, `${wire.url}/?cap=1000`));
}, TIMEOUT_MS);

afterEach(async () => {
  await producer?.stop();
  await page?.close();
  await wire?.stop();
  await gateway?.stop();
}, TIMEOUT_MS);

const label = (): Promise<string> => page.locator('#badge .label').innerText();

const isRight = (column: 'inorder' | 'naive' = 'inorder'): Promise<number> =>
  until(RIGHT_MS, async () => differences(await readColumn(page, column), await readTruth(gateway.url)));

/** What was shown, checked against what the log took; `least`: as many states must have been shown. */
async function expectShownInOrder(least: number): Promise<void> {
  const { faults, checked } = checkShown(await page.evaluate(() => window.shown.inorder), log);
  expect(faults).toEqual([]);
  expect(checked).toBeGreaterThanOrEqual(least);
  expect(errors).toEqual([]);
}

test(
  'shows what the gateway has, and what it gets',
  async () => {
    await isRight();
    await until(RIGHT_MS, async () => ((await label()) === 'Live' ? [] : [await label()]));
    producer.run(10);
    await page.waitForTimeout(3_000);
    await producer.stop();
    await producer.post('deployment/dep_1', 'building', { service: 'web', attempt: 1 });
    await producer.post('topic/deployments', undefined, { add: ['deployment/dep_1'] });
    await isRight();
    await isRight('naive');
    await expectShownInOrder(30);
    const cell = page.locator('.cell[data-column="inorder"][data-entity="deployment/dep_1"]');
    expect(await cell.innerText()).toMatch(/building/);
  },
  TIMEOUT_MS,
);

test(
  'goes on where it was after its socket was killed, again and again',
  async () => {
    await isRight();
    producer.run(10);
    for (let i = 0; i < 4; i++) {
      await page.waitForTimeout(1_200);
      expect(wire.cut()).toBeGreaterThan(0);
      // What happens while nobody listens must not be missed.
      await until(RIGHT_MS, async () => ((await label()) === 'Live' ? ['not noticed yet'] : []));
    }
    await page.waitForTimeout(1_000);
    await producer.stop();
    await isRight();
    await expectShownInOrder(30);
    await until(RIGHT_MS, async () => ((await label()) === 'Live' ? [] : [await label()]));
  },
  TIMEOUT_MS,
);

test(
  'goes on where it was after the gateway was killed and started again on its database',
  async () => {
    await isRight();
    const epoch = [...(await readTruth(gateway.url)).values()][0]?.epoch;
    producer.run(10);
    await page.waitForTimeout(1_500);
    await gateway.down();
    await until(RIGHT_MS, async () => ((await label()) === 'Offline' ? [] : [await label()]));
    const syncs = new Set([...(await readColumn(page, 'inorder')).values()].map(({ sync }) => sync));
    expect([...syncs].filter((sync) => sync !== 'stale' && sync !== 'final')).toEqual([]);
    expect(await page.locator('#badge .detail').innerText()).toMatch(/^next try in \d+\.\d s$/);
    await gateway.start();
    await page.waitForTimeout(3_000);
    await producer.stop();
    await isRight();
    expect([...(await readTruth(gateway.url)).values()][0]?.epoch).toBe(epoch);
    await expectShownInOrder(30);
  },
  TIMEOUT_MS,
);
