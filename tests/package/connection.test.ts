// Sockets, tokens, addresses, page events, subscriptions: what happens around the core.
import { describe, expect, test, vi } from 'vitest';
import { createClient, model } from '../../pkg/dist/index.js';
import { type Data, Socket, useClock, Wasm, World } from './server.js';

useClock();

describe('tokens', () => {
  test('r29_before_every_dial_and_in_the_first_message', async () => {
    let count = 0;
    const attempts: number[] = [];
    const getToken = vi.fn(async ({ attempt }: { attempt: number }) => {
      attempts.push(attempt);
      return `t${++count}`;
    });
    const world = new World({ getToken });
    await world.live(5);
    expect(world.socket.sent[0]).toMatchObject({ type: 'hello', token: 't1' });
    expect(world.socket.url).toBe('ws://server.test/ws');
    world.socket.end(1006);
    await world.pass(1_000);
    world.socket.open();
    expect(world.sockets).toHaveLength(2);
    expect(world.socket.sent[0]).toMatchObject({ type: 'hello', token: 't2' });
    world.socket.say({ type: 'error', code: 'token_expiring', message: 'soon' });
    await world.settle();
    expect(world.socket.of('auth')).toEqual([{ type: 'auth', token: 't3' }]);
    expect(attempts).toHaveLength(3);
  });

  test('r29_a_failure_is_a_failed_attempt', async () => {
    let fails = true;
    const world = new World({
      getToken: () => {
        if (fails) throw new Error('no token today');
        return 't';
      },
    });
    world.client.connect();
    await world.settle();
    expect(world.sockets).toHaveLength(0);
    expect(world.errors).toMatchObject([{ code: 'token', retryable: true, cause: new Error('no token today') }]);
    expect(world.client.status.getSnapshot()).toEqual({ connection: 'offline', retryAt: expect.any(Number) });
    fails = false;
    await world.pass(500);
    expect(world.sockets).toHaveLength(1);
  });

  test('r29_what_is_no_string_is_a_failure', async () => {
    const world = new World({ getToken: (() => 7) as never });
    world.client.connect();
    await world.settle();
    expect(world.errors).toMatchObject([{ code: 'token', cause: expect.any(TypeError) }]);
  });

  test('r23_no_answer_within_15_s_is_aborted_and_void', async () => {
    const signals: AbortSignal[] = [];
    const answers: ((token: string) => void)[] = [];
    const getToken = ({ signal }: { signal: AbortSignal }) => {
      signals.push(signal);
      return new Promise<string>((resolve) => answers.push(resolve));
    };
    const world = new World({ getToken });
    world.client.connect();
    await world.pass(14_999);
    expect(signals[0]!.aborted).toBe(false);
    await world.pass(1);
    expect(signals[0]!.aborted).toBe(true);
    expect(world.codes).toEqual(['token']);
    answers[0]!('late');
    await world.pass(500);
    expect(world.sockets).toHaveLength(0);
    answers[1]!('t2');
    await world.settle();
    world.socket.open();
    expect(world.socket.sent[0]).toMatchObject({ token: 't2' });
  });

  test('r34_after_close_a_token_changes_nothing', async () => {
    let answer!: (token: string) => void;
    const world = new World({ getToken: () => new Promise<string>((resolve) => (answer = resolve)) });
    world.client.connect();
    await world.settle();
    world.client.close();
    answer('t');
    await world.pass(60_000);
    expect(world.sockets).toHaveLength(0);
    expect(world.codes).toEqual([]);
  });

  test('r29_a_given_token_is_kept', async () => {
    const world = new World({ token: 'given' });
    await world.live(5);
    world.socket.end(1006);
    await world.pass(1_000);
    world.socket.open();
    expect(world.sockets.map(({ sent }) => sent[0]!['token'])).toEqual(['given', 'given']);
  });
});

describe('dialing', () => {
  test('an address from a function, asked before each dial', async () => {
    let count = 0;
    const world = new World({ url: async () => `ws://server.test/${++count}` });
    world.client.connect();
    await world.settle();
    world.socket.end(1006);
    await world.pass(1_000);
    expect(world.sockets.map(({ url }) => url)).toEqual(['ws://server.test/1', 'ws://server.test/2']);
  });

  test('a function that fails or returns nonsense is a failed attempt', async () => {
    const urls = [
      () => {
        throw new Error('no idea');
      },
      () => 'http://server.test',
      () => 'ws://server.test/3',
    ];
    const world = new World({ url: () => urls.shift()!() });
    world.client.connect();
    await world.pass(5_000);
    expect(world.sockets.map(({ url }) => url)).toEqual(['ws://server.test/3']);
    expect(world.codes).toEqual(['url', 'url']);
    expect((world.errors[1]!.cause as Error).message).toContain("'ws:', not 'http:'");
  });

  test('r23_a_function_that_never_answers_is_aborted', async () => {
    const signals: AbortSignal[] = [];
    const world = new World({
      url: ({ signal }: { signal: AbortSignal }) => {
        signals.push(signal);
        return new Promise<string>(() => {});
      },
    });
    world.client.connect();
    await world.pass(15_000);
    expect(signals[0]!.aborted).toBe(true);
    await world.pass(1_000);
    expect(signals).toHaveLength(2);
  });

  test('a socket class that throws is a failed attempt', async () => {
    class Forbidden {
      constructor() {
        throw new DOMException('mixed content', 'SecurityError');
      }
    }
    const world = new World({ WebSocket: Forbidden as never });
    world.client.connect();
    await world.settle();
    expect(world.errors).toMatchObject([{ code: 'socket', retryable: true, cause: { name: 'SecurityError' } }]);
    expect(world.client.status.getSnapshot().connection).toBe('offline');
  });

  test('why there is no connection is told once, until there is one', async () => {
    let isRefused = true;
    let opened: Socket;
    class Moody extends Socket {
      constructor(url: string) {
        super(url);
        if (isRefused) throw new Error('not now');
        opened = this;
        queueMicrotask(() => this.open());
      }
    }
    const world = new World({ WebSocket: Moody as never });
    world.client.connect();
    await world.pass(60_000);
    expect(world.client.stats()!.dials).toBeGreaterThan(3);
    expect(world.codes).toEqual(['socket']);
    isRefused = false;
    world.client.reconnect();
    await world.settle();
    expect(world.client.status.getSnapshot().connection).toBe('live');
    isRefused = true;
    opened!.end(1006);
    await world.pass(60_000);
    expect(world.codes).toEqual(['socket', 'socket']);
  });

  test('so is a first socket that fails, with what its class says; later ones are an outage', async () => {
    const world = new World();
    world.client.connect();
    await world.settle();
    const cause = new Error('connect ECONNREFUSED');
    world.socket.onerror!({ error: cause });
    world.socket.end(1006);
    expect(world.errors).toMatchObject([{ code: 'socket', retryable: true, cause }]);
    expect(world.errors[0]!.message).toContain('is inorder.v1.json spoken at `url`?');
    await world.pass(1_000);
    world.socket.end(1006);
    await world.pass(2_000);
    world.socket.open();
    world.socket.end(1006);
    await world.pass(1_000);
    world.socket.onerror!(undefined);
    world.socket.end(1006);
    expect(world.codes).toEqual(['socket']);
  });

  test('and a server that does not say welcome', async () => {
    const world = new World();
    world.client.connect();
    await world.settle();
    world.socket.open(null);
    await world.pass(15_000);
    expect(world.socket.closed).toBe(4000);
    expect(world.errors).toMatchObject([{ code: 'socket' }]);
    expect(world.errors[0]).not.toHaveProperty('cause');
  });

  test.each([
    ['is told why by its code', 4403, ['stopped']],
    ['went on its own', 1000, []],
  ])('but not one that %s', async (_, code, codes) => {
    const world = new World();
    world.client.connect();
    await world.settle();
    world.socket.end(code);
    await world.settle();
    expect(world.codes).toEqual(codes);
  });

  test('nor one that closes with its page', async () => {
    const [page, frame] = [new EventTarget(), new EventTarget()];
    vi.stubGlobal('document', Object.assign(page, { visibilityState: 'visible' }));
    vi.stubGlobal('window', frame);
    try {
      const world = new World();
      world.client.connect();
      await world.settle();
      frame.dispatchEvent(Object.assign(new Event('pagehide'), { persisted: true }));
      expect(world.socket.closed).toBe(4000);
      expect(world.codes).toEqual([]);
      world.client.close();
    } finally {
      vi.unstubAllGlobals();
    }
  });

  test('nor one that the application closes', async () => {
    const world = new World();
    world.client.connect();
    await world.settle();
    world.client.close();
    expect(world.socket.closed).toBe(1000);
    expect(world.codes).toEqual([]);
  });

  test('mixed content is said to need wss:', async () => {
    class Refused {
      constructor() {
        throw new DOMException('An insecure WebSocket connection may not be initiated', 'SecurityError');
      }
    }
    const world = new World({ WebSocket: Refused as never });
    world.client.connect();
    await world.settle();
    expect(world.errors[0]!.message).toContain('https pages need wss:');
    expect(world.errors[0]!.cause).toMatchObject({ name: 'SecurityError' });
  });

  test.each([[''], ['graphql-ws']])('a server that chose the subprotocol %j is reported', async (protocol) => {
    const world = new World();
    world.client.connect();
    await world.settle();
    Object.assign(world.socket, { protocol });
    world.socket.open();
    expect(world.errors).toMatchObject([{ code: 'protocol', message: expect.stringContaining(`'${protocol}'`) }]);
    expect(world.errors[0]).not.toHaveProperty('entity');
  });

  test('a server that chose ours is not', async () => {
    const world = new World();
    world.client.connect();
    await world.settle();
    Object.assign(world.socket, { protocol: 'inorder.v1.json' });
    world.socket.open();
    expect(world.codes).toEqual([]);
  });

  test('r25_events_of_an_older_socket_do_nothing', async () => {
    const world = new World();
    const old = await world.live(5);
    const { onmessage, onclose } = old;
    old.end(1006);
    await world.pass(1_000);
    world.socket.open();
    onmessage!({ data: JSON.stringify({ type: 'event', entity: 'job/1', epoch: 'E', seq: 6, data: {} }) });
    onclose!({ code: 1000 });
    expect(world.client.entity('job/1').getSnapshot().seq).toBe(5);
    expect(world.client.status.getSnapshot().connection).toBe('live');
  });

  test('r26_the_status_says_when_and_reconnect_does_not_wait', async () => {
    const world = new World({ backoff: { min: 10_000, base: 20_000 } });
    await world.live(5);
    world.socket.end(1006);
    const { connection, retryAt } = world.client.status.getSnapshot();
    expect(connection).toBe('offline');
    expect(retryAt! - Date.now()).toBeGreaterThanOrEqual(10_000);
    world.client.reconnect();
    expect(world.sockets).toHaveLength(2);
  });

  test('r23_a_timer_that_fires_early_is_set_again', async () => {
    // Those of Node do, by a fraction of a millisecond: the deadline has not come yet.
    const { setTimeout } = globalThis;
    const now = performance.now.bind(performance);
    let early = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => now() - early);
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(((then: () => void, ms: number) =>
      setTimeout(() => {
        early = 0.5;
        then();
        early = 0;
      }, ms)) as never);
    try {
      const world = new World({ backoff: { min: 200, base: 200 } });
      await world.live(5);
      world.socket.end(1006);
      expect(world.client.status.getSnapshot().connection).toBe('offline');
      await world.pass(210);
      expect(world.sockets).toHaveLength(2);
    } finally {
      vi.restoreAllMocks();
    }
  });

  test('r27_stop_until_connect', async () => {
    const world = new World();
    await world.live(5);
    world.socket.end(4400);
    await world.pass(60_000);
    expect(world.sockets).toHaveLength(1);
    expect(world.codes).toEqual(['stopped']);
    expect(world.client.status.getSnapshot()).toEqual({ connection: 'stopped' });
    world.client.connect();
    await world.settle();
    expect(world.sockets).toHaveLength(2);
  });

  test('r28_a_silent_socket_is_probed_and_replaced', async () => {
    const world = new World();
    world.client.entity('job/1').subscribe(() => {});
    await world.settle();
    const { socket } = world;
    socket.answers = false;
    socket.open({ heartbeat: 5 });
    socket.snapshot('job/1', 5, {});
    // Each event postpones the judgement, although the core is not told of it at once.
    await world.pass(9_000);
    socket.event(6, {});
    await world.pass(9_000);
    expect(socket.of('ping')).toEqual([]);
    await world.pass(1_000);
    expect(socket.of('ping')).toHaveLength(1);
    await world.pass(5_000);
    expect(socket.closed).toBe(4000);
    await world.pass(500);
    expect(world.sockets).toHaveLength(2);
  });

  test('the signal closes the client', async () => {
    const abort = new AbortController();
    const world = new World({ signal: abort.signal });
    await world.live(5);
    abort.abort();
    expect(world.socket.closed).toBe(1000);
    expect(world.client.status.getSnapshot()).toEqual({ connection: 'closed' });
    const late = new World({ signal: abort.signal });
    late.client.connect();
    expect(late.codes).toEqual(['closed']);
  });
});

describe('subscriptions', () => {
  test('r31_subscribers_share_one_subscription', async () => {
    const world = new World({ linger: 0 });
    const job = world.client.entity('job/1');
    const stops = [job.subscribe(() => {}), world.client.entity('job/1').subscribe(() => {})];
    expect(world.client.entity('job/1')).toBe(job);
    await world.settle();
    world.socket.open();
    world.socket.snapshot('job/1', 5, {});
    expect(world.socket.of('subscribe')).toHaveLength(1);
    stops[0]!();
    await world.pass(10);
    expect(world.socket.of('unsubscribe')).toEqual([]);
    stops[1]!();
    await world.pass(10);
    expect(world.socket.of('unsubscribe')).toEqual([{ type: 'unsubscribe', entities: ['job/1'] }]);
    expect(Wasm.all.at(-1)!.known).toBe(0);
  });

  test('r31_leaving_and_joining_within_a_task_is_none', async () => {
    const world = new World({ linger: 0 });
    const socket = await world.live(5);
    const job = world.client.entity('job/2');
    job.subscribe(() => {})();
    const stop = job.subscribe(() => {});
    stop();
    job.subscribe(() => {});
    await world.pass(10);
    expect(socket.of('unsubscribe')).toEqual([]);
  });

  test('r31_other_params_are_refused_while_others_subscribe', async () => {
    const world = new World();
    const full = world.client.entity('job/1', { params: { detail: 'full' } });
    full.subscribe(() => {});
    const brief = world.client.entity('job/1', { params: { detail: 'brief' } });
    const listener = vi.fn();
    brief.subscribe(listener);
    expect(world.codes).toEqual(['params_conflict']);
    expect(listener.mock.calls[0]![0]).toMatchObject({ sync: 'failed', error: { code: 'params_conflict' } });
    expect(full.getSnapshot().error).toBeUndefined();
    await expect(brief.finished()).rejects.toMatchObject({ code: 'params_conflict' });
  });

  test('r31_after_a_release_other_params_forget_the_position', async () => {
    const world = new World();
    const stop = world.client.entity('job/1', { params: { detail: 'full' } }).subscribe(() => {});
    await world.settle();
    world.socket.open();
    world.socket.snapshot('job/1', 5, { v: 5 });
    stop();
    const brief = world.client.entity('job/1', { params: { detail: 'brief' } });
    brief.subscribe(() => {});
    expect(brief.getSnapshot()).toMatchObject({ sync: 'joining', state: undefined });
    await world.settle();
    expect(world.socket.sent.slice(2)).toEqual([
      { type: 'unsubscribe', entities: ['job/1'] },
      { type: 'subscribe', request: 2, entities: [{ entity: 'job/1', params: { detail: 'brief' } }] },
    ]);
  });

  test('r31_a_released_final_entity_is_remembered', async () => {
    const world = new World({ linger: 0 });
    const job = world.client.entity('job/1');
    const stop = job.subscribe(() => {});
    await world.settle();
    world.socket.open();
    world.socket.snapshot('job/1', 5, { v: 5 }, { status: 'completed' });
    stop();
    await world.pass(10);
    expect(job.getSnapshot()).toMatchObject({ sync: 'final', seq: 5, state: { v: 5 } });
  });

  test('a million times subscribe and unsubscribe leave nothing', async () => {
    const world = new World({ linger: 0 });
    await world.live(1);
    const wasm = Wasm.all.at(-1)!;
    for (let round = 0; round < 10; round++) {
      for (let i = 0; i < 1_000; i++) world.client.entity(`job/${round}-${i}`).subscribe(() => {})();
      await world.pass(1);
    }
    expect(wasm.known).toBe(1);
    expect(wasm.lastEntity).toBeLessThanOrEqual(1_001);
  });
});

describe('replayFrom and snapshotFrom', () => {
  test('are asked instead of the server', async () => {
    const replayFrom = vi.fn(async () => ({ events: [{ seq: 6, data: { v: 6 } }] }));
    const snapshotFrom = vi.fn(async () => ({ epoch: 'E', seq: 9, data: { v: 9 } }));
    const world = new World({ replayFrom, snapshotFrom } as never);
    world.client.entity('job/1').subscribe(() => {});
    await world.settle();
    world.socket.open({ can: [] });
    world.socket.snapshot('job/1', 5, { v: 5 });
    world.socket.event(7, { v: 7 });
    await world.pass(100);
    expect(replayFrom.mock.calls).toEqual([['job/1', { epoch: 'E', from: 6, to: 6, signal: expect.any(AbortSignal) }]]);
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 7, sync: 'live' });
    world.socket.say({ type: 'discontinuity', entity: 'job/1', reason: 'test' });
    await world.pass(1_000);
    expect(snapshotFrom).toHaveBeenCalledTimes(1);
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 9, state: { v: 9 } });
    expect(world.socket.of('replay')).toEqual([]);
    expect(world.socket.of('snapshot')).toEqual([]);
  });

  test.each([
    ['snapshotFrom', { epoch: 'E', seq: 6, data: { v: 6 } }],
    ['replayFrom', { events: [{ seq: 6, data: { v: 6 } }] }],
  ])('r23_one_that_fails_is_reported_once_and_asked_again: %s', async (name, answer) => {
    const down = new Error('503');
    const from = vi.fn().mockRejectedValueOnce(down).mockResolvedValue(answer);
    const world = new World({
      [name]: from,
      ...(name === 'snapshotFrom' && { models: { job: { onGap: 'snapshot' } } }),
    });
    await world.live(5);
    world.socket.event(7, { v: 7 });
    await world.pass(110);
    const reported = { code: 'source', entity: 'job/1', retryable: true, cause: down };
    expect(world.errors).toMatchObject([reported]);
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 5, sync: 'recovering', error: reported });
    await world.pass(10_000);
    expect(from).toHaveBeenCalledTimes(2);
    expect(world.client.entity('job/1').getSnapshot()).toEqual(
      expect.not.objectContaining({ error: expect.anything() }),
    );
    expect(world.client.entity('job/1').getSnapshot()).toMatchObject({ seq: 7, sync: 'live' });
    expect(world.codes).toEqual(['source']);
  });

  test('what the server says meanwhile is the server’s', async () => {
    const world = new World({ replayFrom: () => new Promise(() => {}) });
    await world.live(5);
    world.socket.say({ type: 'error', code: 'overloaded', message: 'later', entity: 'job/1' });
    expect(world.errors).toMatchObject([{ code: 'server', cause: { message: 'overloaded: later' } }]);
  });
});

describe('misuse never throws', () => {
  test('an unknown model', () => {
    const world = new World();
    const pet: any = (world.client as any).entity('pet/1');
    const listener = vi.fn();
    pet.subscribe(listener);
    expect(listener.mock.calls[0]![0].error.message).toBe(
      "No model for 'pet/1': add one for the part before the first '/'.",
    );
    expect(world.codes).toEqual(['unknown_model']);
  });

  test.each([
    [
      'refer to themselves',
      () => {
        const circle: Data = {};
        circle['self'] = circle;
        return circle;
      },
    ],
    ['contain a BigInt', () => ({ n: 1n })],
  ])('params that %s', async (_, make) => {
    const world = new World();
    const job = world.client.entity('job/1', { params: make() });
    const listener = vi.fn();
    job.subscribe(listener)();
    expect(listener.mock.calls[0]![0]).toMatchObject({ sync: 'failed', error: { code: 'params', entity: 'job/1' } });
    expect(world.errors).toMatchObject([{ code: 'params', retryable: false, cause: expect.any(TypeError) }]);
    await expect(job.finished()).rejects.toMatchObject({ code: 'params' });
    // Others are not concerned.
    world.client.entity('job/1').subscribe(() => {});
    expect(world.client.entity('job/1').getSnapshot().sync).toBe('joining');
  });

  test('after close', async () => {
    const world = new World();
    await world.live(5);
    world.client.close();
    world.client.close();
    const listener = vi.fn();
    world.client.entity('job/1').subscribe(listener);
    world.client.connect();
    world.client.reconnect();
    expect(listener.mock.calls[0]![0].error.code).toBe('closed');
    expect(world.codes).toEqual(['closed', 'closed', 'closed']);
    await expect(world.client.preload()).rejects.toMatchObject({ code: 'closed' });
    expect(world.client.stats()).toMatchObject({ adopted: 1 });
    expect((await world.client.entity('job/1').changes().next()).done).toBe(true);
  });

  test('a listener that is none', () => {
    const world = new World();
    world.client.entity('job/1').subscribe(7 as never)();
    world.client.status.subscribe(null as never)();
    world.client.on('final', undefined as never)();
    expect(world.codes).toEqual(['listener', 'listener', 'listener']);
    for (const error of world.errors) {
      expect(error.message).toBe('A listener must be a function or have `next`.');
      expect(error).not.toHaveProperty('cause');
      expect(error).not.toHaveProperty('entity');
    }
  });

  test('a listener of what never happens', () => {
    const world = new World();
    for (const type of ['finished', 'changes', 'constructor'] as never[]) world.client.on(type, () => {})();
    expect(world.errors.map(({ code, message }) => `${code}: ${message}`)).toEqual([
      "listener: A listener of 'finished' is never called.",
      "listener: A listener of 'changes' is never called.",
      "listener: A listener of 'constructor' is never called.",
    ]);
    // All that the types know.
    const known: Record<Parameters<typeof world.client.on>[0], true> = {
      change: true,
      connection: true,
      error: true,
      final: true,
      gap: true,
      sync: true,
    };
    for (const type of Object.keys(known)) world.client.on(type as keyof typeof known, () => {});
    expect(world.errors).toHaveLength(3);
  });

  test('an error listener that throws goes to the logger', () => {
    const logger = { error: vi.fn(), warn: vi.fn() };
    const client = createClient({ url: 'ws://server.test', models: { job: model<Data>() }, logger });
    (client as any).entity('pet/1').subscribe(() => {});
    expect(logger.error.mock.calls[0]![0]).toMatchObject({ code: 'unknown_model' });
    client.on('error', () => {
      throw new Error('again');
    });
    (client as any).entity('pet/2').subscribe(() => {});
    expect(logger.error.mock.calls[1]![0]).toEqual(new Error('again'));
  });
});

describe('R38: traps', () => {
  test('r38_everything_resumes_from_its_position', async () => {
    const world = new World();
    const socket = await world.live(5);
    const wasm = Wasm.all.at(-1)!;
    const other = new World();
    await other.live(7);
    const job = world.client.entity('job/1');
    const syncs: string[] = [];
    job.subscribe(({ sync }) => syncs.push(sync));
    wasm.trap(world.client);
    expect(world.codes).toEqual(['fault']);
    expect(world.errors[0]!.cause).toBeInstanceOf(WebAssembly.RuntimeError);
    expect(socket.closed).toBe(4000);
    expect(socket.onmessage ?? null).toBeNull();
    expect(job.getSnapshot()).toMatchObject({ sync: 'stale', seq: 5, state: { v: 5 } });
    // Each client has an instance of its own.
    expect(other.codes).toEqual([]);
    expect(other.client.entity('job/1').getSnapshot()).toMatchObject({ sync: 'live', seq: 7 });
    await world.pass(600);
    world.socket.open();
    expect(world.socket.of('subscribe')[0]!['entities']).toEqual([{ entity: 'job/1', epoch: 'E', after: 5 }]);
    const request = world.socket.request('subscribe');
    world.socket.say({ type: 'subscribed', request, entity: 'job/1', epoch: 'E', head: 5 });
    world.socket.event(6, { v: 6 });
    expect(job.getSnapshot()).toMatchObject({ sync: 'live', seq: 6, state: { v: 6 } });
    expect(syncs).toEqual(['live', 'stale', 'recovering', 'live', 'live']);
  });

  test('r38_topics_members_and_finals_too', async () => {
    const world = new World();
    const topic = world.client.topic('all');
    topic.subscribe(() => {});
    world.client.entity('job/9').subscribe(() => {});
    await world.settle();
    world.socket.open();
    world.socket.snapshot('topic/all', 3, ['job/1', 'job/2']);
    world.socket.snapshot('job/1', 1, { v: 1 });
    world.socket.snapshot('job/2', 2, { v: 2 });
    world.socket.snapshot('job/9', 9, { v: 9 }, { status: 'completed' });
    Wasm.all.at(-1)!.trap(world.client);
    await world.pass(600);
    world.socket.open();
    expect(world.socket.of('subscribe')[0]!['entities']).toEqual([
      {
        entity: 'topic/all',
        epoch: 'E',
        after: 3,
        behind: [
          ['job/1', 'E', 1],
          ['job/2', 'E', 2],
        ],
      },
    ]);
    expect(world.client.entity('job/9').getSnapshot()).toMatchObject({ sync: 'final', seq: 9, state: { v: 9 } });
    expect([...topic.getSnapshot().values()].map(({ state }) => (state as Data)['v'])).toEqual([1, 2]);
  });

  test('r38_a_trap_that_repeats_is_backed_off_from', async () => {
    const world = new World();
    await world.live(5);
    const waits: number[] = [];
    for (let i = 0; i < 4; i++) {
      Wasm.all.at(-1)!.trap(world.client);
      waits.push(world.client.status.getSnapshot().retryAt! - Date.now());
      await world.pass(40_000);
    }
    expect(waits[3]!).toBeGreaterThan(1_900);
    expect(waits[0]!).toBeLessThanOrEqual(501);
  });

  test('r38_in_a_callback_the_rest_waits_for_the_new_instance', async () => {
    const world = new World();
    const socket = await world.live(5);
    const wasm = Wasm.all.at(-1)!;
    const seen: unknown[] = [];
    world.client.entity('job/1').subscribe(({ seq, sync }) => {
      if (seq === 6 && sync === 'live') wasm.trap(world.client);
      seen.push([seq, sync]);
    });
    socket.say(
      { type: 'event', entity: 'job/1', epoch: 'E', seq: 6, data: { v: 6 } },
      { type: 'event', entity: 'job/1', epoch: 'E', seq: 7, data: { v: 7 } },
    );
    expect(seen).toEqual([
      [5, 'live'],
      [6, 'stale'],
      [6, 'live'],
    ]);
    await world.pass(600);
    world.socket.open();
    expect(world.socket.of('subscribe')[0]!['entities']).toEqual([{ entity: 'job/1', epoch: 'E', after: 6 }]);
  });
});
