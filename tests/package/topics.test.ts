// R39: topics and their members.
import { describe, expect, test } from 'vitest';
import { type Socket, useClock, Wasm, World } from './server.js';

useClock();

async function follow(names: string[], options = {}) {
  const world = new World(options);
  const maps: ReadonlyMap<string, any>[] = [];
  const topic = world.client.topic('all');
  const stop = topic.subscribe((map) => maps.push(map));
  await world.settle();
  const { socket } = world;
  socket.open();
  socket.snapshot('topic/all', 1, names);
  for (const name of names) push(socket, name, 1);
  await world.settle();
  return { world, socket, topic, maps, stop };
}

function push(socket: Socket, entity: string, seq: number) {
  socket.say({ type: 'snapshot', entity, epoch: 'E', seq, data: { v: seq } });
}

const change = (socket: Socket, seq: number, data: unknown) =>
  socket.say({ type: 'event', entity: 'topic/all', epoch: 'E', seq, data });

describe('membership', () => {
  test('r39_a_map_of_all_members', async () => {
    const { topic, socket } = await follow(['job/1', 'job/2']);
    expect(socket.of('subscribe')).toEqual([{ type: 'subscribe', request: 1, entities: [{ entity: 'topic/all' }] }]);
    expect([...topic.getSnapshot()].map(([name, { seq, sync }]) => [name, seq, sync])).toEqual([
      ['job/1', 1, 'live'],
      ['job/2', 1, 'live'],
    ]);
    expect(topic.sync).toBe('live');
  });

  test('r39_without_a_listener_members_are_followed_all_the_same', async () => {
    const world = new World();
    const stop = world.client.topic('all').subscribe({});
    await world.settle();
    const { socket } = world;
    socket.open();
    socket.snapshot('topic/all', 1, ['job/1']);
    push(socket, 'job/1', 1);
    await world.settle();
    expect(world.client.topic('all').getSnapshot().get('job/1')).toMatchObject({ seq: 1, sync: 'live' });
    stop();
    await world.pass(1_500);
    expect(socket.of('unsubscribe')).toEqual([{ type: 'unsubscribe', entities: ['topic/all'] }]);
  });

  test('r39_members_come_and_go_in_order', async () => {
    const { topic, socket, world } = await follow(['job/1', 'job/2'], { linger: 0 });
    change(socket, 3, { add: ['job/4'] });
    expect([...topic.getSnapshot().keys()]).toEqual(['job/1', 'job/2']);
    change(socket, 2, { add: ['job/3'], remove: ['job/1'] });
    expect([...topic.getSnapshot().keys()].sort()).toEqual(['job/2', 'job/3', 'job/4']);
    await world.pass(1);
    push(socket, 'job/1', 2);
    expect(world.client.stats()?.unknown).toBe(1);
  });

  test('r39_a_snapshot_of_the_topic_is_compared', async () => {
    const { topic, socket } = await follow(['job/1', 'job/2']);
    socket.say({ type: 'snapshot', entity: 'topic/all', epoch: 'E', seq: 9, data: ['job/2', 'job/3'] });
    expect([...topic.getSnapshot().keys()].sort()).toEqual(['job/2', 'job/3']);
    expect(topic.getSnapshot().get('job/2')).toMatchObject({ seq: 1, sync: 'live' });
  });

  test('r39_what_is_no_list_of_names_is_reported', async () => {
    const { topic, socket, world } = await follow(['job/1']);
    change(socket, 2, { add: [7] });
    expect(world.codes).toEqual(['reduce']);
    expect([...topic.getSnapshot().keys()]).toEqual(['job/1']);
  });

  test('r39_a_member_without_a_model_is_reported', async () => {
    const { topic, socket, world } = await follow(['job/1']);
    change(socket, 2, { add: ['pet/1', 'job/2'] });
    expect(world.codes).toEqual(['unknown_model']);
    expect([...topic.getSnapshot().keys()]).toEqual(['job/1', 'job/2']);
  });

  test('r39_a_resume_names_the_cursor_and_who_is_behind', async () => {
    const { socket, world } = await follow(['job/1', 'job/2']);
    socket.say({ type: 'heartbeat', heads: [], cursors: [['topic/all', 'c7']] });
    socket.say({ type: 'event', entity: 'job/2', epoch: 'E', seq: 4, data: {} });
    socket.end(1006);
    await world.pass(1_000);
    world.socket.open();
    const [resume] = world.socket.of('subscribe')[0]!['entities'];
    expect(resume).toMatchObject({ entity: 'topic/all', epoch: 'E', after: 1, cursor: 'c7' });
  });

  test('r39_a_long_list_of_who_is_behind_goes_on_in_further_frames', async () => {
    const names = Array.from({ length: 2_000 }, (_, i) => `job/${i}-${'x'.repeat(40)}`);
    const { socket, world } = await follow([]);
    change(socket, 2, { add: names });
    for (const name of names.slice(0, 1_000)) push(socket, name, 7);
    socket.end(1006);
    await world.pass(1_000);
    world.socket.open();
    const frames = world.socket.of('subscribe');
    expect(frames.length).toBeGreaterThan(1);
    for (const frame of frames) expect(JSON.stringify(frame).length).toBeLessThanOrEqual(64 << 10);
    const items = frames.flatMap((frame) => frame['entities']);
    const topic = { entity: 'topic/all', epoch: 'E', after: 2, behind: expect.any(Array) };
    for (const item of items) expect(item).toEqual(topic);
    expect(new Set(frames.map((frame) => frame['request'])).size).toBe(1);
    const behind = items.flatMap((item) => item.behind as [string, string | null, number | null][]);
    expect(behind.length).toBe(names.length);
    const places = new Map(behind.map(([name, ...place]) => [name, place]));
    names.forEach((name, i) => expect(places.get(name)).toEqual(i < 1_000 ? ['E', 7] : [null, null]));
  });

  test('r31_a_topic_that_nobody_follows_lets_its_members_go', async () => {
    const { socket, world, stop } = await follow(['job/1', 'job/2'], { linger: 0 });
    stop();
    await world.pass(1);
    expect(socket.of('unsubscribe')).toEqual([{ type: 'unsubscribe', entities: ['topic/all'] }]);
    expect(Wasm.all.at(-1)!.known).toBe(0);
  });
});

describe('maps', () => {
  test('r33_a_map_is_the_same_until_a_member_changes', async () => {
    const { topic, socket } = await follow(['job/1', 'job/2']);
    const before = topic.getSnapshot();
    expect(topic.getSnapshot()).toBe(before);
    socket.say({ type: 'event', entity: 'job/1', epoch: 'E', seq: 2, data: { v: 2 } });
    const after = topic.getSnapshot();
    expect(after).not.toBe(before);
    expect(after.get('job/2')).toBe(before.get('job/2'));
    expect(before.get('job/1')!.seq).toBe(1);
  });

  test('r35_one_map_per_task_even_with_sync', async () => {
    const names = Array.from({ length: 1_000 }, (_, i) => `job/${i}`);
    const { socket, maps, world } = await follow(names);
    const before = maps.length;
    socket.say(...names.map((entity) => ({ type: 'event', entity, epoch: 'E', seq: 2, data: { v: 2 } })));
    await world.settle();
    expect(maps.length - before).toBe(1);
    expect([...maps.at(-1)!.values()].every(({ seq }) => seq === 2)).toBe(true);
  });

  test('members that nobody looks at are numbers and a state', async () => {
    const world = new World();
    const names = Array.from({ length: 100 }, (_, i) => `job/${i}`);
    world.client.topic('all').subscribe(() => {});
    await world.settle();
    world.socket.open();
    // No microtask ran since: the map was not made yet.
    world.socket.snapshot('topic/all', 1, names);
    for (const name of names) push(world.socket, name, 1);
    expect(Wasm.all.at(-1)!.reads).toBe(1);
    expect(world.client.entity('job/7').getSnapshot()).toMatchObject({ seq: 1, sync: 'live', state: { v: 1 } });
  });
});
