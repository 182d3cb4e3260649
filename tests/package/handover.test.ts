// Section 6 of the rules: what JavaScript is handed, when and how.
import { describe, expect, test, vi } from 'vitest';
import { model } from '../../pkg/dist/index.js';
import type { Change, EntitySnapshot } from '../../pkg/dist/index.js';
import { type Data, useClock, World } from './server.js';

useClock();

describe('R32: a new subscriber is called at once', () => {
  test('r32_before_anything_is_known', () => {
    const world = new World();
    const seen: EntitySnapshot[] = [];
    world.client.entity('job/1').subscribe((snapshot) => seen.push(snapshot));
    expect(seen).toEqual([{ state: undefined, sync: 'joining' }]);
  });

  test('r32_with_the_current_snapshot', async () => {
    const world = new World();
    await world.live(5);
    const seen: EntitySnapshot[] = [];
    world.client.entity('job/1').subscribe((snapshot) => seen.push(snapshot));
    expect(seen).toEqual([{ state: { v: 5 }, sync: 'live', seq: 5, epoch: 'E', status: 'running' }]);
  });

  test('r32_an_object_with_next_will_do', async () => {
    const world = new World();
    await world.live(5);
    const next = vi.fn();
    world.client.entity('job/1').subscribe({ next });
    expect(next).toHaveBeenCalledTimes(1);
  });

  test('r32_subscribe_and_getSnapshot_are_bound', async () => {
    const world = new World();
    await world.live(5);
    const { subscribe, getSnapshot } = world.client.entity('job/1');
    const listener = vi.fn();
    const stop = subscribe(listener);
    expect(listener).toHaveBeenCalledWith(getSnapshot());
    expect(stop.unsubscribe).toBeTypeOf('function');
    expect(stop[Symbol.dispose]).toBeTypeOf('function');
    stop();
    stop.unsubscribe();
  });
});

describe('R33: snapshots keep their identity', () => {
  test('r33_frozen_and_the_same_until_something_changes', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const before = job.getSnapshot();
    expect(Object.isFrozen(before)).toBe(true);
    expect(job.getSnapshot()).toBe(before);
    socket.event(5, { v: 'again' });
    socket.event(3, { v: 'old' });
    expect(job.getSnapshot()).toBe(before);
    socket.event(6, { v: 6 });
    expect(job.getSnapshot()).not.toBe(before);
    expect(before.seq).toBe(5);
  });

  test('r33_a_change_of_sync_makes_a_new_one', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const before = job.getSnapshot();
    socket.end(1006);
    expect(job.getSnapshot()).toEqual({ ...before, sync: 'stale' });
  });

  test('r13_an_event_that_shows_nothing_calls_nobody', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const listener = vi.fn();
    job.subscribe(listener);
    const before = job.getSnapshot();
    socket.event(6);
    socket.event(7, { v: 7 });
    expect(listener.mock.calls.map(([snapshot]) => snapshot.seq)).toEqual([5, 7]);
    expect(before).not.toBe(job.getSnapshot());
  });
});

describe('R34: one change at a time', () => {
  test('r34_a_callback_may_call_anything', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const order: string[] = [];
    job.subscribe(({ seq }) => {
      if (seq !== 6) return;
      order.push(`state ${job.getSnapshot().seq}`);
      world.client.entity('job/2').subscribe(({ sync }) => order.push(`job/2 ${sync}`));
      world.client.close();
      order.push('closed');
    });
    socket.say(
      { type: 'event', entity: 'job/1', epoch: 'E', seq: 6, data: { v: 6 } },
      { type: 'event', entity: 'job/1', epoch: 'E', seq: 7, data: { v: 7 } },
    );
    expect(order).toEqual(['state 6', 'job/2 joining', 'closed']);
    expect(socket.closed).toBe(1000);
    expect(socket.onmessage ?? null).toBeNull();
    expect(job.getSnapshot().seq).toBe(6);
    expect(world.codes).toEqual([]);
    await world.pass(60_000);
    expect(world.sockets).toHaveLength(1);
  });

  test('r34_a_listener_that_is_removed_meanwhile_is_not_called', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const second = vi.fn();
    job.subscribe(({ seq }) => seq === 6 && stop());
    const stop = job.subscribe(second);
    socket.event(6, { v: 6 });
    expect(second).toHaveBeenCalledTimes(1);
  });

  test('r34_a_listener_that_is_added_meanwhile_hears_it_once', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const late = vi.fn();
    let isAdded = false;
    job.subscribe(({ seq }) => {
      if (seq === 6 && !isAdded) {
        isAdded = true;
        job.subscribe(late);
      }
    });
    socket.event(6, { v: 6 });
    expect(late).toHaveBeenCalledTimes(1);
  });

  test('r34_a_listener_that_throws_stops_nobody', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const boom = new Error('boom');
    job.subscribe(({ seq }) => {
      if (seq === 6) throw boom;
    });
    const second = vi.fn();
    job.subscribe(second);
    socket.event(6, { v: 6 });
    socket.event(7, { v: 7 });
    expect(second.mock.calls.map(([snapshot]) => snapshot.seq)).toEqual([5, 6, 7]);
    expect(world.errors).toMatchObject([{ code: 'listener', message: 'A listener failed, see `cause`.', cause: boom }]);
    expect(world.errors[0]).not.toHaveProperty('entity');
  });

  test('r34_promises_of_callbacks_are_not_awaited', async () => {
    const world = new World();
    const socket = await world.live(5);
    const seen: unknown[] = [];
    world.client.entity('job/1').subscribe((snapshot) => {
      seen.push(snapshot.seq);
      return new Promise(() => {}) as never;
    });
    socket.event(6, { v: 6 });
    socket.event(7, { v: 7 });
    expect(seen).toEqual([5, 6, 7]);
  });

  test('r34_held_changes_are_handed_over_one_by_one', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const seen: unknown[] = [];
    job.subscribe(({ seq }) => seen.push([seq, job.getSnapshot().seq]));
    socket.event(8, { v: 8 });
    socket.event(7, { v: 7 });
    socket.event(6, { v: 6 });
    expect(seen).toEqual([
      [5, 5],
      [6, 6],
      [7, 7],
      [8, 8],
    ]);
  });

  test('r34_released_in_a_callback_the_rest_is_void', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const seen: unknown[] = [];
    const stop = job.subscribe(({ seq }) => {
      seen.push(seq);
      if (seq === 6) stop();
    });
    socket.event(7, { v: 7 });
    socket.event(6, { v: 6 });
    expect(seen).toEqual([5, 6]);
  });

  test('r34_after_close_nothing_is_called', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const listener = vi.fn();
    job.subscribe(listener);
    world.client.on('final', listener);
    world.client.status.subscribe(listener);
    listener.mockClear();
    world.client.close();
    socket.event(6, { v: 6 });
    socket.end(1000);
    await world.pass(60_000);
    expect(listener).not.toHaveBeenCalled();
    expect(job.getSnapshot()).toMatchObject({ seq: 5, sync: 'stale' });
    expect(world.client.status.getSnapshot()).toEqual({ connection: 'closed' });
    expect(vi.getTimerCount()).toBe(0);
  });

  test('r34_a_socket_that_answers_inside_send_waits_its_turn', async () => {
    const world = new World();
    const socket = await world.live(5);
    const seen: unknown[] = [];
    const job = world.client.entity('job/1');
    job.subscribe(({ seq }) => {
      if (seq === 6) socket.event(7, { v: 7 });
    });
    job.subscribe(({ seq }) => seen.push(seq));
    socket.event(6, { v: 6 });
    expect(seen).toEqual([5, 6, 7]);
  });
});

describe('R35: flush', () => {
  test('r35_microtask_calls_once_per_entity_and_task', async () => {
    const world = new World({ flush: 'microtask' });
    const socket = await world.live(5);
    const listener = vi.fn();
    world.client.entity('job/1').subscribe(listener);
    listener.mockClear();
    socket.event(6, { v: 6 });
    socket.event(7, { v: 7 });
    expect(listener).not.toHaveBeenCalled();
    expect(world.client.entity('job/1').getSnapshot().seq).toBe(7);
    await world.settle();
    expect(listener.mock.calls.map(([snapshot]) => snapshot.seq)).toEqual([7]);
  });

  test('r35_one_who_came_meanwhile_does_not_hear_it_twice', async () => {
    const world = new World({ flush: 'microtask' });
    const socket = await world.live(5);
    socket.event(6, { v: 6 });
    const listener = vi.fn();
    world.client.entity('job/1').subscribe(listener);
    await world.settle();
    expect(listener).toHaveBeenCalledTimes(1);
  });

  test('r35_conflation_never_crosses_a_final_state', async () => {
    const world = new World({ flush: 'microtask', models: { job: model<Data>({ reopen: 'epoch' }) } });
    const socket = await world.live(5);
    const seen: unknown[] = [];
    world.client.entity('job/1').subscribe(({ seq, epoch, sync }) => seen.push([epoch, seq, sync]));
    seen.length = 0;
    socket.event(6, { v: 6 }, { status: 'completed' });
    socket.say({ type: 'snapshot', entity: 'job/1', epoch: 'F', seq: 1, status: 'running', data: {} });
    await world.settle();
    expect(seen).toEqual([
      ['E', 6, 'final'],
      ['F', 1, 'live'],
    ]);
  });

  test('r35_frame_calls_once_per_animation_frame', async () => {
    const frames: (() => void)[] = [];
    vi.stubGlobal('requestAnimationFrame', (callback: () => void) => frames.push(callback));
    vi.stubGlobal('cancelAnimationFrame', () => {});
    try {
      const world = new World({ flush: 'frame' });
      const socket = await world.live(5);
      frames.splice(0).forEach((frame) => frame());
      const listener = vi.fn();
      world.client.entity('job/1').subscribe(listener);
      listener.mockClear();
      socket.event(6, { v: 6 });
      await world.settle();
      socket.event(7, { v: 7 });
      await world.settle();
      expect(listener).not.toHaveBeenCalled();
      expect(frames).toHaveLength(1);
      frames[0]!();
      expect(listener.mock.calls.map(([snapshot]) => snapshot.seq)).toEqual([7]);
    } finally {
      vi.unstubAllGlobals();
    }
  });

  test('r35_frame_goes_by_a_timer_where_there_are_no_frames', async () => {
    const world = new World({ flush: 'frame' });
    const socket = await world.live(5);
    const listener = vi.fn();
    world.client.entity('job/1').subscribe(listener);
    await world.pass(100);
    listener.mockClear();
    socket.event(6, { v: 6 });
    await world.pass(100);
    expect(listener).toHaveBeenCalledTimes(1);
  });
});

describe('R35: changes()', () => {
  const take = async (changes: AsyncIterator<Change<Data, Data>>, count: number) => {
    const taken: Change<Data, Data>[] = [];
    for (let i = 0; i < count; i++) {
      const { done, value } = await changes.next();
      if (done) break;
      taken.push(value);
    }
    return taken;
  };

  test('r35_changes_start_with_the_current_snapshot_and_end_after_the_final_one', async () => {
    const world = new World();
    const socket = await world.live(5);
    const changes = world.client.entity('job/1').changes();
    socket.event(6, { v: 6 }, { id: 'e6', at: 't6' });
    socket.event(7, { v: 7 }, { status: 'completed' });
    socket.event(8, { v: 8 });
    expect(await take(changes, 9)).toEqual([
      { kind: 'snapshot', seq: 5, epoch: 'E', state: { v: 5 }, status: 'running' },
      { kind: 'event', seq: 6, epoch: 'E', event: { v: 6 }, state: { v: 6 }, status: 'running', id: 'e6', at: 't6' },
      { kind: 'event', seq: 7, epoch: 'E', event: { v: 7 }, state: { v: 7 }, status: 'completed' },
    ]);
  });

  test('r35_a_reader_that_waits_gets_each_change_as_it_comes', async () => {
    const world = new World();
    const socket = await world.live(5);
    const changes = world.client.entity('job/1').changes();
    await changes.next();
    const next = [changes.next(), changes.next()];
    socket.event(6, { v: 6 });
    socket.event(7, { v: 7 });
    expect((await Promise.all(next)).map(({ value }) => value.seq)).toEqual([6, 7]);
  });

  test('r35_a_reader_that_is_too_slow_gets_one_snapshot_marked_skipped', async () => {
    const world = new World({ flush: 'microtask' });
    const socket = await world.live(5);
    const changes = world.client.entity('job/1').changes();
    for (let seq = 6; seq <= 2_000; seq++) socket.event(seq, { v: seq });
    const taken = await take(changes, 1_001);
    expect(taken.slice(0, 1_000).map(({ seq }) => seq)).toEqual(Array.from({ length: 1_000 }, (_, i) => i + 5));
    expect(taken[1_000]).toEqual({
      kind: 'snapshot',
      seq: 2_000,
      epoch: 'E',
      state: { v: 2_000 },
      status: 'running',
      skipped: [1_005, 2_000],
    });
    socket.event(2_001, { v: 2_001 });
    expect((await changes.next()).value).toMatchObject({ kind: 'event', seq: 2_001 });
  });

  test('r35_changes_end_with_close_with_return_and_with_their_signal', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const abort = new AbortController();
    const [left, aborted, closed] = [job.changes(), job.changes({ signal: abort.signal }), job.changes()];
    for (const changes of [left, aborted, closed]) await changes.next();
    await left.return!();
    abort.abort();
    const waiting = closed.next();
    world.client.close();
    for (const result of [left.next(), aborted.next(), waiting]) expect((await result).done).toBe(true);
    expect(socket.closed).toBe(1000);
  });

  test('r31_readers_count_as_subscribers', async () => {
    const world = new World({ linger: 0 });
    const job = world.client.entity('job/1');
    const changes = job.changes();
    await world.settle();
    world.socket.open();
    world.socket.snapshot('job/1', 1, {});
    expect((await changes.next()).value).toMatchObject({ seq: 1 });
    await changes.return!();
    await world.pass(1);
    expect(world.socket.of('unsubscribe')).toEqual([{ type: 'unsubscribe', entities: ['job/1'] }]);
  });
});

describe('finished()', () => {
  test('resolves once, with the final snapshot', async () => {
    const world = new World();
    const socket = await world.live(5);
    const finished = world.client.entity('job/1').finished();
    socket.event(6, { v: 6 }, { status: 'failed' });
    expect(await finished).toEqual({ state: { v: 6 }, sync: 'final', seq: 6, epoch: 'E', status: 'failed' });
    expect(await world.client.entity('job/1').finished()).toBe(await finished);
  });

  test('rejects with the reason of its signal, when closed, and when refused for good', async () => {
    const world = new World();
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    const abort = new AbortController();
    const aborted = job.finished({ signal: abort.signal });
    abort.abort('enough');
    await expect(aborted).rejects.toBe('enough');
    const refused = world.client.entity('job/2').finished();
    socket.say({
      type: 'error',
      code: 'forbidden',
      message: 'no',
      request: socket.request('subscribe'),
      entity: 'job/2',
    });
    await expect(refused).rejects.toMatchObject({ code: 'forbidden', entity: 'job/2', retryable: false });
    const closed = job.finished();
    world.client.close();
    await expect(closed).rejects.toMatchObject({ code: 'closed' });
    await expect(job.finished()).rejects.toMatchObject({ code: 'closed' });
  });
});

describe('R36: reduce and terminal may throw', () => {
  const throwing = {
    job: model<Data, Data>({
      reduce: (state, data) => {
        if (data['fail']) throw new Error('cannot');
        return { ...state, ...data };
      },
    }),
  };

  test('r36_state_and_position_stay_and_a_snapshot_is_asked', async () => {
    const world = new World({ models: throwing });
    const socket = await world.live(5);
    const job = world.client.entity('job/1');
    socket.event(6, { fail: true });
    socket.event(7, { w: 7 });
    expect(job.getSnapshot()).toMatchObject({ state: { v: 5 }, seq: 5 });
    expect(job.getSnapshot().error).toMatchObject({ code: 'reduce', cause: new Error('cannot') });
    expect(world.codes).toEqual(['reduce']);
    await world.pass(1_000);
    expect(socket.of('replay')).toEqual([]);
    expect(socket.of('snapshot')).toHaveLength(1);
    socket.say({
      type: 'snapshot',
      request: socket.request('snapshot'),
      entity: 'job/1',
      epoch: 'E',
      seq: 6,
      data: { s: 6 },
    });
    expect(job.getSnapshot()).toEqual({ state: { s: 6, w: 7 }, sync: 'live', seq: 7, epoch: 'E', status: undefined });
  });

  test('r36_on_the_slow_way_too', async () => {
    const world = new World({ models: throwing });
    const socket = await world.live(5);
    socket.event(7, { fail: true });
    socket.event(6, { v: 6 });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 6, state: { v: 6 } });
    expect(world.codes).toEqual(['reduce']);
  });

  test('r36_a_terminal_that_throws', async () => {
    const terminal = (status: string | undefined) => {
      if (status === 'odd') throw new Error('odd');
      return status === 'done';
    };
    const world = new World({ models: { job: model<Data>({ terminal }) } });
    const socket = await world.live(5);
    socket.event(6, { v: 6 }, { status: 'odd' });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 5, status: 'running' });
    expect(world.codes).toEqual(['reduce']);
  });

  test('r08_a_function_judges_what_is_terminal', async () => {
    const terminal = (_: string | undefined, state: Data | null) => state?.['v'] === 7;
    const world = new World({ models: { job: model<Data>({ terminal }) } });
    const socket = await world.live(5);
    const final = vi.fn();
    world.client.on('final', final);
    socket.event(6, { v: 6 });
    socket.event(7, { v: 7 });
    socket.event(8, { v: 8 });
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 7, sync: 'final' });
    expect(final.mock.calls).toEqual([[{ entity: 'job/1', status: 'running', seq: 7, state: { v: 7 } }]]);
    expect(world.codes).toEqual(['after_final']);
  });
});

describe('R37: nothing follows __proto__', () => {
  test('r37_merging_and_names', async () => {
    const world = new World({ models: { job: model<Data>({ reduce: 'merge' }) } });
    const socket = await world.live(5, { v: 5 });
    socket.raw(
      '{"type":"event","entity":"job/1","epoch":"E","seq":6,"data":{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}}',
    );
    const { state } = world.client.entity('job/1').getSnapshot();
    expect(({} as Data)['polluted']).toBeUndefined();
    expect(Object.getPrototypeOf(state)).toBe(Object.prototype);
    expect(Object.keys(state!)).toEqual(['v', '__proto__', 'constructor']);
    const odd = (world.client as any).entity('__proto__/1');
    odd.subscribe(() => {});
    expect(odd.getSnapshot()).toMatchObject({ sync: 'failed', error: { code: 'unknown_model' } });
  });

  test('r37_models_are_own_properties', () => {
    const world = new World();
    for (const name of ['toString', 'constructor/1', 'hasOwnProperty/x']) {
      const entity = (world.client as any).entity(name);
      entity.subscribe(() => {});
      expect(entity.getSnapshot().error.code).toBe('unknown_model');
    }
  });
});

describe('stores', () => {
  test('observables and async iterators', async () => {
    const world = new World({ flush: 'microtask' });
    const socket = await world.live(5);
    const job: any = world.client.entity('job/1');
    expect(job['@@observable']()).toBe(job);
    const seen: unknown[] = [];
    const reading = (async () => {
      for await (const snapshot of job) seen.push(snapshot.seq);
    })();
    await world.settle();
    socket.event(6, { v: 6 });
    socket.event(7, { v: 7 });
    await world.settle();
    world.client.close();
    await reading;
    expect(seen).toEqual([5, 7]);
  });

  test('a server renders what is known there', () => {
    const world = new World();
    const job = world.client.entity('job/1');
    expect(job.getServerSnapshot()).toEqual({ state: undefined, sync: 'joining' });
    expect(job.getServerSnapshot()).toBe(world.client.entity('job/2').getServerSnapshot());
    expect(world.client.topic('all').getServerSnapshot().size).toBe(0);
    expect(world.client.status.getServerSnapshot()).toEqual({ connection: 'idle' });
  });
});
