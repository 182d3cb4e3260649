// Section 3: what is left of the main thread. 10,000 events a second go into a React table of 200 rows.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { bundle, inPage, launch, serve } from '../browser.mjs';
import { median } from '../gates.mjs';
import { table } from '../table.mjs';

const RATE = 10_000;
const ROWS = 200;

/** Events in a message. */
const BATCHES = [50, 10];

/** Frames a second of a headless Chromium. */
const FRAMES = 60;

/** A key is hit this often, in milliseconds, at no round time of the server's. */
const KEY_MS = 230;

/** Time to load, and to be drawn for the last time, in milliseconds. */
const PATIENCE_MS = 30_000;

/** A frame that comes after so many times of what is usual was preceded by one that was dropped. */
const LATE = 1.5;

/** The page is let alone at first: programs warm up. */
const WARM_MS = 3_000;

const part = (values, share) => [...values].sort((a, b) => a - b)[Math.floor(values.length * share)] ?? 0;
const sum = (values) => values.reduce((all, value) => all + value, 0);

/** `usual`: the time between two frames when nothing happens. */
async function measure(address, which, { seconds, batch, usual }) {
  const server = fork(join(import.meta.dirname, 'server.mjs'), [RATE, ROWS, batch].map(String));
  const [{ port }] = await once(server, 'message');
  const browser = await launch();
  try {
    return await inPage(browser, `${address}/thread`, async (page) => {
      await page.waitForFunction(() => globalThis.open && globalThis.watch);
      await page.evaluate(([which, url]) => globalThis.open(which, url), [which, `ws://127.0.0.1:${port}`]);
      const reads = which !== 'nothing';
      if (reads) {
        await page.waitForFunction((rows) => globalThis.rows() === rows, ROWS, { timeout: PATIENCE_MS });
        server.send('go');
      }
      await sleep(WARM_MS);
      await page.evaluate(() => globalThis.watch());
      await page.focus('#press');
      const load = [];
      const end = performance.now() + seconds * 1_000;
      while (performance.now() < end) {
        await page.keyboard.press('a');
        load.push(loadavg()[0]);
        await sleep(KEY_MS);
      }
      const { gaps, tasks, delays } = await page.evaluate(() => globalThis.report());
      const result = {
        which,
        batch,
        load: median(load),
        frames: gaps.length + 1,
        usual: median(gaps),
        dropped: sum(gaps.filter((gap) => gap > usual * LATE).map((gap) => Math.round(gap / usual) - 1)),
        longest: Math.max(0, ...gaps),
        tasks: tasks.length,
        tasksMs: sum(tasks),
        longestTask: Math.max(0, ...tasks),
        delay: { median: part(delays, 0.5), p95: part(delays, 0.95), longest: Math.max(0, ...delays) },
      };
      if (!reads) return result;
      server.send('stop');
      const [{ sum: sent }] = await once(server, 'message');
      // How long it takes until the last event is on the screen.
      const stopped = performance.now();
      await page.waitForFunction((sent) => globalThis.sumOfNumbers() === sent, sent, { timeout: PATIENCE_MS });
      return { ...result, events: sent - ROWS, caughtUp: performance.now() - stopped };
    });
  } finally {
    await browser.close();
    server.disconnect();
  }
}

/** Measures both, and a page into which nothing goes; prints the table. */
export async function thread({ seconds }) {
  await bundle({ thread: 'thread/page.mjs' });
  const { server, address } = await serve();
  const results = [];
  try {
    const usual = 1_000 / FRAMES;
    results.push(await measure(address, 'nothing', { seconds: Math.min(seconds, 20), batch: BATCHES[0], usual }));
    for (const batch of BATCHES) {
      for (const which of ['inorder', 'naive']) {
        console.error(`  thread: ${which}, ${batch} events in a message, ${seconds} s`);
        results.push(await measure(address, which, { seconds, batch, usual }));
      }
    }
  } finally {
    server.closeAllConnections();
    server.close();
  }
  console.log(`\n${RATE.toLocaleString('en')} events/s, ${ROWS} rows, ${seconds} s each\n`);
  const names = { nothing: 'nothing arrives', inorder: "inorder, flush: 'frame'", naive: 'naive setState' };
  console.log(
    table(
      [
        'table',
        'events a message',
        'frames',
        'dropped',
        'long tasks',
        'ms in them',
        'longest',
        'input delay, ms',
        'p95',
        'longest',
        'behind at the end, ms',
        'load',
      ],
      results.map((r) => [
        names[r.which],
        r.which === 'nothing' ? '' : r.batch,
        r.frames,
        `${((100 * r.dropped) / (r.frames + r.dropped)).toFixed(1)} %`,
        r.tasks,
        r.tasksMs.toFixed(0),
        r.longestTask.toFixed(0),
        r.delay.median.toFixed(1),
        r.delay.p95.toFixed(1),
        r.delay.longest.toFixed(0),
        r.caughtUp?.toFixed(0),
        r.load.toFixed(1),
      ]),
    ),
  );
  return { rate: RATE, rows: ROWS, seconds, results };
}
