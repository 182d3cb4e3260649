// Every method of the package: how it is called, and what must be true of it at the end.
import { model } from '../../../pkg/dist/index.js';
import type { Change, EntitySnapshot, Stop } from '../../../pkg/dist/index.js';
import { Line } from './server.js';
import type { World } from './world.js';

/** Calls the method; what it returns is checked when the story is over. */
export type Method = (world: World) => void | (() => void);

const job = (world: World) => world.client.entity('job/1');
const topic = (world: World) => world.client.topic('all');

/** Listens, and must be told what is true in order, at once and up to the end. */
const subscribes: Method = (world) => {
  const told: EntitySnapshot[] = [];
  const wasClosed = world.isClosed;
  job(world).subscribe((snapshot) => {
    if (!wasClosed) world.mayBeCalled('a new listener');
    told.push(snapshot);
  });
  if (told.length !== 1) world.fault(`a new listener is called ${told.length} times at once`);
  if (wasClosed) return;
  return () => {
    world.checkTold('a new listener', told, 'job/1');
    if (!world.isOver && told.at(-1)?.sync !== 'final') world.fault(`a new listener ends with ${told.at(-1)?.sync}`);
  };
};

/** Reads with an iterator to its end. */
function reads<T>(world: World, iterator: AsyncIterator<T>, check: (values: T[]) => void): () => void {
  const values: T[] = [];
  let isDone = false;
  const read = async () => {
    for (;;) {
      const { done, value } = await iterator.next();
      if (done) break;
      values.push(value);
    }
    isDone = true;
  };
  read().catch((error: unknown) => world.fault(`an iterator fails: ${error}`));
  return () => {
    if (!isDone) world.fault('an iterator never ends');
    check(values);
  };
}

/** Ends the subscription of a witness, who may not be called again. */
const stops =
  (how: (stop: Stop) => void): Method =>
  (world) => {
    const victim = world.victims.pop();
    if (!victim) return world.fault('nothing is left to stop');
    how(victim.stop);
    victim.isStopped = true;
  };

const closes =
  (how: (world: World) => void): Method =>
  (world) => {
    how(world);
    world.isClosed = true;
  };

const isNumber = (value: unknown): boolean => typeof value === 'number' && value >= 0;

/** By the names of the types. */
export const METHODS: Readonly<Record<string, Method>> = {
  createClient: (world) => {
    const { server } = world;
    class Socket extends Line {
      constructor() {
        super(server);
      }
    }
    const other = world.createClient({
      url: 'ws://server.test/ws',
      models: { job: model({ reduce: 'merge' }) },
      WebSocket: Socket,
      logger: null,
    });
    const told: EntitySnapshot[] = [];
    other.entity('job/1').subscribe((snapshot) => told.push(snapshot));
    world.others.push(other);
    return () => {
      if (told.at(-1)?.sync !== 'final') world.fault(`another client ends with ${told.at(-1)?.sync}`);
    };
  },
  model: (world) => {
    if (typeof model() !== 'object') world.fault('model() makes none');
  },
  'Client.entity': (world) => {
    if (job(world).name !== 'job/1') world.fault('the entity has another name');
  },
  'Client.topic': (world) => {
    if (topic(world).name !== 'topic/all') world.fault(`the topic has another name: ${topic(world).name}`);
  },
  'Client.on': (world) => {
    const changes: Change[] = [];
    world.client.on('change', (change) => {
      world.mayBeCalled('a new `change` listener');
      if (change.entity === 'job/1') changes.push(change);
    });
    return () => world.checkChanges('a new `change` listener', changes, 'job/1');
  },
  'Client.stats': (world) => {
    const stats = world.client.stats();
    if (stats && !Object.values(stats).every(isNumber)) world.fault(`stats() are ${JSON.stringify(stats)}`);
  },
  'Client.held': (world) => {
    if (!isNumber(world.client.held('job/1'))) world.fault('held() is no number');
  },
  'Client.connect': (world) => world.client.connect(),
  'Client.reconnect': (world) => world.client.reconnect(),
  'Client.preload': (world) => {
    let isLoaded: unknown = 'pending';
    world.client.preload().then(
      () => (isLoaded = true),
      ({ code }) => (isLoaded = code),
    );
    return () => {
      const mayFail = isLoaded === 'load' && world.errors.some(({ code }) => code === 'load');
      if (isLoaded !== true && !mayFail) world.fault(`preload() is ${isLoaded}`);
    };
  },
  'Client.close': closes(({ client }) => client.close()),
  'Client.[Symbol.dispose]': closes(({ client }) => client[Symbol.dispose]()),

  'Entity.subscribe': subscribes,
  'Entity.getSnapshot': (world) => {
    const snapshot = job(world).getSnapshot();
    if (snapshot !== job(world).getSnapshot()) world.fault('getSnapshot() makes a new one without a change');
    if (!Object.isFrozen(snapshot)) world.fault('getSnapshot() is not frozen');
    world.check('getSnapshot()', snapshot, 'job/1');
  },
  'Entity.getServerSnapshot': (world) => {
    if (job(world).getServerSnapshot().sync !== 'joining') world.fault('getServerSnapshot() knows something');
  },
  'Entity.[Symbol.asyncIterator]': (world) =>
    reads(world, job(world)[Symbol.asyncIterator](), (told) => world.checkTold('an iterator', told, 'job/1')),
  'Entity.finished': (world) => {
    let end: unknown = 'pending';
    job(world)
      .finished()
      .then(
        (snapshot) => (end = snapshot.sync),
        ({ code }) => (end = code),
      );
    return () => {
      if (end !== (world.isOver ? 'closed' : 'final')) world.fault(`finished() is ${end}`);
    };
  },
  'Entity.changes': (world) =>
    reads(world, job(world).changes(), (changes) => {
      world.checkChanges('a new reader', changes, 'job/1');
      if (!world.isOver && changes.at(-1)?.seq !== world.server.head('job/1')) world.fault('a new reader ends early');
    }),

  'Topic.subscribe': (world) => {
    const wasClosed = world.isClosed;
    let count = 0;
    let members: ReadonlyMap<string, EntitySnapshot> = new Map();
    topic(world).subscribe((map) => {
      if (!wasClosed) world.mayBeCalled('a new listener of the topic');
      count += 1;
      members = map;
      for (const [name, snapshot] of map) world.check('a new listener of the topic', snapshot, name);
    });
    if (count !== 1) world.fault(`a new listener of the topic is called ${count} times at once`);
    return () => {
      if (!world.isOver) world.checkMembers('a new listener of the topic', members);
    };
  },
  'Topic.getSnapshot': (world) => {
    const map = topic(world).getSnapshot();
    if (map !== topic(world).getSnapshot()) world.fault('the map is made anew without a change');
    for (const [name, snapshot] of map) world.check('the map', snapshot, name);
  },
  'Topic.getServerSnapshot': (world) => {
    if (topic(world).getServerSnapshot().size !== 0) world.fault('getServerSnapshot() of the topic knows something');
  },
  'Topic.[Symbol.asyncIterator]': (world) =>
    reads(world, topic(world)[Symbol.asyncIterator](), (maps) => {
      if (!world.isOver) world.checkMembers('an iterator of the topic', maps.at(-1) ?? new Map());
    }),

  'Store.subscribe': (world) => {
    const states: string[] = [];
    world.client.status.subscribe(({ connection }) => states.push(connection));
    if (states.length !== 1) world.fault(`a new listener of the status is called ${states.length} times at once`);
    return () => {
      if (!world.isOver && states.at(-1) !== 'live') world.fault(`the status ends with ${states.at(-1)}`);
    };
  },
  'Store.getSnapshot': (world) => {
    const status = world.client.status.getSnapshot();
    if (status !== world.client.status.getSnapshot()) world.fault('the status is made anew without a change');
  },
  'Store.getServerSnapshot': (world) => {
    if (world.client.status.getServerSnapshot().connection !== 'idle') world.fault('a server is connected');
  },
  'Store.[Symbol.asyncIterator]': (world) => reads(world, world.client.status[Symbol.asyncIterator](), () => undefined),

  'Stop.()': stops((stop) => stop()),
  'Stop.unsubscribe': stops((stop) => stop.unsubscribe()),
  'Stop.[Symbol.dispose]': stops((stop) => stop[Symbol.dispose]()),

  'AsyncIterableIterator.next': (world) => {
    let isSettled = false;
    void world.spare.next().then(() => (isSettled = true));
    return () => {
      if (!isSettled) world.fault('next() never settles');
    };
  },
  'AsyncIterableIterator.return': (world) => {
    let isDone: unknown = 'pending';
    void world.spare.return!().then(({ done }) => (isDone = done));
    return () => {
      if (isDone !== true) world.fault(`return() is ${isDone}`);
    };
  },
};
