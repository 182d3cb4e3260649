// Frames in and commands out.
import { describe, expect, test, vi } from 'vitest';
import { model } from '../../pkg/dist/index.js';
import { parseSeq } from '../../pkg/src/seq.js';
import { split } from '../../pkg/src/split.js';
import { type Data, type Frame, useClock, Wasm, World } from './server.js';

useClock();

describe('R11: numbers', () => {
  test.each([
    [0, 0],
    [42, 42],
    ['42', 42],
    [9007199254740991, 9007199254740991],
    ['9007199254740991', 9007199254740991],
    [9007199254740992, -1],
    ['9007199254740993', -1],
    [-1, -1],
    ['-1', -1],
    [6.5, -1],
    ['6.5', -1],
    ['', -1],
    [' 6', -1],
    ['0x6', -1],
    [true, -1],
    [null, -1],
    [[6], -1],
  ])('r11_%j_is_read_as_%j', (value, expected) => {
    expect(parseSeq(value)).toBe(expected);
  });

  test('r11_a_frame_without_a_usable_number_changes_nothing', async () => {
    const world = new World();
    const socket = await world.live(5);
    const before = world.client.entity('job/1').getSnapshot();
    for (const seq of [-1, 6.5, '6.0', null, undefined, {}, 18446744073709551616]) {
      socket.say({ type: 'event', entity: 'job/1', epoch: 'E', seq, data: { v: 0 } });
    }
    expect(world.client.entity('job/1').getSnapshot()).toBe(before);
    expect(world.codes).toEqual(Array(7).fill('bad_frame'));
    expect(world.client.stats()?.badFrames).toBe(7);
    socket.event('6', { v: 6 });
    expect(world.client.entity('job/1').getSnapshot().seq).toBe(6);
  });

  test('r11_twenty_bad_frames_close_the_socket', async () => {
    const world = new World();
    const socket = await world.live(5);
    for (let i = 0; i < 20; i++) socket.raw('nonsense');
    expect(socket.closed).toBe(4002);
    expect(world.client.entity('job/1').getSnapshot().sync).toBe('stale');
  });
});

describe('frames', () => {
  test.each([
    ['not json', 'not json'],
    ['nothing', ''],
    ['a number', '7'],
    ['null', 'null'],
    ['no type', '{}'],
    ['a type that is no string', '{"type":7}'],
    ['a batch in a batch', '[[{"type":"heartbeat"}]]'],
    ['a depth bomb', '['.repeat(100_000) + ']'.repeat(100_000)],
    ['an entity that is no string', '{"type":"event","entity":7,"seq":1}'],
    ['an epoch that is no string', '{"type":"event","entity":"job/1","epoch":7,"seq":6}'],
    ['a status that is no string', '{"type":"event","entity":"job/1","epoch":"E","seq":6,"status":7}'],
    ['a replay without events', '{"type":"replay","request":1,"entity":"job/1","epoch":"E"}'],
    ['a snapshot without a number', '{"type":"snapshot","entity":"job/1","epoch":"E","data":{}}'],
    ['bytes that are no UTF-8', new Uint8Array([0xff, 0xfe]).buffer],
  ])('%s is a bad frame', async (_, text) => {
    const world = new World();
    const socket = await world.live(5);
    const before = world.client.entity('job/1').getSnapshot();
    socket.raw(text);
    expect(world.codes).toEqual(['bad_frame']);
    expect(world.client.entity('job/1').getSnapshot()).toBe(before);
  });

  test('unknown types and fields are ignored', async () => {
    const world = new World();
    const socket = await world.live(5);
    socket.say({ type: 'notice', text: 'hello' }, { type: 'heartbeat', mood: 'good' }, { type: 'toString' });
    socket.event(6, { v: 6 }, { colour: 'red' });
    expect(world.client.entity('job/1').getSnapshot().seq).toBe(6);
    expect(world.codes).toEqual([]);
  });

  test('binary frames are the same text in UTF-8', async () => {
    const world = new World();
    const socket = await world.live(5);
    const frame = { type: 'event', entity: 'job/1', epoch: 'E', seq: 6, data: { text: 'grün ✓' } };
    socket.raw(new TextEncoder().encode(JSON.stringify(frame)).buffer);
    expect(world.client.entity('job/1').getSnapshot().state).toEqual({ text: 'grün ✓' });
    expect(socket.binaryType).toBe('arraybuffer');
    expect(socket.protocols).toEqual('inorder.v1.json');
  });

  test('a bad frame leaves the others of its batch', async () => {
    const world = new World();
    const socket = await world.live(5);
    const event = (seq: number) => ({ type: 'event', entity: 'job/1', epoch: 'E', seq, data: { v: seq } });
    socket.say(event(6), { oops: true }, event(7), event(-1), event(8));
    expect(world.client.entity('job/1').getSnapshot().seq).toBe(8);
    expect(world.codes).toEqual(['bad_frame', 'bad_frame']);
  });

  test('r39_frames_of_what_nobody_wants_create_nothing', async () => {
    const world = new World();
    const socket = await world.live(5);
    socket.say({ type: 'event', entity: 'job/2', epoch: 'E', seq: 1, data: {} });
    socket.say({ type: 'snapshot', entity: 'job/3', epoch: 'E', seq: 1, data: {} });
    expect(world.client.stats()?.unknown).toBe(2);
    expect(world.client.entity('job/2').getSnapshot().seq).toBeUndefined();
  });

  test('r13_null_is_data', async () => {
    const world = new World({ models: { job: model<any>() } });
    const socket = await world.live(5);
    socket.event(6, null);
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 6, state: null });
  });

  test('r06_an_id_under_a_second_number_changes_nothing', async () => {
    const world = new World();
    const socket = await world.live(5);
    socket.event(6, { v: 6 }, { id: 'x' });
    const before = world.client.entity('job/1').getSnapshot();
    socket.event(7, { v: 7 }, { id: 'x' });
    expect(world.client.entity('job/1').getSnapshot()).toBe(before);
    socket.event(8, { v: 8 }, { id: 'y' });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 8, state: { v: 8 } });
    expect(world.client.stats()).toMatchObject({ gaps: 0, silent: 1 });
  });

  test('r05_another_id_under_the_same_number_is_a_fork', async () => {
    const world = new World();
    const socket = await world.live(5);
    socket.event(6, { v: 6 }, { id: 'x' });
    socket.event(6, { v: 'six' }, { id: 'y' });
    expect(world.codes).toEqual(['diverged']);
    expect(socket.of('snapshot')).toHaveLength(1);
  });

  test('prev and first', async () => {
    const world = new World({ models: { job: model<Data>({ continuity: 'range' }) } });
    const socket = await world.live(5);
    socket.event(8, { v: 8 }, { first: 6 });
    socket.event(10, { v: 10 }, { prev: 8 });
    socket.event(12, { v: 12 }, { first: 0 });
    expect(world.client.entity('job/1').getSnapshot().seq).toBe(10);
    expect(world.codes).toEqual(['bad_frame']);
  });

  test('a chain without prev is a bad frame', async () => {
    const world = new World({ models: { job: model<Data>({ continuity: 'prev' }) } });
    const socket = await world.live(5);
    socket.event(9, { v: 9 }, { prev: 5 });
    socket.event(10, { v: 10 });
    expect(world.client.entity('job/1').getSnapshot().seq).toBe(9);
    expect(world.codes).toEqual(['bad_frame']);
  });

  test('numberless events in order of arrival', async () => {
    const world = new World({ models: { job: model<Data>({ continuity: 'none' }) } });
    const socket = await world.live(5);
    socket.say({ type: 'event', entity: 'job/1', epoch: 'E', data: { v: 'next' } });
    expect(world.client.entity('job/1').getSnapshot().state).toEqual({ v: 'next' });
  });

  test('more statuses than have numbers', async () => {
    const world = new World({ models: { job: model<Data>({ terminal: ['the end'] }) } });
    const socket = await world.live(5);
    for (let seq = 6; seq < 2_000; seq++) socket.event(seq, undefined, { status: `s${seq}` });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 1_999, status: 's1999', sync: 'live' });
    socket.event(2_000, undefined, { status: 'the end' });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ status: 'the end', sync: 'final' });
  });

  test('more epochs than have numbers', async () => {
    const world = new World();
    const socket = await world.live(5);
    for (let i = 0; i < 3_000; i++) {
      socket.say({ type: 'snapshot', entity: 'job/1', epoch: `e${i}`, seq: 1, data: { i } });
    }
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ epoch: 'e2999', state: { i: 2_999 } });
    socket.end(1006);
    await world.pass(1_000);
    world.socket.open();
    expect(world.socket.of('subscribe')[0]!['entities'][0]).toMatchObject({ epoch: 'e2999', after: 1 });
    expect(Wasm.all.at(-1)!.lastEpoch).toBeLessThan(1_200);
  });
});

describe('R1: a flood of duplicates', () => {
  /** As servers write it, so that it can be told by its beginning. */
  const text = (seq: number, more = '') =>
    `{"type":"event","entity":"job/1","epoch":"E","seq":${seq},${more}"data":{"v":${seq}}}`;

  async function flooded() {
    const world = new World();
    const socket = await world.live(5);
    for (let i = 0; i < 200; i++) socket.raw(text(5));
    expect(world.client.stats()?.duplicates).toBe(200);
    return { world, socket, job: world.client.entity('job/1') };
  }

  test('r01_they_are_counted_and_what_is_new_is_shown', async () => {
    const { world, socket, job } = await flooded();
    for (let seq = 6; seq < 300; seq++) {
      socket.raw(text(seq));
      socket.raw(text(seq - 1));
      expect(job.getSnapshot()).toMatchObject({ seq, state: { v: seq }, sync: 'live' });
    }
    expect(world.client.stats()?.duplicates).toBe(494);
    expect(world.codes).toEqual([]);
  });

  test('r03_a_gap_among_them_is_one', async () => {
    const { socket, job, world } = await flooded();
    socket.raw(text(8));
    socket.raw(text(5));
    socket.raw(text(6));
    socket.raw(text(7));
    expect(job.getSnapshot()).toMatchObject({ seq: 8, state: { v: 8 } });
    expect(world.client.stats()?.duplicates).toBe(201);
  });

  test('r05_an_id_is_still_compared', async () => {
    const { socket, world } = await flooded();
    socket.raw(text(6, '"id":"a",'));
    socket.raw(text(6, '"id":"b",'));
    expect(world.codes).toEqual(['diverged']);
  });

  test('r07_another_epoch_is_no_duplicate', async () => {
    const { socket, world } = await flooded();
    socket.raw(text(5).replace('"E"', '"F"'));
    expect(world.client.stats()?.duplicates).toBe(200);
  });

  test('r21_frames_that_are_counted_are_all_read', async () => {
    const { socket, world } = await flooded();
    socket.raw(`{"n":1,${text(5).slice(1)}`);
    for (let n = 2; n < 200; n++) socket.raw(text(5, `"n":${n},`));
    await world.pass(500);
    expect(socket.of('heads')).toEqual([]);
  });

  test('an escaped name is read as JSON', async () => {
    const { socket, world } = await flooded();
    socket.raw(text(5).replace('job/1', 'job\\/1'));
    expect(world.client.stats()?.duplicates).toBe(201);
  });
});

describe('R17: snapshots in parts', () => {
  const parts = (world: World, ...list: Frame[]) => {
    const request = world.socket.request('subscribe');
    for (const part of list) {
      world.socket.say({ type: 'snapshot', request, entity: 'job/1', epoch: 'E', seq: 4, of: 2, ...part });
    }
  };
  const joining = async () => {
    const world = new World();
    world.client.entity('job/1').subscribe(() => {});
    await world.settle();
    world.socket.open();
    return world;
  };

  test('r17_objects_are_merged_in_the_order_of_their_parts', async () => {
    const world = await joining();
    parts(world, { part: 2, data: { y: 2, z: 2 } });
    expect(world.client.entity('job/1').getSnapshot().sync).toBe('joining');
    parts(world, { part: 1, data: { x: 1, z: 1 } });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 4, state: { x: 1, y: 2, z: 2 } });
  });

  test('r17_lists_are_joined', async () => {
    const world = await joining();
    parts(world, { part: 1, data: [1, [2]] }, { part: 2, data: [3] });
    expect(world.client.entity('job/1').getSnapshot().state).toEqual([1, [2], 3]);
  });

  test('r17_parts_of_two_answers_never_mix', async () => {
    const world = await joining();
    parts(world, { part: 1, data: { old: 1 } });
    world.socket.end(1006);
    await world.pass(1_000);
    world.socket.open();
    parts(world, { part: 2, seq: 9, data: { y: 2 } });
    expect(world.client.entity('job/1').getSnapshot().sync).toBe('joining');
    parts(world, { part: 1, seq: 9, data: { x: 1 } });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 9, state: { x: 1, y: 2 } });
  });

  test('r17_a_part_that_repeats_counts_once', async () => {
    const world = await joining();
    parts(world, { part: 1, data: { x: 1 } }, { part: 1, data: { x: 1 } });
    expect(world.client.entity('job/1').getSnapshot().sync).toBe('joining');
  });

  test('r18_parts_that_nobody_waits_for_are_dropped', async () => {
    const world = new World();
    const socket = await world.live(5);
    for (const part of [1, 2]) {
      socket.say({ type: 'snapshot', request: 99, entity: 'job/1', epoch: 'E', seq: 9, part, of: 2, data: {} });
    }
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 5, state: { v: 5 } });
    expect(world.client.stats()).toMatchObject({ adopted: 1, badFrames: 0 });
  });

  test.each([
    [0, 2],
    [3, 2],
    [1, 9_999_999],
    ['x', 2],
  ])('part %j of %j is a bad frame', async (part, of) => {
    const world = await joining();
    parts(world, { part, of, data: {} });
    expect(world.codes).toEqual(['bad_frame']);
  });
});

describe('commands', () => {
  test('r30_commands_are_split_at_64_KiB_under_one_request_id', () => {
    const items = Array.from({ length: 5_000 }, (_, i) => JSON.stringify({ entity: `job/${i}`, note: 'é'.repeat(10) }));
    const texts: string[] = [];
    split('subscribe', 7, 'entities', items, (text) => texts.push(text));
    expect(texts.length).toBeGreaterThan(2);
    for (const text of texts) expect(new TextEncoder().encode(text).length).toBeLessThanOrEqual(64 << 10);
    const frames = texts.map((text) => JSON.parse(text));
    expect(new Set(frames.map(({ request }) => request))).toEqual(new Set([7]));
    expect(frames.flatMap(({ entities }) => entities.map((e: unknown) => JSON.stringify(e)))).toEqual(items);
  });

  test('r30_many_entities_in_one_subscribe', async () => {
    const world = new World();
    for (let i = 0; i < 3; i++) world.client.entity(`job/${i}`).subscribe(() => {});
    await world.settle();
    world.socket.open();
    expect(world.socket.sent).toEqual([
      { type: 'hello', client: expect.stringMatching(/^inorder\/\d/) },
      { type: 'subscribe', request: 1, entities: [{ entity: 'job/0' }, { entity: 'job/1' }, { entity: 'job/2' }] },
    ]);
  });

  test('r30_a_resume_repeats_position_and_params', async () => {
    const world = new World();
    world.client.entity('job/1', { params: { detail: 'full' } }).subscribe(() => {});
    await world.settle();
    world.socket.open();
    expect(world.socket.of('subscribe')[0]!['entities']).toEqual([{ entity: 'job/1', params: { detail: 'full' } }]);
    world.socket.snapshot('job/1', 5, {});
    world.socket.end(1006);
    await world.pass(1_000);
    world.socket.open();
    expect(world.socket.of('subscribe')[0]!['entities']).toEqual([
      { entity: 'job/1', epoch: 'E', after: 5, params: { detail: 'full' } },
    ]);
  });

  test('the article: 12 expected, 15 arrives', async () => {
    const world = new World();
    const socket = await world.live(11);
    const seen: unknown[] = [];
    const gap = vi.fn();
    world.client.on('gap', gap);
    world.client.entity('job/1').subscribe(({ seq }) => seen.push(seq));
    socket.event(15, { v: 15 });
    expect(world.client.held('job/1')).toBe(1);
    await world.pass(100);
    expect(gap.mock.calls).toEqual([[{ entity: 'job/1', from: 12, to: 14 }]]);
    expect(socket.of('replay')).toEqual([
      { type: 'replay', request: 2, ranges: [{ entity: 'job/1', epoch: 'E', from: 12, to: 14 }] },
    ]);
    const events = [12, 13, 14].map((seq) => ({ seq, data: { v: seq } }));
    socket.say({ type: 'replay', request: 2, entity: 'job/1', epoch: 'E', events, done: true });
    expect([...new Set(seen)]).toEqual([11, 12, 13, 14, 15]);
    expect(world.client.entity('job/1').getSnapshot().sync).toBe('live');
  });

  test.each([
    ['keeps the state', {}, { v: 5 }],
    ['or brings it', { data: { v: 'end' } }, { v: 'end' }],
  ])('a final answer %s', async (_, more, state) => {
    const world = new World();
    const socket = await world.live(5);
    socket.event(8, { v: 8 });
    await world.pass(100);
    const request = socket.request('replay');
    socket.say({ type: 'final', request, entity: 'job/1', epoch: 'E', status: 'gone for good', ...more });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ sync: 'final', state, status: 'gone for good' });
  });

  test('vacancies in a replay', async () => {
    const world = new World();
    const socket = await world.live(5);
    socket.event(9, { v: 9 });
    await world.pass(100);
    const request = socket.request('replay');
    const events = [{ seq: 7, data: { v: 7 } }];
    const vacant = [
      [6, 6],
      [8, 8],
    ];
    socket.say({ type: 'replay', request, entity: 'job/1', epoch: 'E', events, vacant, done: true });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 9, sync: 'live' });
  });
});
