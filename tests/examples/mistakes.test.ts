// What a newcomer is told: the first mistakes of docs/errors.md, made in Node and in Chromium with real sockets.
import { spawnSync } from 'node:child_process';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { createClient, InorderError, model, type Client, type ClientOptions } from 'inorder';
import type { Browser } from 'playwright-core';
import { launch } from '../page/browser.js';
import { read, root } from '../package/pages.js';

const TIMEOUT_MS = 60_000;

/** What is said, with what the WebSocket class or the browser says besides. */
interface Told {
  readonly code: string;
  readonly message: string;
  readonly cause?: string;
}

const tell = ({ code, message, cause }: InorderError): Told => ({
  code,
  message,
  ...(cause !== undefined && { cause: String(cause) }),
});

/** The scripts of a page that shows the first error of a client. */
const page = (options: string) => `<!doctype html><title>a page</title><script type="module" src="./main.js"></script>
<output></output><meta name="options" content='${options}'>`;
const MAIN = `
  import { createClient } from './index.js';
  const options = JSON.parse(document.querySelector('meta').content);
  const client = createClient({ models: { job: {} }, logger: null, ...options });
  client.on('error', ({ code, message, cause }) => {
    const told = { code, message, ...(cause !== undefined && { cause: String(cause) }) };
    document.querySelector('output').textContent ||= JSON.stringify(told);
  });
  client.entity('job/42').subscribe(() => {});
`;

let browser: Browser;
const servers: (Server | WebSocketServer)[] = [];
beforeAll(async () => {
  browser = await launch();
}, TIMEOUT_MS);
afterAll(() => browser.close());
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** The address of a server of this test. */
async function serve(answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The address of a WebSocket server that answers what `answer` says, to a client of its subprotocol or of any. */
async function serveSockets(protocol: string | undefined, answer: (text: string) => string): Promise<string> {
  const server = new WebSocketServer({
    host: '127.0.0.1',
    port: 0,
    handleProtocols: (offered) => (protocol && offered.has(protocol) ? protocol : false),
  });
  servers.push(server);
  server.on('connection', (socket) => socket.on('message', (text) => socket.send(answer(String(text)))));
  await new Promise((resolve) => server.once('listening', resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A port that nobody uses now. */
async function nobody(): Promise<string> {
  const address = await serve(() => {});
  const server = servers.pop()!;
  await new Promise((resolve) => server.close(resolve));
  return address;
}

/** What `createClient` throws. */
function thrown(...options: unknown[]): Told {
  try {
    (createClient as (...options: any) => Client)(...options).close();
  } catch (error) {
    return tell(error as InorderError);
  }
  throw new Error('nothing is thrown');
}

/** The first error that a client in Node reports. */
async function reported(options: Partial<ClientOptions>, act?: (client: Client<any>) => void): Promise<Told> {
  const models = { job: model({ terminal: ['done'] }) };
  const client = createClient({ url: 'ws://127.0.0.1:1/', models, WebSocket, logger: null, ...options });
  const errors: InorderError[] = [];
  client.on('error', (error) => errors.push(error));
  if (act) act(client);
  else client.entity('job/42').subscribe(() => {});
  await vi.waitFor(() => expect(errors).not.toEqual([]), 20_000);
  client.close();
  return tell(errors[0]!);
}

/** The first error that a client on a page reports; nothing but the page's own socket leaves the browser. */
async function shown(options: object, { scheme = 'http', policy = '' } = {}): Promise<Told> {
  const context = await browser.newContext();
  try {
    await context.route('**/*', async (route) => {
      const name = new URL(route.request().url()).pathname.slice(1);
      const headers = { ...(policy && { 'content-security-policy': policy }) };
      const script = name === 'main.js' ? MAIN : name.endsWith('.js') ? read(`pkg/dist/${name}`) : undefined;
      const body = script ?? page(JSON.stringify(options));
      await route.fulfill({ headers, body, contentType: script === undefined ? 'text/html' : 'text/javascript' });
    });
    const tab = await context.newPage();
    await tab.goto(`${scheme}://page.test/`);
    const output = tab.locator('output').filter({ hasText: '{' });
    return JSON.parse((await output.textContent({ timeout: 20_000 }))!);
  } finally {
    await context.close();
  }
}

const circle: Record<string, unknown> = {};
circle['self'] = circle;

const models = { job: model() };
const url = 'wss://example.com/ws';

/** As docs/errors.md names them. Where there are several ways to make a mistake, each is told the same. */
const MISTAKES: Readonly<Record<string, readonly (() => Told | Promise<Told>)[]>> = {
  '`createClient()`, or with an address alone': [() => thrown(), () => thrown(url), () => thrown([url])],
  'no `models`': [() => thrown({ url }), () => thrown({ url, models: null })],
  'an `http:` address': [() => thrown({ models, url: 'http://127.0.0.1:8080/ws' })],
  'an address without a host': [() => thrown({ models, url: '/ws' }), () => thrown({ models })],
  'a misspelt option': [() => thrown({ models, url, backoff: { max: 3 } })],
  "`onGap: 'skip'` with `reduce: 'merge'`": [
    () => thrown({ url, models: { job: model({ onGap: 'skip', reduce: 'merge' }) } }),
    () => thrown({ url, models: { job: model({ onGap: 'skip', reduce: (state) => state }) } }),
  ],
  'a name that has no model': [() => reported({}, (client) => client.entity('jobs/42').subscribe(() => {}))],
  '`params` that refer to themselves': [
    () => reported({}, (client) => client.entity('job/42', { params: circle }).subscribe(() => {})),
  ],
  'other `params` than others use': [
    () =>
      reported({}, (client) => {
        client.entity('job/42', { params: 1 }).subscribe(() => {});
        client.entity('job/42', { params: 2 }).subscribe(() => {});
      }),
  ],
  '`subscribe()` without a listener': [
    () => reported({}, (client) => client.entity('job/42').subscribe(undefined as never)),
    () => reported({}, (client) => client.on('final', 'me' as never)),
  ],
  "`client.on('finished')`, which is no event": [
    () => reported({}, (client) => client.on('finished' as never, () => {})),
  ],
  'a listener that throws': [
    () =>
      reported({}, (client) =>
        client.entity('job/42').subscribe(() => {
          throw new Error('what it threw');
        }),
      ),
  ],
  '`subscribe()` after `close()`': [
    () =>
      reported({}, (client) => {
        client.close();
        client.entity('job/42').subscribe(() => {});
      }),
  ],
  'Node before 22, no option `WebSocket`': [
    async () => {
      vi.stubGlobal('WebSocket', undefined);
      try {
        return await reported({ WebSocket: undefined });
      } finally {
        vi.unstubAllGlobals();
      }
    },
  ],
  'nobody listens at `url`': [
    async () => reported({ url: `ws://${await nobody()}/ws` }),
    async () => shown({ url: `ws://${await nobody()}/ws` }),
  ],
  'another kind of server at `url`': [
    async () => reported({ url: `ws://${await serve((_, response) => response.writeHead(404).end())}/ws` }),
    async () => shown({ url: `ws://${await serve((_, response) => response.end('a page'))}/ws` }),
  ],
  'a WebSocket server that speaks something else': [
    async () => reported({ url: `ws://${await serveSockets(undefined, (text) => text)}/ws` }),
    async () => shown({ url: `ws://${await serveSockets('graphql-transport-ws', (text) => text)}/ws` }),
  ],
  'a server that does not say `welcome`': [
    async () =>
      reported({ url: `ws://${await serveSockets('inorder.v1.json', (text) => text)}/ws`, timeout: { connect: 500 } }),
    async () =>
      shown({ url: `ws://${await serveSockets('inorder.v1.json', () => '{}')}/ws`, timeout: { connect: 500 } }),
  ],
  'a page on https, a `ws:` address': [() => shown({ url: 'ws://server.test/ws' }, { scheme: 'https' })],
  'a policy without the server in `connect-src`': [
    () =>
      shown({ url, timeout: { connect: 500 } }, { policy: "connect-src 'self'; script-src 'self' 'wasm-unsafe-eval'" }),
  ],
  "a policy without `'wasm-unsafe-eval'`": [() => shown({ url }, { policy: "script-src 'self'" })],
};

/** What is said beside the message. */
const CAUSES: Readonly<Record<string, RegExp>> = {
  'a listener that throws': /^Error: what it threw$/,
  '`params` that refer to themselves': /circular/,
  'Node before 22, no option `WebSocket`': /is not a constructor/,
  'nobody listens at `url`': /ECONNREFUSED/,
  'another kind of server at `url`': /404/,
  'a WebSocket server that speaks something else': /subprotocol/,
  'a page on https, a `ws:` address': /SecurityError/,
  "a policy without `'wasm-unsafe-eval'`": /unsafe-eval/,
};

/** The rows of the page's table. */
const rows: { mistake: string; code: string; message: string }[] = [];
for (const line of read('docs/errors.md').split('## First mistakes')[1]!.split('\n## ')[0]!.split('\n')) {
  const [, mistake, code, text] = /^\| (.*) \| `(\w+)` \| (.*) \|$/.exec(line) ?? [];
  if (!mistake) continue;
  const message = text === 'the same' ? rows.at(-1)!.message : /^`` ?(.*?) ?``$/.exec(text!)![1]!;
  rows.push({ mistake, code: code!, message });
}

test('the page lists the mistakes that are made here', () => {
  expect(rows.map(({ mistake }) => mistake)).toEqual(Object.keys(MISTAKES));
});

test.each(Object.keys(MISTAKES))(
  '%s',
  async (mistake) => {
    const told: Told[] = [];
    for (const make of MISTAKES[mistake]!) told.push(await make());
    const { code, message } = rows.find((row) => row.mistake === mistake) ?? {};
    for (const { cause: _, ...said } of told) expect(said).toEqual({ code, message });
    const cause = CAUSES[mistake];
    if (cause) expect(told[0]!.cause).toMatch(cause);
    else expect(told[0]).not.toHaveProperty('cause');
  },
  TIMEOUT_MS,
);

test('Node shows the mistake, not the whole package', () => {
  const program = `import { createClient } from 'inorder';
    createClient({ url: 'wss://example.com/ws', models: {}, linger: 'long' });`;
  const { stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    cwd: root,
    encoding: 'utf8',
  });
  expect(stderr).toMatch(/^InorderError: Option `linger` must be a whole number from 0 to \d+\.$/m);
  expect(stderr.length).toBeLessThan(2_500);
});
