// Section 2: what it weighs, what it holds, how long it takes to begin.
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';
import { WebSocketServer } from 'ws';
import { root } from '../../scripts/tools.mjs';
import { bundle, inPage, launch, serve } from '../browser.mjs';
import { FOOTPRINT, median } from '../gates.mjs';
import { table } from '../table.mjs';

const ENTITIES = 100_000;

/** Held events per entity; there are 100 entities. */
const HELD = 1_000;

/** Subscriptions that come and go, and how often the heap is read meanwhile. */
const CHURN = 1_000_000;
const READINGS = 10;

/** Fresh pages per client for the time to the first event. */
const STARTS = 15;

/** Bytes of JavaScript heap and wasm memory that are in use. */
async function usage(page, cdp) {
  // Once is not enough: what a finalizer frees is freed by the next.
  for (let i = 0; i < 4; i++) await cdp.send('HeapProfiler.collectGarbage');
  const { usedSize } = await cdp.send('Runtime.getHeapUsage');
  const wasm = await page.evaluate(() => globalThis.wasmBytes());
  return { heap: usedSize, wasm, sum: usedSize + wasm };
}

async function inFreshPage(address, use) {
  const browser = await launch();
  try {
    return await inPage(browser, `${address}/footprint`, async (page) => {
      const cdp = await page.context().newCDPSession(page);
      await cdp.send('HeapProfiler.enable');
      return use(page, () => usage(page, cdp));
    });
  } finally {
    await browser.close();
  }
}

const per = (after, before, count) => ({
  heap: (after.heap - before.heap) / count,
  wasm: (after.wasm - before.wasm) / count,
  sum: (after.sum - before.sum) / count,
});

/** Bytes per member of a topic: alone, and with the topic's map looked at. */
const tracked = (address, kind) =>
  inFreshPage(address, async (page, usage) => {
    await page.evaluate(() => globalThis.tracked.begin());
    const before = await usage();
    await page.evaluate(([kind, count]) => globalThis.tracked.grow(kind, count), [kind, ENTITIES]);
    const after = await usage();
    await page.evaluate(() => globalThis.tracked.look());
    const looked = await usage();
    return { alone: per(after, before, ENTITIES), looked: per(looked, before, ENTITIES) };
  });

/** Bytes per held event beside what its parsed frame takes. */
const held = (address) =>
  inFreshPage(address, async (page, usage) => {
    const count = 100 * HELD;
    await page.evaluate(() => globalThis.held.begin());
    const empty = await usage();
    await page.evaluate((each) => globalThis.held.alone(each), HELD);
    const payloads = per(await usage(), empty, count);
    await page.evaluate(() => globalThis.held.forget());
    const before = await usage();
    const kept = await page.evaluate((each) => globalThis.held.hold(each), HELD);
    const after = per(await usage(), before, count);
    if (kept !== count) throw new Error(`${kept} of ${count} events were held`);
    // The list of the payloads has a slot for each, which is not the payload's own.
    return { payload: payloads.sum - 4, all: after, beside: after.sum - (payloads.sum - 4) };
  });

/** Bytes that stay per subscription that came and went: the slope of the heap. */
const churn = (address) =>
  inFreshPage(address, async (page, usage) => {
    await page.evaluate(() => globalThis.churn.begin());
    const step = CHURN / READINGS;
    const points = [];
    for (let i = 0; i < READINGS; i++) {
      await page.evaluate(([from, count]) => globalThis.churn.go(from, count), [i * step, step]);
      points.push([(i + 1) * step, (await usage()).sum]);
    }
    const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
    const [x, y] = [mean(points.map(([x]) => x)), mean(points.map(([, y]) => y))];
    const slope = mean(points.map(([a, b]) => (a - x) * (b - y))) / mean(points.map(([a]) => (a - x) ** 2));
    return { slope, readings: points };
  });

/** Milliseconds from `import` to the first event, in fresh pages by turns. */
async function starts(address) {
  const gateway = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  await new Promise((resolve) => gateway.once('listening', resolve));
  gateway.on('connection', (socket) => {
    const send = (frame) => socket.send(JSON.stringify(frame));
    socket.on('message', (data) => {
      const { type, request, entities } = JSON.parse(data);
      if (type === 'hello') send({ type: 'welcome', heartbeat: 30, can: ['replay', 'snapshot', 'heads'] });
      if (type !== 'subscribe') return;
      for (const { entity } of entities) {
        send({ type: 'subscribed', request, entity, epoch: 'k3', head: 0 });
        send({ type: 'snapshot', request, entity, epoch: 'k3', seq: 0, data: null });
        send({ type: 'event', entity, epoch: 'k3', seq: 1, data: { progress: 0.5 } });
      }
    });
  });
  const url = `ws://127.0.0.1:${gateway.address().port}`;
  const times = { inorder: [], bare: [] };
  const browser = await launch();
  try {
    for (let i = 0; i < STARTS * 2; i++) {
      const who = i % 2 ? 'inorder' : 'bare';
      const context = await browser.newContext();
      const took = await inPage(context, `${address}/`, (page) =>
        page.evaluate(
          async ([who, url]) => {
            const began = performance.now();
            if (who === 'bare') {
              const { first } = await import('/start.js');
              await first(url);
            } else {
              const { createClient, model } = await import('inorder');
              const client = createClient({ url, models: { job: model() } });
              await new Promise((resolve) => {
                client.entity('job/1').subscribe(({ seq }) => seq === 1 && resolve());
              });
            }
            return performance.now() - began;
          },
          [who, url],
        ),
      );
      times[who].push(took);
      await context.close();
    }
  } finally {
    await browser.close();
    for (const socket of gateway.clients) socket.terminate();
    gateway.close();
  }
  const middle = { inorder: median(times.inorder), bare: median(times.bare) };
  return { ...middle, more: middle.inorder - middle.bare, times };
}

const brotli = (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }).length;

/** Bytes after brotli, each file by itself, as a server would send them. */
async function sizes() {
  const dist = join(root, 'pkg/dist');
  const weight = {};
  for (const file of await readdir(dist)) {
    if (/\.(js|wasm)$/.test(file)) weight[file] = brotli(await readFile(join(dist, file)));
  }
  const reach = async (file, seen = new Set()) => {
    if (seen.has(file)) return seen;
    seen.add(file);
    const code = await readFile(join(dist, file), 'utf8');
    for (const [, next] of code.matchAll(/(?:from|import)\s*\(?\s*["'`]\.\/([\w.-]+\.js)["'`]/g))
      await reach(next, seen);
    return seen;
  };
  const files = [...(await reach('index.js'))];
  const glue = weight['glue.js'] ?? 0;
  return {
    entry: files.reduce((sum, file) => sum + weight[file], 0),
    wasm: weight['inorder.wasm'],
    glue,
    files: weight,
  };
}

export async function footprint(about) {
  await bundle({ footprint: 'footprint/page.mjs', start: 'footprint/start.mjs' });
  const { server, address } = await serve();
  const step = (text) => process.stderr.write(`\r  ${text.padEnd(60)}`);
  const result = {};
  try {
    step('entities with short names');
    result.short = await tracked(address, 'short');
    step('entities with UUIDs');
    result.uuid = await tracked(address, 'uuid');
    step('held events');
    result.held = await held(address);
    step('a million subscriptions that come and go');
    result.churn = await churn(address);
    step('import to first event');
    result.starts = await starts(address);
    result.sizes = await sizes();
  } finally {
    process.stderr.write('\n');
    server.close();
  }
  const measured = {
    'entity of a topic, 10-character name': result.short.alone.sum,
    'entity of a topic, UUID': result.uuid.alone.sum,
    'held event, beside its payload': result.held.beside,
    'slope of subscribe and unsubscribe': Math.max(0, result.churn.slope),
    'entry, brotli': result.sizes.entry,
    'wasm and glue, brotli': result.sizes.wasm + result.sizes.glue,
    'import to first event, more than a bare WebSocket': result.starts.more,
  };
  const gates = Object.entries(FOOTPRINT).map(([what, { unit, gate, goal }]) => {
    const value = measured[what];
    return { what, unit, value, gate, goal, holds: value <= gate };
  });
  const show = (value, unit) =>
    value === undefined ? '' : `${value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 2 : 0 })} ${unit}`;
  console.log(`\nMemory (${ENTITIES.toLocaleString('en')} entities), size, start\n`);
  console.log(
    table(
      ['what', 'measured', 'gate', 'goal', ''],
      gates.map(({ what, unit, value, gate, goal, holds }) => [
        what,
        show(value, unit),
        show(gate, unit),
        show(goal, unit),
        holds ? (goal !== undefined && value <= goal ? 'goal' : 'holds') : 'FAILS',
      ]),
    ),
  );
  const { alone, looked } = result.short;
  console.log(
    `\nOf the first: ${alone.heap.toFixed(0)} B JavaScript, ${alone.wasm.toFixed(0)} B wasm. ` +
      `With a listener on the topic, which gets a map of snapshots: ${looked.sum.toFixed(0)} B.`,
  );
  return { holds: gates.every(({ holds }) => holds), gates, ...result };
}
