// A hostile server can't crash, hang, poison or grow the client.
import { describe, expect, test, vi } from 'vitest';
import { model } from '../../pkg/dist/index.js';
import { type Data, type Frame, useClock } from '../package/server.js';
import { attacked, heals, mib, weigh } from './server.js';

useClock();

/** Millions of frames take a while on a busy machine. */
vi.setConfig({ testTimeout: 300_000 });

const LAST = Number.MAX_SAFE_INTEGER;

/** What a server may write where a number belongs. */
const NUMBERS = [
  ...['9007199254740991', '9007199254740992', '18446744073709551616', '1e308', '-1', '-0', '0', '0.5', '6.0000001'],
  ...['"9007199254740991"', '"-1"', '"0x10"', '""', '"NaN"', `"${'9'.repeat(400)}"`, '9'.repeat(400)],
  ...['null', 'true', '[]', '[6]', '{}', '{"valueOf":6}'],
];

/** Frames with a hole where a number belongs. */
const FRAMES: [string, string][] = [
  ['event.seq', '{"type":"event","entity":"job/1","epoch":"E","seq":?,"data":{"v":-1}}'],
  ['event.prev', '{"type":"event","entity":"job/1","epoch":"E","seq":900,"prev":?,"data":{"v":-1}}'],
  ['event.first', '{"type":"event","entity":"job/1","epoch":"E","seq":900,"first":?,"data":{"v":-1}}'],
  ['event.n', '{"type":"event","entity":"job/1","epoch":"E","seq":1,"n":?,"data":{"v":-1}}'],
  ['event without seq', '{"type":"event","entity":"job/1","epoch":"E","id":?,"data":{"v":-1}}'],
  ['event.seq of another epoch', '{"type":"event","entity":"job/1","epoch":"X","seq":?,"data":{"v":-1}}'],
  ['snapshot.request', '{"type":"snapshot","entity":"job/1","epoch":"E","seq":4,"data":{"v":-1},"request":?}'],
  ['snapshot.part', '{"type":"snapshot","entity":"job/1","epoch":"E","seq":4,"data":{"v":-1},"part":?,"of":2}'],
  ['snapshot.of', '{"type":"snapshot","entity":"job/1","epoch":"E","seq":4,"data":{"v":-1},"part":1,"of":?}'],
  ['replay.seq', '{"type":"replay","request":1,"entity":"job/1","epoch":"E","events":[{"seq":?,"data":{"v":-1}}]}'],
  ['replay.vacant', '{"type":"replay","request":1,"entity":"job/1","epoch":"E","events":[],"vacant":[[?,?]]}'],
  ['subscribed.head', '{"type":"subscribed","request":1,"entity":"job/1","epoch":"E","head":?}'],
  ['subscribed.request', '{"type":"subscribed","request":?,"entity":"job/1","epoch":"E","head":6}'],
  ['gone.oldest', '{"type":"gone","request":1,"entity":"job/1","epoch":"E","oldest":?}'],
  ['ahead.head', '{"type":"ahead","request":1,"entity":"job/1","epoch":"E","head":?}'],
  ['vacant.from', '{"type":"vacant","entity":"job/1","epoch":"E","from":?,"to":9007199254740991}'],
  ['vacant.to of another epoch', '{"type":"vacant","entity":"job/1","epoch":"X","from":1,"to":?}'],
  ['heartbeat.heads', '{"type":"heartbeat","heads":[["job/1","E",?]]}'],
  ['heads.heads', '{"type":"heads","request":1,"heads":[["job/1","E",?]]}'],
  ['heads.request', '{"type":"heads","request":?,"heads":[["job/1","E",5]]}'],
  ['welcome.heartbeat', '{"type":"welcome","heartbeat":?,"can":["replay","snapshot","heads"]}'],
  ['error.retryAfter', '{"type":"error","code":"busy","message":"","entity":"job/1","retryAfter":?}'],
  ['error.request', '{"type":"error","code":"busy","message":"","request":?}'],
  ['goodbye.retryAfter', '{"type":"goodbye","reason":"","retryAfter":?}'],
  ['pong.id', '{"type":"pong","id":?}'],
];

describe('numbers', () => {
  test.each(FRAMES)('%s: nothing of it is shown, and the client heals', async (_, frame) => {
    const { world, server } = await attacked();
    const shown: number[] = [];
    world.client.entity('job/1').subscribe((snapshot) => shown.push((snapshot.state as Data | undefined)?.['v']));
    for (const number of NUMBERS) {
      server.socket.raw(frame.replaceAll('?', number));
      await world.pass(100);
      server.commit('job/1', { v: server.history('job/1').events.length + 1 }, 'running');
      // Twenty bad frames end the socket, and a goodbye may keep the client away.
      await world.pass(1_000);
    }
    await world.pass(300_000);
    await heals(world, server);
    expect(shown).not.toContain(-1);
    expect(shown).toEqual([...shown].sort((a, b) => a - b));
  });

  test('a snapshot at 2^53−1 is believed, and a server that goes on honestly is followed again', async () => {
    const { world, server } = await attacked();
    const entity = world.client.entity('job/1');
    server.socket.say({ type: 'snapshot', entity: 'job/1', epoch: 'E', seq: LAST, data: { v: -1 } });
    expect(entity.getSnapshot().seq).toBe(LAST);
    // The events of the truth look like stragglers; the next resume tells.
    server.commit('job/1', { v: 6 }, 'running');
    server.socket.end(1006);
    await world.pass(300_000);
    await heals(world, server);
  });
});

describe('size and depth', () => {
  const big = 'x'.repeat(16 << 20);

  test('frames of 16 MiB', async () => {
    const { world, server } = await attacked();
    const entity = world.client.entity('job/1');
    const before = weigh();
    for (let v = 6; v <= 8; v++) {
      server.history('job/1').events.push({ data: { v, big } });
      server.socket.raw(`{"type":"event","entity":"job/1","epoch":"E","seq":${v},"data":{"v":${v},"big":"${big}"}}`);
      expect(entity.getSnapshot()).toMatchObject({ seq: v, sync: 'live' });
    }
    // Behind a gap: twelve of them would be 192 MiB.
    server.answers = false;
    for (let v = 10; v < 22; v++) {
      server.socket.raw(`{"type":"event","entity":"job/1","epoch":"E","seq":${v},"data":{"v":${v},"big":"${big}"}}`);
    }
    server.socket.raw(new TextEncoder().encode(`{"type":"event","big":"${big}"}`).buffer);
    server.socket.raw(`${big}`);
    server.socket.raw(`[${'{},'.repeat(100_000)}{}]`);
    server.forget();
    const after = weigh();
    console.log(`15 frames of 16 MiB: heap +${mib(after.heap - before.heap)}, wasm ${mib(after.wasm)}`);
    // The shown one and at most the next one: a state is as large as its server makes it.
    expect(after.heap - before.heap).toBeLessThan(5 * (16 << 20));
    server.answers = true;
    server.history('job/1').events.splice(5);
    for (let v = 6; v <= 70; v++) server.history('job/1').events.push({ data: { v } });
    await world.pass(60_000);
    await heals(world, server);
  });

  test.each(['replace', 'merge'] as const)('a depth of 100,000, reduced by %s', async (reduce) => {
    const { world, server } = await attacked({ models: { job: model({ reduce }) } });
    const depth = 100_000;
    const arrays = '['.repeat(depth) + ']'.repeat(depth);
    const objects = '{"a":'.repeat(depth) + '1' + '}'.repeat(depth);
    for (const text of [arrays, objects, arrays.slice(1), `{"type":${objects}}`]) server.socket.raw(text);
    for (const data of [arrays, objects]) {
      const seq = server.history('job/1').events.length + 1;
      server.history('job/1').events.push({ data: { v: seq } });
      server.socket.raw(`{"type":"event","entity":"job/1","epoch":"E","seq":${seq},"data":${data}}`);
      server.socket.raw(`{"type":"event","entity":${data},"epoch":${data},"seq":${data},"n":${data},"status":${data}}`);
      await world.pass(60_000);
    }
    expect(world.codes.filter((code) => code === 'fault').length).toBeLessThan(10);
    const entity = world.client.entity('job/1');
    server.commit('job/1', { v: 8 });
    await world.pass(60_000);
    expect(entity.getSnapshot()).toMatchObject({ seq: 8, sync: 'live', state: { v: 8 } });
  });
});

describe('names', () => {
  const names = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', '__proto__/1', 'constructor/1'];

  test('as keys of data they are inert', async () => {
    const { world, server } = await attacked({ models: { job: model({ reduce: 'merge' }) } });
    const entity = world.client.entity('job/1');
    const evil = '{"__proto__":{"bad":1},"constructor":{"prototype":{"bad":1}},"a":{"__proto__":{"bad":1}}}';
    server.socket.raw(`{"type":"event","entity":"job/1","epoch":"E","seq":6,"data":${evil}}`);
    server.socket.raw(`{"type":"event","entity":"job/1","epoch":"E","seq":7,"data":${evil}}`);
    const state = entity.getSnapshot().state as Data;
    expect(entity.getSnapshot().seq).toBe(7);
    expect(Object.keys(state)).toEqual(['v', '__proto__', 'constructor', 'a']);
    expect(state['bad'] ?? ({} as Data)['bad'] ?? (Object as unknown as Data)['bad']).toBeUndefined();
    expect(Object.getPrototypeOf(state)).toBe(Object.prototype);
    // Of the parts of a snapshot, too.
    const part = (part: number): string =>
      `{"type":"snapshot","entity":"job/1","epoch":"E","seq":8,"part":${part},"of":2,"data":${evil}}`;
    server.socket.raw(part(1));
    server.socket.raw(part(2));
    expect(entity.getSnapshot().seq).toBe(8);
    expect((entity.getSnapshot().state as Data)['bad'] ?? ({} as Data)['bad']).toBeUndefined();
    expect(Object.getPrototypeOf(entity.getSnapshot().state)).toBe(Object.prototype);
  });

  test('as entities, epochs, ids, statuses and types they are names', async () => {
    const { world, server } = await attacked();
    for (const name of names) {
      server.socket.say(
        { type: 'event', entity: name, epoch: name, seq: 6, id: name, status: name, data: 0 },
        { type: 'snapshot', entity: name, epoch: name, seq: 6, status: name, data: 0 },
        { type: name, entity: 'job/1', epoch: 'E', seq: 6 },
        { type: 'heartbeat', heads: [[name, name, 6]], cursors: [[name, name]] },
        { type: 'error', code: name, message: name, entity: name },
      );
    }
    names.forEach((name, index) => {
      server.history('job/1').events.push({ data: { v: 6 + index }, status: name });
      server.socket.event(6 + index, { v: 6 + index }, { id: name, status: name });
      expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 6 + index, status: name, sync: 'live' });
    });
    for (const name of names) world.client.entity(name as `job/${string}`).subscribe(() => {});
    await heals(world, server);
    expect(server.socket.of('subscribe').flatMap((frame) => frame['entities'])).toHaveLength(1);
  });

  test('as members of a topic they are refused or followed like any other', async () => {
    const { world, server } = await attacked();
    server.history('topic/t').events.push({ data: [...names, 'job/__proto__', 'job/2', 'topic/t'] });
    server.history('topic/u').events.push({ data: [7, null, {}, ['job/2']] });
    for (const topic of ['t', 'u']) world.client.topic(topic).subscribe(() => {});
    await world.pass(1_000);
    server.socket.say(
      { type: 'snapshot', entity: 'job/__proto__', epoch: 'E', seq: 1, data: { v: 1 } },
      { type: 'snapshot', entity: 'job/2', epoch: 'E', seq: 1, data: { v: 2 } },
      { type: 'snapshot', entity: '__proto__/1', epoch: 'E', seq: 1, data: { v: 3 } },
    );
    const members = world.client.topic('t').getSnapshot();
    expect(members.get('job/__proto__')).toMatchObject({ state: { v: 1 }, sync: 'live' });
    expect(members.get('job/2')).toMatchObject({ state: { v: 2 }, sync: 'live' });
    expect([...world.client.topic('u').getSnapshot().keys()]).toEqual([]);
    await heals(world, server);
  });

  test('lone surrogates go out escaped and are told apart', async () => {
    const { world, server } = await attacked();
    const halves = ['job/\ud800', 'job/\udc00', 'job/\ufffd'] as const;
    for (const half of halves) world.client.entity(half).subscribe(() => {});
    await world.pass(100);
    expect(server.socket.texts.join('')).not.toMatch(/[\ud800-\udfff]/);
    halves.forEach((half, v) => server.commit(half, { v, half }));
    halves.forEach((half, v) => expect(world.client.entity(half).getSnapshot().state).toEqual({ v, half }));
    // In a binary message they can't be: the bytes of one are no UTF-8.
    const bytes = new Uint8Array([
      ...new TextEncoder().encode('{"type":"event","entity":"'),
      0xed,
      0xa0,
      0x80,
      0x22,
      0x7d,
    ]);
    server.socket.raw(bytes.buffer);
    expect(world.codes.at(-1)).toBe('bad_frame');
    await heals(world, server);
  });
});

describe('growth', () => {
  test('1,000,000 events behind a gap', async () => {
    const { world, server } = await attacked();
    server.answers = false;
    const batch = (from: number): string => {
      const frames = [];
      for (let seq = from; seq < from + 1_000; seq++) {
        frames.push(
          `{"type":"event","entity":"job/1","epoch":"E","seq":${(seq % 90_000) + 7},"data":{"v":-1,"text":"${seq}"}}`,
        );
      }
      return `[${frames.join()}]`;
    };
    server.socket.raw(batch(0));
    const before = weigh();
    let most = 0;
    for (let from = 1_000; from < 1_000_000; from += 1_000) {
      server.socket.raw(batch(from));
      if (from % 100_000 === 0) {
        await world.pass(10);
        server.forget();
        most = Math.max(most, weigh().heap - before.heap);
      }
    }
    server.forget();
    const after = weigh();
    most = Math.max(most, after.heap - before.heap);
    console.log(
      `1,000,000 events behind a gap: heap +${mib(most)} at most, wasm ${mib(before.wasm)}, then ${mib(after.wasm)}`,
    );
    expect(most).toBeLessThan(4 << 20);
    expect(after.wasm).toBeLessThan(8 << 20);
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 5, state: { v: 5 } });
    server.answers = true;
    await heals(world, server);
  });

  test('1,000,000 events behind the gaps of 1,000 entities', async () => {
    const { world, server } = await attacked();
    for (let i = 2; i <= 1_000; i++) world.client.entity(`job/${i}`).subscribe(() => {});
    await world.pass(1_000);
    server.answers = false;
    const before = weigh();
    const text = 'x'.repeat(100);
    for (let seq = 7; seq < 1_007; seq++) {
      const frames = [];
      for (let i = 1; i <= 1_000; i++) {
        frames.push(
          `{"type":"event","entity":"job/${i}","epoch":"E","seq":${seq},"data":{"v":-1,"text":"${text}${i}"}}`,
        );
      }
      server.socket.raw(`[${frames.join()}]`);
      if (seq % 100 === 0) await world.pass(10);
    }
    server.forget();
    const after = weigh();
    console.log(`1,000 gaps of 1,000 events: heap +${mib(after.heap - before.heap)}, wasm ${mib(after.wasm)}`);
    // 16 MiB of text are held in all (R19); parsed, and with what is kept beside it, it is some times that.
    expect(after.heap - before.heap).toBeLessThan(96 << 20);
    expect(after.wasm).toBeLessThan(32 << 20);
    server.answers = true;
    await heals(world, server);
  });

  test('100,000 unknown entities, epochs, statuses and ids', async () => {
    const { world, server } = await attacked();
    const before = weigh();
    for (let i = 0; i < 100_000; i++) {
      const words = { epoch: `epoch ${i}`, id: `id ${i}`, status: `status ${i}` };
      server.socket.say(
        { type: 'event', entity: `job/x${i}`, seq: 1, data: { i }, ...words },
        { type: 'snapshot', entity: `nothing/${i}`, seq: 1, data: { i }, ...words },
        { type: 'event', entity: 'job/1', seq: 7, data: { v: -1 }, ...words },
        {
          type: 'heartbeat',
          heads: [
            [`job/y${i}`, `epoch ${i}`, 3],
            ['job/1', `other ${i}`, 3],
          ],
        },
        { type: 'error', code: `code ${i}`, message: `message ${i}`, entity: `job/z${i}` },
      );
      if (i % 10_000 === 0) await world.pass(10);
    }
    server.forget();
    const after = weigh();
    const { unknown } = world.client.stats()!;
    console.log(
      `100,000 unknown names: heap +${mib(after.heap - before.heap)}, wasm ${mib(after.wasm)}, ${unknown} counted`,
    );
    expect(unknown).toBe(300_000);
    expect(after.heap - before.heap).toBeLessThan(4 << 20);
    expect(after.wasm).toBeLessThan(8 << 20);
    await heals(world, server);
  });

  test('1,024 statuses do not hide a final one', async () => {
    const { world, server } = await attacked();
    for (let i = 0; i < 2_000; i++) server.commit('job/1', { v: i }, `status ${i}`);
    server.commit('job/1', { v: 0 }, 'completed');
    server.commit('job/1', { v: -1 }, 'running');
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({
      seq: 2_006,
      sync: 'final',
      status: 'completed',
    });
  });

  test('snapshots that never become whole', async () => {
    const { world, server } = await attacked();
    const before = weigh();
    const text = 'x'.repeat(1 << 20);
    for (let seq = 6; seq < 262; seq++) {
      server.socket.say({ type: 'snapshot', entity: 'job/1', epoch: 'E', seq, part: 1, of: 1_024, data: { text } });
    }
    for (let part = 1; part < 256; part++) {
      server.socket.raw(
        `{"type":"snapshot","entity":"job/1","epoch":"E","seq":6,"part":${part},"of":1024,"data":{"${part}":"${text}"}}`,
      );
    }
    server.forget();
    const after = weigh();
    console.log(`512 MiB of parts: heap +${mib(after.heap - before.heap)}`);
    expect(after.heap - before.heap).toBeLessThan(80 << 20);
    await heals(world, server);
  });
});

describe('answers', () => {
  test('that nobody asked for change nothing', async () => {
    const { world, server } = await attacked();
    const before = world.client.entity('job/1').getSnapshot();
    const about = { entity: 'job/1', epoch: 'E' };
    server.answers = false;
    for (const request of [1, 2, 3, 77, 4_294_967_295, LAST, -1, 'x', null]) {
      const frames: Frame[] = [
        { type: 'subscribed', head: 90, ...about },
        { type: 'replay', events: [{ seq: 6, data: { v: -1 } }], vacant: [[6, 9]], done: true, ...about },
        { type: 'gone', oldest: 90, ...about },
        { type: 'ahead', head: 1, ...about },
        { type: 'final', status: 'completed', data: { v: -1 }, ...about },
        { type: 'heads', heads: [] },
        { type: 'error', code: 'forbidden', message: '' },
        { type: 'pong', id: request },
      ];
      // Without a request it is a pushed one, which is believed.
      if (request !== null) frames.push({ type: 'snapshot', seq: 9, data: { v: -1 }, ...about });
      for (const frame of frames) server.socket.say({ ...frame, request });
    }
    expect(world.client.entity('job/1').getSnapshot()).toBe(before);
    server.answers = true;
    await heals(world, server);
  });

  test('that contradict each other for ever end in the truth, and few questions', async () => {
    const { world, server } = await attacked();
    const errors: string[] = [];
    world.client.on('error', (error) => errors.push(error.code));
    server.answers = false;
    const asked = server.socket.sent.length;
    for (let i = 0; i < 20_000; i++) {
      const epoch = i % 2 ? 'E' : 'F';
      server.socket.say(
        { type: 'snapshot', entity: 'job/1', epoch, seq: 5 + (i % 7), data: { v: -1 } },
        { type: 'heartbeat', heads: [['job/1', i % 3 ? 'E' : 'G', 5]] },
      );
      if (i % 20 === 0) await world.pass(100);
    }
    const questions = server.socket.sent.length - asked;
    console.log(`20,000 changes of epoch in 100 s: ${questions} questions, ${new Set(errors).size} kinds of error`);
    // Nothing is answered, so each question is paced, and the entity is failed in the end.
    expect(questions).toBeLessThan(100);
    server.answers = true;
    await heals(world, server);
  });
});

describe('a server that accepts and closes for ever', () => {
  const closings: [string, number, object][] = [
    ['1006', 1006, {}],
    ['1000', 1000, {}],
    ['1012', 1012, {}],
    ['1013', 1013, {}],
    ['4009', 4009, {}],
    ['4401', 4401, { getToken: async () => 'token' }],
    ['4002', 4002, {}],
  ];

  test.each(closings)('with %s', async (name, code, options) => {
    const { world, server } = await attacked(options);
    server.accept = (socket) => {
      socket.open({ heartbeat: 15 });
      socket.say({ type: 'goodbye', reason: '', retryAfter: 0 });
      setTimeout(() => socket.end(code), 1);
    };
    const dials = server.sockets.length;
    server.socket.end(code);
    const minutes = 10;
    await world.pass(minutes * 60_000);
    const perMinute = (server.sockets.length - dials) / minutes;
    console.log(`accepted and closed with ${name}: ${perMinute.toFixed(1)} attempts a minute`);
    expect(perMinute).toBeGreaterThan(2);
    // Uniform in [0.1, 20] s on average six times a minute, and more at the beginning.
    expect(perMinute).toBeLessThan(12);
    server.accept = (socket) => socket.open({ heartbeat: 15 });
    await world.pass(30_000);
    await heals(world, server);
  });

  test('a dial that never opens', async () => {
    const { world, server } = await attacked();
    server.accept = () => {};
    const dials = server.sockets.length;
    server.socket.end(1006);
    await world.pass(600_000);
    console.log(`never opened: ${((server.sockets.length - dials) / 10).toFixed(1)} attempts a minute`);
    expect((server.sockets.length - dials) / 10).toBeLessThan(4);
    server.accept = (socket) => socket.open({ heartbeat: 15 });
    await world.pass(60_000);
    await heals(world, server);
  });
});

test('what listens hears of hostile frames a bounded number of times, and nothing is left unhandled', async () => {
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);
  process.on('unhandledRejection', note).on('uncaughtException', note);
  const { world, server } = await attacked();
  for (let i = 0; i < 100_000; i++) server.socket.raw('nonsense');
  await world.pass(60_000);
  expect(world.errors.length).toBeLessThanOrEqual(20);
  await heals(world, server);
  process.off('unhandledRejection', note).off('uncaughtException', note);
  expect(unhandled).toEqual([]);
});
