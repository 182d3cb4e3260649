// inorder/debug: the same package, with names, and with words for what goes wrong in the wasm.
import { readdirSync, readFileSync } from 'node:fs';
import { afterEach, expect, test, vi } from 'vitest';
import * as shipped from 'inorder';
import type { InorderError } from 'inorder';
import * as debug from 'inorder/debug';
import { read, root } from './pages.js';
import { type Frame, Socket } from './server.js';

const { WebAssembly: real } = globalThis;
afterEach(() => void (globalThis.WebAssembly = real));

test('has the same exports', () => {
  expect(Object.keys(debug).sort()).toEqual(Object.keys(shipped).sort());
});

test('is not minified', () => {
  expect(read('pkg/dist/debug/index.js')).toMatch(/^\/\*\* Makes a client/m);
});

/** A client whose wasm panics at its first event. */
function panicking() {
  const modules: WebAssembly.Module[] = [];
  globalThis.WebAssembly = Object.assign(Object.create(real), {
    Instance: function (module: WebAssembly.Module) {
      modules.push(module);
      const { exports } = new real.Instance(module);
      const { panic } = exports as { panic?: () => void };
      return { exports: { ...exports, accept: () => panic!() } };
    },
  });
  const sockets: Socket[] = [];
  const errors: InorderError[] = [];
  const client = debug.createClient({
    url: 'ws://server.test/ws',
    models: { job: debug.model() },
    WebSocket: class extends Socket {
      constructor(url: string) {
        super(url);
        sockets.push(this);
      }
      override send(text: string): void {
        super.send(text);
        const frame: Frame = JSON.parse(text);
        if (frame['type'] === 'subscribe') queueMicrotask(() => this.snapshot('job/1', 1, {}));
      }
    },
  });
  client.on('error', (error) => {
    errors.push(error);
    client.close();
  });
  client.entity('job/1').subscribe(({ sync }) => {
    if (sync === 'live') queueMicrotask(() => sockets[0]!.event(2, {}));
  });
  return { errors, sockets, modules };
}

test('says why the wasm panicked, and where', async () => {
  const { errors, sockets, modules } = panicking();
  await vi.waitFor(() => expect(sockets).toHaveLength(1), 10_000);
  sockets[0]!.open();
  await vi.waitFor(() => expect(errors).toHaveLength(1), 10_000);
  const { code, cause } = errors[0]!;
  expect(code).toBe('fault');
  expect((cause as Error).message).toMatch(/^panicked at src\/web\/message\.rs:\d+:\d+:\nasked for$/);
  // The trap itself, with the functions on its way by their names.
  const trap = (cause as Error).cause as Error;
  expect(trap).toBeInstanceOf(WebAssembly.RuntimeError);
  expect(trap.stack).toMatch(/panicking/);
  expect(WebAssembly.Module.customSections(modules[0]!, 'name')).toHaveLength(1);
});

test('nothing of it is in what is shipped', () => {
  const wasm = new WebAssembly.Module(readFileSync(`${root}pkg/dist/inorder.wasm`));
  expect(WebAssembly.Module.customSections(wasm, 'name')).toHaveLength(0);
  expect(WebAssembly.Module.exports(wasm).map(({ name }) => name)).not.toContain('message');
  const files = readdirSync(`${root}pkg/dist`).filter((file) => file.endsWith('.js'));
  expect(files.filter((file) => read(`pkg/dist/${file}`).includes('message_length'))).toEqual([]);
});
