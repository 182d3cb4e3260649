// Every method, called from every callback, which then goes on, throws, or called it later (R34 to R36). The rows and
// columns are compared with the package's own types, so that a new function without a row or a column fails.
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createClient, InorderError } from '../../../pkg/dist/index.js';
import { type Callback, CALLBACKS, HANDLERS } from './callbacks.js';
import { type Method, METHODS } from './methods.js';
import { readSurface } from './surface.js';
import { Boom, type Mode, MODES, Trigger, World } from './world.js';

const surface = readSurface();

test('every method of the types is in the table', () => {
  expect(Object.keys(METHODS).sort()).toEqual([...surface.methods].sort());
});

test('every callback of the types is in the table', () => {
  const rows = new Set([...Object.values(CALLBACKS).map((callback) => callback.of), ...HANDLERS]);
  expect([...rows].sort()).toEqual([...surface.callbacks].sort());
});

/** A client follows a job from its beginning to its end, and everything happens that calls user code. */
async function tell(world: World, callback: Callback): Promise<void> {
  const { client, server, trigger } = world;
  server.commit('topic/all', { add: ['job/2', 'job/3'] });
  for (const job of ['job/1', 'job/2', 'job/3']) server.commit(job, { v: 1 }, { status: 'running' });
  server.commit('job/1', { v: 2 });

  trigger.isArmed = callback.isLoader ?? false;
  world.witness('the first listener');
  callback.listen?.(trigger, world);
  for (let i = 0; i < 4; i++) world.victims.push(world.witness(`victim ${i}`));
  world.witness('the last listener');
  client.topic('all').subscribe(() => world.mayBeCalled('the listener of the topic'));
  world.spare = client.entity('job/1').changes();
  void (async () => {
    for await (const change of client.entity('job/1').changes()) world.changes.push(change);
  })();
  if (callback.isLoader) await world.load();
  await world.pass(200);
  trigger.isArmed = true;

  server.commit('job/1', { v: 3 });
  server.commit('job/2', { v: 2 });
  await world.pass(100);
  // A gap, which is asked for.
  server.commit('job/1', { v: 4 }, { lost: true });
  server.commit('job/1', { v: 5 });
  await world.pass(2_000);
  world.line?.tell({ type: 'discontinuity', entity: 'job/1', reason: 'test' });
  await world.pass(2_000);
  world.line?.tell({ type: 'event', entity: 'job/1', seq: -1 });
  await world.pass(100);
  world.line?.cut();
  server.commit('job/1', { v: 6, w: 6 });
  await world.pass(3_000);
  // Silence, which is noticed.
  if (world.line) world.line.isMute = true;
  server.commit('job/1', { v: 7 });
  await world.pass(40_000);
  server.commit('job/2', { v: 3 });
  server.commit('job/1', { v: 8 }, { status: 'completed' });
  await world.pass(40_000);
}

/** What must be true at the end of the story. */
function judge(world: World, callback: Callback, mode: Mode): void {
  const { trigger, server } = world;
  if (callback.isNeverCalled) {
    if (trigger.fired > 0) world.fault('the callback is called');
  } else if (trigger.fired === 0) world.fault('the callback is never called');
  for (const [name, told] of world.told) {
    world.checkTold(name, told, 'job/1');
    if (world.isOver || name.startsWith('victim')) continue;
    const last = told.at(-1);
    if (last?.sync !== 'final' || last.seq !== server.head('job/1'))
      world.fault(`${name} ends with ${JSON.stringify(last)}`);
  }
  world.checkChanges('the reader', world.changes, 'job/1');
  if (!world.isOver) {
    if (world.changes.at(-1)?.seq !== server.head('job/1')) world.fault('the reader ends early');
    world.checkMembers('the topic', world.client.topic('all').getSnapshot());
  }
  const throws = mode === 'throwing' && !callback.isNeverCalled && !callback.isLogged ? callback.code : undefined;
  const errors = [...world.errors, ...world.logged.filter((value) => value instanceof InorderError)];
  const codes = new Set(errors.map(({ code }) => code));
  // After `close()` nobody is told.
  if (throws && !codes.has(throws) && !world.isOver) world.fault(`what it threw is not reported as \`${throws}\``);
  for (const { code, message, cause } of errors) {
    const isExpected =
      code === 'bad_frame' ||
      (code === throws && cause instanceof Boom) ||
      // Whoever calls a client that it closed is told so.
      (code === 'closed' && world.isOver);
    if (!isExpected) world.fault(`${code} is reported: ${message} ${(cause as Error | undefined)?.stack ?? ''}`);
  }
  if (callback.isLogged && mode === 'throwing' && !world.logged.some((value) => value instanceof Boom)) {
    world.fault('what it threw is not logged');
  }
}

/** Tells the story of one cell; returns what was wrong. */
async function cell(row: string, method: Method, callback: Callback, mode: Mode): Promise<string[]> {
  if (callback.isLoader) vi.resetModules();
  const load = callback.isLoader ? await import('../../../pkg/dist/index.js') : { createClient };
  const checks: (() => void)[] = [];
  const trigger = new Trigger(mode, () => {
    const check = method(world);
    if (check) checks.push(check);
  });
  const world: World = new World(load.createClient, callback, trigger);
  try {
    await tell(world, callback);
  } catch (error) {
    world.fault(`thrown at the page: ${(error as Error).stack}`);
  }
  world.isOver = world.isClosed;
  trigger.isArmed = false;
  for (const other of world.others) other.close();
  world.client.close();
  world.isClosed = true;
  await world.pass(30_000);
  judge(world, callback, mode);
  calls.set(row, (calls.get(row) ?? 0) + trigger.fired);
  for (const check of checks) check();
  if (vi.getTimerCount() > 0) world.fault(`${vi.getTimerCount()} timers are left`);
  if (world.server.lines.some((line) => line.isHeard)) world.fault('a socket is left');
  vi.clearAllTimers();
  return world.faults;
}

beforeEach(async () => {
  await createClient({ url: 'ws://server.test/ws', models: { job: {} } }).preload();
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

/** How often each callback called a method, over all cells of its row. */
const calls = new Map<string, number>();

afterAll(() => {
  const methods = Object.keys(METHODS).length;
  const rows = [...calls].map(([name, count]) => `${name} ${count}`).join(', ');
  console.log(
    `${calls.size} callbacks × ${methods} methods × ${MODES.length} = ${calls.size * methods * MODES.length} cells; ` +
      `methods called inside: ${rows}`,
  );
});

describe.each(Object.entries(CALLBACKS))('%s', (row, callback) => {
  test.each(MODES)(
    '%s',
    async (mode) => {
      const wrong: Record<string, string[]> = {};
      for (const [name, method] of Object.entries(METHODS)) {
        const faults = await cell(row, method, callback, mode);
        if (faults.length > 0) wrong[name] = faults;
      }
      expect(wrong).toEqual({});
    },
    60_000,
  );
});
