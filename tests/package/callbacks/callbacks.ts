// Every function that an application may give to the package: where it goes, and what is reported when it throws.
import { readFileSync } from 'node:fs';
import type { ClientEvents, ClientOptions, ErrorCode, Model } from '../../../pkg/dist/index.js';
import { root } from '../pages.js';
import { EPOCH } from './server.js';
import type { Trigger, World } from './world.js';

export interface Callback {
  /** The function of the types that it stands for. */
  readonly of: string;
  readonly options?: (trigger: Trigger, world: () => World) => Partial<ClientOptions<any>>;
  readonly model?: (trigger: Trigger, world: () => World) => Partial<Model<any, any>>;
  readonly listen?: (trigger: Trigger, world: World) => void;
  /** What the client's sockets do first. */
  readonly socket?: 'constructor' | 'send' | 'close';
  /** The code that is reported when it throws; otherwise nothing is. */
  readonly code?: ErrorCode;
  /** What it throws goes to the logger, since reporting it would ask it again. */
  readonly isLogged?: true;
  /** It hears what is misused after `close()`, so that it may be called then. */
  readonly outlives?: true;
  /** It is called once, at the start of a package that was loaded anew. */
  readonly isLoader?: true;
  /** The package knows it and calls it nowhere. */
  readonly isNeverCalled?: true;
}

const on = (type: keyof ClientEvents, more: Partial<Callback> = {}): Callback => ({
  of: `ClientEvents.${type}`,
  code: 'listener',
  listen: (trigger, world) => {
    world.client.on(type, () => {
      if (!more.outlives) world.mayBeCalled(type);
      trigger.pull();
    });
  },
  ...more,
});

const listener = (listen: (world: World, call: () => void) => void): Callback => ({
  of: 'Listener',
  code: 'listener',
  listen: (trigger, world) =>
    listen(world, () => {
      world.mayBeCalled('the listener');
      trigger.pull();
    }),
});

/** By the name of the row. */
export const CALLBACKS: Readonly<Record<string, Callback>> = {
  url: {
    of: 'ClientOptions.url',
    code: 'url',
    options: (trigger, world) => ({
      url: () => {
        world().mayBeCalled('url');
        return trigger.wrap('ws://server.test/ws');
      },
    }),
  },
  getToken: {
    of: 'ClientOptions.getToken',
    code: 'token',
    options: (trigger, world) => ({
      getToken: () => {
        world().mayBeCalled('getToken');
        return trigger.wrap('a token');
      },
    }),
  },
  replayFrom: {
    of: 'ClientOptions.replayFrom',
    code: 'source',
    options: (trigger, world) => ({
      replayFrom: async (entity, { from, to }) => {
        world().mayBeCalled('replayFrom');
        return trigger.wrap({
          events: world()
            .server.events(entity)
            .slice(from - 1, to),
        });
      },
    }),
  },
  snapshotFrom: {
    of: 'ClientOptions.snapshotFrom',
    code: 'source',
    options: (trigger, world) => ({
      snapshotFrom: async (entity) => {
        const { server } = world();
        world().mayBeCalled('snapshotFrom');
        const seq = server.head(entity);
        return trigger.wrap({
          epoch: EPOCH,
          seq,
          status: server.status(entity, seq) ?? null,
          data: server.state(entity, seq),
        });
      },
    }),
  },
  wasm: {
    of: 'ClientOptions.wasm',
    isLoader: true,
    code: 'load',
    options: (trigger) => ({
      wasm: (() => trigger.wrap(readFileSync(`${root}pkg/dist/inorder.wasm`))) as ClientOptions['wasm'],
    }),
  },
  WebSocket: { of: 'ClientOptions.WebSocket', socket: 'constructor', code: 'socket' },
  'WebSocket.send': { of: 'WebSocketLike.send', socket: 'send' },
  'WebSocket.close': { of: 'WebSocketLike.close', socket: 'close' },
  'logger.error': {
    of: 'Logger.error',
    outlives: true,
    options: (trigger, world) => ({
      logger: {
        error: (value) => {
          world().logged.push(value);
          trigger.pull();
        },
        warn: () => undefined,
      },
    }),
  },
  'logger.warn': {
    of: 'Logger.warn',
    isNeverCalled: true,
    options: (trigger) => ({ logger: { error: () => undefined, warn: () => trigger.pull() } }),
  },
  reduce: {
    of: 'ModelOptions.reduce',
    code: 'reduce',
    model: (trigger, world) => ({
      reduce: (state, event) => {
        world().mayBeCalled('reduce');
        trigger.pull();
        return { ...state, ...event };
      },
    }),
  },
  terminal: {
    of: 'ModelOptions.terminal',
    code: 'reduce',
    model: (trigger, world) => ({
      terminal: (status) => {
        world().mayBeCalled('terminal');
        trigger.pull();
        return status === 'completed';
      },
    }),
  },
  'entity.subscribe': listener(({ client }, call) => client.entity('job/1').subscribe(call)),
  'entity.subscribe next': listener(({ client }, next) => client.entity('job/1').subscribe({ next })),
  'topic.subscribe': listener(({ client }, call) => client.topic('all').subscribe(call)),
  'status.subscribe': listener(({ client }, call) => client.status.subscribe(call)),
  'on final': on('final'),
  'on gap': on('gap'),
  'on change': on('change'),
  'on sync': on('sync'),
  'on connection': on('connection'),
  'on error': on('error', { isLogged: true, outlives: true }),
};

/** Set by the client, called by the browser. */
export const HANDLERS = ['onopen', 'onmessage', 'onclose', 'onerror'].map((name) => `WebSocketLike.${name}`);
