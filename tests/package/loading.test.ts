// How the wasm comes to the page. Each file of tests has modules of its own, so here nothing is loaded yet.
import { readFile } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ClientOptions, InorderError } from '../../pkg/dist/index.js';
import { Socket } from './server.js';

const wasm = new URL('../../pkg/dist/inorder.wasm', import.meta.url);

let sockets: Socket[];
let options: ClientOptions;

beforeEach(() => {
  vi.resetModules();
  sockets = [];
  options = {
    url: 'ws://server.test/ws',
    models: { job: {} },
    logger: null,
    WebSocket: class extends Socket {
      constructor(url: string, protocols?: string | string[]) {
        super(url, protocols);
        sockets.push(this);
      }
    },
  };
});

afterEach(() => vi.restoreAllMocks());

const load = () => import('../../pkg/dist/index.js');
const loadSlim = () => import('../../pkg/dist/slim.js');

describe('inorder', () => {
  test('making a client does nothing', async () => {
    const compile = vi.spyOn(WebAssembly, 'compile');
    const { createClient } = await load();
    const client = createClient(options);
    client.entity('job/1').getSnapshot();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(compile).not.toHaveBeenCalled();
    expect(sockets).toEqual([]);
    client.close();
  });

  test('the handshake does not wait for the wasm', async () => {
    const { createClient } = await load();
    const client = createClient(options);
    client.entity('job/1').subscribe(() => {});
    expect(sockets).toEqual([]);
    await undefined;
    expect(sockets).toHaveLength(1);
    const [socket] = sockets as [Socket];
    // Open, and a server that says welcome unasked, before the core is there.
    socket.open();
    expect(socket.sent).toEqual([]);
    await vi.waitUntil(() => socket.of('subscribe').length > 0);
    expect(client.status.getSnapshot()).toEqual({ connection: 'live' });
    expect(sockets).toHaveLength(1);
    client.close();
    expect(socket.closed).toBe(1000);
  });

  test('a socket that fails meanwhile is a failed attempt', async () => {
    const { createClient } = await load();
    const client = createClient(options);
    client.connect();
    await undefined;
    sockets[0]!.end(1006);
    await vi.waitUntil(() => client.status.getSnapshot().connection === 'offline');
    await vi.waitUntil(() => sockets.length === 2, 2_000);
    client.close();
  });

  test('closing before it is loaded leaves nothing', async () => {
    const { createClient } = await load();
    const client = createClient(options);
    client.connect();
    await undefined;
    client.close();
    expect(sockets[0]!.closed).toBe(1000);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(sockets).toHaveLength(1);
  });

  test('r31_who_leaves_within_the_task_opens_and_loads_nothing', async () => {
    const compile = vi.spyOn(WebAssembly, 'compile');
    const { createClient } = await load();
    const client = createClient(options);
    client.entity('job/1').subscribe(() => {})();
    client.topic('all').subscribe(() => {})();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(sockets).toEqual([]);
    expect(compile).not.toHaveBeenCalled();
    // Later it is as if nothing had been.
    client.entity('job/1').subscribe(() => {});
    await vi.waitUntil(() => sockets.length === 1);
    client.close();
  });

  test('preload compiles once', async () => {
    const compile = vi.spyOn(WebAssembly, 'compile');
    const { createClient } = await load();
    const client = createClient(options);
    await Promise.all([client.preload(), client.preload(), createClient(options).preload()]);
    expect(compile).toHaveBeenCalledTimes(1);
    expect(sockets).toEqual([]);
  });

  test('a failure is reported and tried again', async () => {
    const { createClient } = await load();
    const compile = vi.spyOn(WebAssembly, 'compile').mockRejectedValueOnce(new Error('offline'));
    const errors: unknown[] = [];
    const client = createClient(options);
    client.on('error', (error) => errors.push(error));
    client.connect();
    await vi.waitUntil(() => errors.length > 0);
    expect(errors).toMatchObject([{ code: 'load', retryable: true, cause: new Error('offline') }]);
    expect(client.status.getSnapshot()).toEqual({ connection: 'offline', retryAt: expect.any(Number) });
    await vi.waitUntil(() => compile.mock.calls.length === 2, 2_000);
    client.close();
  });

  test('a policy that forbids wasm is named', async () => {
    const { createClient } = await load();
    const cause = new WebAssembly.CompileError("Wasm code generation disallowed because 'unsafe-eval' is not allowed");
    vi.spyOn(WebAssembly, 'compile').mockRejectedValueOnce(cause);
    await expect(createClient(options).preload()).rejects.toMatchObject({
      code: 'load',
      retryable: false,
      message: expect.stringContaining('wasm-unsafe-eval'),
    });
  });
});

test.each([
  ["WebAssembly.compile(): violates the following Content Security Policy directive because 'unsafe-eval'", true],
  ['call to WebAssembly.compile() blocked by CSP', true],
  ["Refused to create a WebAssembly object because 'unsafe-eval' or 'wasm-unsafe-eval' is not allowed", true],
  ['expected magic word 00 61 73 6d, found 3c 21 64 6f @+0', false],
])('a policy is told by its words in any browser: %s', async (words, isForbidden) => {
  const { createClient } = await load();
  vi.spyOn(WebAssembly, 'compile').mockRejectedValueOnce(new WebAssembly.CompileError(words));
  const errors: InorderError[] = [];
  const client = createClient(options);
  client.on('error', (error) => errors.push(error));
  client.connect();
  await vi.waitUntil(() => errors.length > 0);
  expect(errors).toMatchObject([{ code: 'load', retryable: !isForbidden }]);
  expect(client.status.getSnapshot().connection).toBe(isForbidden ? 'stopped' : 'offline');
  if (isForbidden) {
    // The application may try again, perhaps after it changed the policy of a frame.
    client.connect();
    await vi.waitUntil(() => client.status.getSnapshot().connection === 'connecting');
  }
  client.close();
});

describe('inorder/slim', () => {
  test.each([
    ['bytes', () => readFile(wasm)],
    ['a module', async () => WebAssembly.compile(await readFile(wasm))],
    ['a response', async () => new Response(await readFile(wasm))],
    ['a function', () => () => readFile(wasm)],
  ])('takes %s', async (_, make) => {
    const { createClient } = await loadSlim();
    const client = createClient({ ...options, wasm: (await make()) as never });
    client.connect();
    await vi.waitUntil(() => sockets.length > 0);
    sockets[0]!.open();
    await vi.waitUntil(() => client.status.getSnapshot().connection === 'live');
    client.close();
  });

  test('a response that failed is reported', async () => {
    const { createClient } = await loadSlim();
    const response = new Response('gone', { status: 404 });
    await expect(createClient({ ...options, wasm: response }).preload()).rejects.toMatchObject({ code: 'load' });
  });
});
