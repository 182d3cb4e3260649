// Runs a case through the package as an application uses it: real wasm, public API, scripted sockets, a virtual clock.
//
// A case is steps and expectations. Within a step the input is given, then everything happens that happens without time
// passing; then the step is judged. Sends, deliveries and flags are kept with their step and judged at the end, states
// at once. `tests/world/runner.rs` does the same with the native client.
//
// What the public API does not tell is judged by what it does tell:
// - `present: false`: nobody wants the entity, and its snapshot says nothing or that it ended: ends are remembered.
// - `seq` of a state is the number of the last change. Numbers that were used up without one (R13) move only the
//   position, which shows in what is held, asked for and resumed.
// - counters have no entity, so `duplicate`, `stale` and `unknown` of one entity count for all.
// - a `drop` is an arrival that no change comes of; it carries its own `at`, by which changes name their arrival. That
//   it is not held: no more events wait than did before the step.
// - `free` is `Symbol.dispose`: a page has no way to drop a client that is connected.
import { createClient, model } from '../../../pkg/dist/index.js';
import type {
  Change,
  Client,
  ClientOptions,
  ClientStatus,
  EntitySnapshot,
  ErrorCode,
  ModelOptions,
  Stats,
  Stop,
} from '../../../pkg/dist/index.js';
import { Clock } from './clock.js';
import { Page } from './page.js';
import type { Case, Fields } from './script.js';

/** How far `open` and `fail` move the clock to find a dial, in ms. */
const DIAL_WAIT = 60_000;

/** Events of one batch frame of a burst in one task. */
const BATCH = 1_000;

/** Things that may happen in one step without time passing; more is a loop. */
const RESTLESS = 200_000;

/** Seeds over which a `spread` is taken. */
const SPREAD_SEEDS = 50;

/** Models of one client; the package takes no more. */
const MODELS = 254;

/** A request id that no client gives. */
const NO_REQUEST = 0xffff_ffff;

/** Expectations that are judged when their step is done. */
const AT_ONCE = ['state', 'hold', 'drop', 'note'];

/** Loads the wasm before the first case: cases know nothing of that. */
export async function prepare(): Promise<void> {
  await createClient({ url: 'ws://server.test/ws', models: { a: model() } }).preload();
}

/** An expectation that does not hold. */
export interface Failure {
  readonly step: number;
  readonly expected: string;
  readonly got: string;
}

/** Whether a case runs plainly too: a topic's listeners do not tell its changes. */
export const isPlain = ({ config, input }: Case): boolean => !JSON.stringify([config, input]).includes(TOPIC);

/**
 * Runs a case and gives what does not hold.
 *
 * `plainly`: as most applications do, with nothing but listeners of entities. They tell less: a delivery is a call with
 * another state, number, epoch or status, and what else it was is not judged.
 */
export async function run(given: Case, plainly = false): Promise<Failure[]> {
  const run = new Run(given, 1, plainly);
  await run.play();
  const failures = run.judge();
  for (const expect of given.expect) {
    const spread = expect['send']?.spread as [number, number] | undefined;
    if (!spread) continue;
    const delays: number[] = [];
    for (let seed = 1; seed <= SPREAD_SEEDS; seed++) {
      const again = new Run(given, seed, plainly);
      await again.play();
      delays.push(again.firstDelay(expect) ?? NaN);
    }
    if (Math.min(...delays) < spread[0] && Math.max(...delays) > spread[1]) continue;
    failures.push({ step: expect['at'], expected: JSON.stringify(expect), got: `delays ${delays}` });
  }
  return failures.sort((a, b) => a.step - b.step);
}

type State = 'connecting' | 'open' | 'ended';

/** A socket whose other end is the case. */
class Socket {
  binaryType = 'blob';
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  onerror: ((event: any) => void) | null = null;
  state: State = 'connecting';
  answersPings = true;
  readonly unanswered: unknown[] = [];

  constructor(
    private readonly run: Run,
    readonly app: App,
    readonly conn: number,
  ) {}

  get readyState(): number {
    return { connecting: 0, open: 1, ended: 3 }[this.state];
  }

  send(text: string): void {
    this.run.onSend(this, text);
  }

  close(code = 1005): void {
    if (this.state === 'ended') return;
    this.state = 'ended';
    this.run.onHangUp(this, code);
  }
}

/** One client and what the application keeps of it. */
interface App {
  readonly client: Client<any>;
  readonly subscribed: Map<string, Stop>;
  readonly stops: Stop[];
  readonly readers: Map<string, Reader>;
  /** The newest change of each entity; `serial` tells whether a listener was told of it. */
  readonly changes: Map<string, { readonly serial: number; readonly change: Change<any, any> }>;
  readonly recovering: Set<string>;
  /** The members of each topic. */
  readonly members: Map<string, readonly string[]>;
  readonly tokens: { readonly resolve: (token: string) => void; readonly reject: (cause: unknown) => void }[];
  /** Calls that the client gave up. They are answered all the same, with what must not be used. */
  readonly voidTokens: ((token: string) => void)[];
  tokenCount: number;
  lastEnd: number | undefined;
  stats: Stats | undefined;
}

interface Reader {
  readonly entity: string;
  readonly changes: AsyncIterator<Change<any, any>>;
  /** Asked for and not there yet. */
  next: Promise<IteratorResult<Change<any, any>>> | undefined;
}

interface Sent {
  readonly step: number | undefined;
  readonly time: number;
  readonly type: string;
  readonly conn: number | undefined;
  readonly fields: Fields;
  /** Dials: since the previous socket ended. */
  readonly sinceEnd: number | undefined;
}

interface Delivered {
  readonly step: number | undefined;
  readonly to: string | undefined;
  readonly shown: Fields;
}

interface Flag {
  readonly step: number | undefined;
  readonly name: string;
  readonly entity?: string | undefined;
  readonly from?: number;
  readonly to?: number;
}

/** An event or snapshot that came. */
interface Arrival {
  readonly step: number | undefined;
  readonly at: string;
  readonly entity: string;
  readonly seq: unknown;
  readonly id: unknown;
}

interface Plan {
  readonly entity: string;
  readonly seq: number;
  readonly calls: readonly Fields[];
}

/** Flags by what the client reports as an error; others are named as their code is. */
const FLAG_OF: Partial<Record<ErrorCode, string>> = { listener: 'error' };

/** Flags by counter. */
const COUNTED: readonly (readonly [keyof Stats, string])[] = [
  ['duplicates', 'duplicate'],
  ['stale', 'stale'],
  ['unknown', 'unknown'],
  ['badFrames', 'bad_frame'],
  ['afterFinal', 'after_final'],
  ['diverged', 'diverged'],
];

class Run {
  private readonly clock = new Clock();
  private page!: Page;
  private readonly apps: App[] = [];
  /** The client of `app` steps and page events; none after `free`. */
  private app: App | undefined;
  private readonly sockets: Socket[] = [];
  private readonly replies: { readonly socket: Socket; readonly text: string }[] = [];
  private readonly plans: Plan[] = [];
  private readonly promises: (() => void)[] = [];
  private step = 0;
  private isJudging = false;
  private serial = 0;
  private readonly starts: number[] = [];
  private readonly heldBefore = new Map<string, number>();
  private readonly sent: Sent[] = [];
  private readonly delivered: Delivered[] = [];
  private readonly flags: Flag[] = [];
  private readonly arrivals: Arrival[] = [];
  /** The arrivals that changes came of. */
  private readonly applied = new Set<unknown>();
  private readonly failures: Failure[] = [];

  constructor(
    private readonly given: Case,
    private readonly seed: number,
    private readonly plainly: boolean,
  ) {}

  async play(): Promise<void> {
    this.clock.install(this.seed);
    try {
      this.page = new Page(this.clock);
      this.create();
      for (const entity of this.given.config['subscribe'] ?? []) this.subscribe(entity, undefined);
      await this.settle();
      for (const [index, step] of this.given.input.entries()) {
        this.step = index;
        this.isJudging = true;
        this.starts.push(this.clock.now);
        for (const { drop } of this.given.expect) if (drop) this.heldBefore.set(drop.entity, this.held(drop.entity));
        await this.perform(step);
        await this.settle();
        await this.awaitDelays(index);
        this.judgeStep(index);
      }
    } catch (cause) {
      this.fail(this.step, JSON.stringify(this.given.input[this.step]), String((cause as Error).stack ?? cause));
    } finally {
      this.isJudging = false;
      for (const { client } of this.apps) client.close();
      this.clock.uninstall();
    }
  }

  private fail(step: number, expected: string, got: string): void {
    this.failures.push({ step, expected, got });
  }

  private get now(): number | undefined {
    return this.isJudging ? this.step : undefined;
  }

  // --- Clients ---

  private create(): void {
    const run = this;
    const { config } = this.given;
    const app: App = {
      client: createClient({
        ...clientOptions(this.given),
        WebSocket: class extends Socket {
          constructor() {
            super(run, app, run.sockets.length + 1);
            run.onDial(this);
          }
        },
        ...(config['getToken'] !== undefined && {
          getToken: ({ signal }: { signal: AbortSignal }) => {
            this.push('token', undefined, {});
            if (config['getToken'] === 'auto') return `t${++app.tokenCount}`;
            return new Promise<string>((resolve, reject) => {
              const call = { resolve, reject };
              app.tokens.push(call);
              signal.addEventListener('abort', () => void app.tokens.splice(app.tokens.indexOf(call), 1));
              signal.addEventListener('abort', () => app.voidTokens.push(resolve));
            });
          },
        }),
      } as unknown as ClientOptions<any>) as Client<any>,
      subscribed: new Map(),
      stops: [],
      readers: new Map(),
      changes: new Map(),
      recovering: new Set(),
      members: new Map(),
      tokens: [],
      voidTokens: [],
      tokenCount: 0,
      lastEnd: undefined,
      stats: undefined,
    };
    const { client } = app;
    this.apps.push(app);
    this.app = app;
    if (!this.plainly) client.on('change', (change) => this.onChange(app, change));
    client.on('gap', ({ entity, from, to }) => this.flag('gap', entity, { from, to }));
    client.on('final', ({ entity }) => this.flag('final', entity));
    client.on('sync', ({ entity, sync }) => {
      if (sync === 'recovering') app.recovering.add(entity);
      if (sync === 'recovering' || sync === 'failed') this.flag(sync, entity);
      if ((sync === 'live' || sync === 'final') && app.recovering.delete(entity)) this.flag('recovered', entity);
    });
    client.on('error', ({ code, entity }) => this.flag(FLAG_OF[code] ?? code, entity));
  }

  private flag(name: string, entity?: string, range: { from?: number; to?: number } = {}): void {
    this.flags.push({ step: this.now, name, entity, ...range });
  }

  private onChange(app: App, change: Change<any, any> & { readonly entity: string }): void {
    const { entity } = change;
    this.applied.add(change.at);
    app.changes.set(entity, { serial: ++this.serial, change });
    // A topic's listeners get a map once per task; the changes of the topic and its members are what is delivered.
    if (isTopic(entity)) {
      const data = this.read(app, entity)['data'] as string[];
      app.members.set(entity, data);
      if (app.subscribed.has(entity)) this.deliver(undefined, entity, change, { data });
    } else if (!app.subscribed.has(entity) && this.isMember(app, entity)) this.deliver(undefined, entity, change, {});
  }

  private isMember(app: App, entity: string): boolean {
    return [...app.members].some(([topic, members]) => app.subscribed.has(topic) && members.includes(entity));
  }

  private deliver(to: string | undefined, entity: string, change: Change<any, any>, more: Fields): void {
    const { kind, seq, epoch, id, status, state, reset, skipped } = change;
    this.delivered.push({
      step: this.now,
      to,
      shown: { entity, kind, seq, epoch, id, status, data: state, reset: reset ?? false, skipped, ...more },
    });
  }

  /** A listener of the application: tells changes that are handed over from calls for other reasons (R32, R33). */
  private listener(app: App, entity: string, to?: string, throws = false, params?: unknown): Stop {
    let told = app.changes.get(entity)?.serial;
    let isFirst = true;
    let shown: EntitySnapshot<any> | undefined;
    const listener = (snapshot: EntitySnapshot<any>): unknown => {
      if (this.plainly) {
        const { state, seq, epoch, status } = snapshot;
        const isSame = shown && shown.state === state && shown.seq === seq && shown.epoch === epoch;
        if (!isSame || shown!.status !== status) this.note(app, entity, snapshot);
        shown = snapshot;
      }
      const last = app.changes.get(entity);
      const isChange = !isFirst && last !== undefined && last.serial !== told;
      told = last?.serial;
      if (!isChange) return undefined;
      const { state, seq, epoch, status } = snapshot;
      this.deliver(to, entity, last.change, { data: state, seq, epoch, status });
      if (throws) throw new Error('thrown by a listener');
      return to === undefined ? this.follow(entity, snapshot) : undefined;
    };
    const stop = app.client.entity(entity, { params }).subscribe(listener as (snapshot: EntitySnapshot<any>) => void);
    isFirst = false;
    return stop;
  }

  /** Takes a listener's call for the change that it shows, unless another listener told of that. */
  private note(app: App, entity: string, snapshot: EntitySnapshot<any>): void {
    const { state, seq, epoch, status } = snapshot;
    if (seq === undefined && state === undefined) return;
    const last = app.changes.get(entity)?.change;
    if (last && last.state === state && last.seq === seq && last.epoch === epoch && last.status === status) return;
    const change = { state, seq, epoch, status } as Change<any, any>;
    app.changes.set(entity, { serial: ++this.serial, change });
  }

  /** Makes the calls that are planned for this call of the listener. */
  private follow(entity: string, snapshot: EntitySnapshot<any>): unknown {
    const at = this.plans.findIndex((plan) => plan.entity === entity && plan.seq === snapshot.seq);
    if (at < 0) return undefined;
    let returns: unknown;
    const [plan] = this.plans.splice(at, 1);
    for (const call of plan!.calls) {
      if (call['call'] === 'promise') returns = new Promise<void>((resolve) => this.promises.push(resolve));
      else this.call(call);
    }
    return returns;
  }

  private subscribe(entity: string, params: unknown): void {
    const { app } = this;
    if (!app || app.subscribed.has(entity)) return;
    const stop = isTopic(entity)
      ? app.client.topic(entity.slice(TOPIC.length), { params }).subscribe(() => {})
      : this.listener(app, entity, undefined, false, params);
    app.subscribed.set(entity, stop);
  }

  /** A call of the application that is over at once. */
  private call(call: Fields): void {
    const { app } = this;
    if (!app) return;
    const { entity, name } = call as { entity: string; name: string };
    switch (call['call']) {
      case 'subscribe':
        return this.subscribe(entity, call['params']);
      case 'unsubscribe': {
        const stop = app.subscribed.get(entity);
        app.subscribed.delete(entity);
        return stop?.();
      }
      case 'getState': {
        const state = this.read(app, entity);
        for (const [key, wanted] of Object.entries(call['gives'] ?? {})) {
          if (!same(wanted, state[key])) this.fail(this.step, JSON.stringify(call), `${key} ${show(state[key])}`);
        }
        return;
      }
      case 'listen':
        app.stops.push(this.listener(app, entity, name, call['throws']));
        return;
      case 'changes': {
        const changes = app.client.entity(entity).changes();
        app.readers.set(name, { entity, changes, next: undefined });
        return;
      }
      case 'connect':
        return app.client.connect();
      case 'close':
        return app.client.close();
      case 'resolve':
        return this.promises.shift()?.();
    }
    throw new Error(`app ${call['call']}`);
  }

  private async appStep(step: Fields): Promise<void> {
    if (step['call'] === 'create') this.create();
    else if (step['call'] === 'free') {
      const client = this.app?.client;
      client?.[Symbol.dispose]();
      this.app = undefined;
    } else if (step['call'] === 'read') await this.readAll(step['name']);
    else this.call(step);
  }

  /** Reads all that waits. */
  private async readAll(name: string): Promise<void> {
    const reader = this.app?.readers.get(name);
    if (!reader) throw new Error(`no reader ${name}`);
    for (;;) {
      reader.next ??= reader.changes.next();
      const result = await Promise.race([reader.next, this.clock.rest()]);
      if (!result) return;
      reader.next = undefined;
      if (result.done) return;
      this.deliver(name, reader.entity, result.value, {});
    }
  }

  /** What is shown of an entity. */
  private read(app: App, entity: string): Fields {
    const last = app.changes.get(entity)?.change;
    if (isTopic(entity)) {
      const topic = app.client.topic(entity.slice(TOPIC.length));
      return {
        sync: topic.sync,
        seq: last?.seq,
        epoch: last?.epoch,
        status: last?.status,
        data: [...topic.getSnapshot().keys()].sort(),
        present: topic.sync !== 'joining',
      };
    }
    const { sync, seq, epoch, status, state } = app.client.entity(entity).getSnapshot();
    const isWanted = app.subscribed.has(entity) || this.isMember(app, entity);
    return { sync, seq, epoch, status, data: state, present: isWanted || (sync !== 'joining' && sync !== 'final') };
  }

  private held(entity: string): number {
    return this.app?.client.held(entity) ?? 0;
  }

  // --- Steps ---

  private async perform(step: Fields): Promise<void> {
    const { op, conn } = step as { op: string; conn: number | undefined };
    switch (op) {
      case 'ready':
        return this.unjudged(() => this.ready(step, conn));
      case 'ready_many':
        return this.unjudged(async () => {
          const names = Array.from({ length: step['count'] }, (_, at) => `e${at + 1}`);
          for (const name of names) this.subscribe(name, undefined);
          const { last } = step;
          for (const entity of names) {
            await this.ready({ entity, epoch: 'E1', last, status: 'running', data: { v: last } }, conn);
          }
        });
      case 'open':
        return this.open(conn);
      case 'fail':
        return this.end(await this.findDial(conn), 1006);
      case 'close':
        return this.end(this.socket(conn), step['code']);
      case 'frame':
      case 'raw': {
        const socket = this.socket(conn);
        const nest = step['nest'] as number | undefined;
        const text =
          op === 'frame' ? this.frameText(step, socket) : nest ? '['.repeat(nest) + ']'.repeat(nest) : step['text'];
        return this.arrive(socket, step['binary'] ? new TextEncoder().encode(text).buffer : text);
      }
      case 'burst':
        return this.burst(step, conn);
      case 'advance':
        return this.advance(step['ms'], step['heartbeats'] === true, step['late'] === true);
      case 'wake':
        this.clock.sleep(step['ms']);
        this.page.happen('resume');
        return this.page.happen('visible');
      case 'hidden':
      case 'visible':
      case 'online':
      case 'offline':
        return this.page.happen(op);
      case 'pongs': {
        const socket = this.socket(conn);
        socket.answersPings = step['on'];
        if (step['on']) for (const id of socket.unanswered.splice(0)) this.pong(socket, id);
        return;
      }
      case 'token':
        return this.token(step['value']);
      case 'app':
        return this.appStep(step);
      case 'plan':
        this.plans.push({ ...step['on'], calls: step['do'] });
        return;
      case 'repeat':
        for (let left = step['times']; left > 0; left--) {
          for (const inner of step['steps']) {
            await this.perform(inner);
            await this.settle();
          }
        }
        return;
    }
    throw new Error(`${op} is no step`);
  }

  private async unjudged(call: () => Promise<void>): Promise<void> {
    this.isJudging = false;
    await call();
    this.isJudging = true;
  }

  private token(value: string | undefined): void {
    for (const answer of this.app?.voidTokens.splice(0) ?? []) answer('void');
    const call = this.app?.tokens.shift();
    if (value !== undefined) call?.resolve(value);
    else call?.reject(new Error('refused'));
  }

  /** Brings an entity to `live` at a position, on a connection that is opened if it is not. */
  private async ready(step: Fields, conn: number | undefined): Promise<void> {
    const { entity, epoch, last, last_id: id, status, data } = step;
    const { app } = this;
    this.subscribe(entity, undefined);
    await this.settle();
    if (step['token'] !== undefined) {
      this.token(step['token']);
      await this.settle();
    }
    conn ??= Math.max(1, this.sockets.length);
    if (this.sockets[conn - 1]?.state !== 'open') await this.open(conn);
    await this.settle();
    const socket = this.socket(conn);
    // An id is remembered when its event was applied, so the last change comes as an event.
    const isEvent = id !== undefined && last > 0;
    const first = isEvent ? { seq: last - 1, status: null } : { seq: last, status };
    const request = this.request('subscribe', undefined, entity, socket);
    this.arrive(socket, JSON.stringify({ type: 'snapshot', entity, epoch, ...first, data, request }));
    if (isEvent) {
      this.arrive(socket, JSON.stringify({ type: 'event', entity, epoch, prev: last - 1, seq: last, id, status }));
    }
    await this.settle();
    this.clock.flushFrames();
    const { sync, seq } = this.read(app!, entity);
    if ((sync !== 'live' && sync !== 'final') || seq !== last) {
      throw new Error(`${entity} is ${sync} at ${seq} after ready`);
    }
  }

  /** Finds the dial that is out, moving the clock to it; an older connection as it is. */
  private async findDial(conn: number | undefined): Promise<Socket> {
    if (conn !== undefined && conn <= this.sockets.length) {
      const socket = this.socket(conn);
      if (conn < this.sockets.length || socket.state !== 'connecting') return socket;
    }
    const limit = this.clock.now + DIAL_WAIT;
    for (;;) {
      const newest = this.sockets.at(-1);
      if (newest?.state === 'connecting' && (conn === undefined || conn === newest.conn)) return newest;
      const next = this.clock.next();
      if (next === undefined || next > limit) throw new Error('no dial within 60 s');
      this.clock.now = Math.max(this.clock.now, next);
      await this.settle();
    }
  }

  private async open(conn: number | undefined): Promise<void> {
    const socket = await this.findDial(conn);
    const isOut = socket.state === 'connecting';
    if (isOut) socket.state = 'open';
    socket.onopen?.({});
    if (!isOut) return;
    const { can = ['replay', 'snapshot', 'heads'], heartbeat } = this.given.config;
    this.arrive(socket, JSON.stringify({ type: 'welcome', can, heartbeat }));
  }

  /** The socket ends from outside; what is still attached to one that has ended is called. */
  private end(socket: Socket, code: number): void {
    if (socket.state !== 'ended') {
      socket.state = 'ended';
      socket.app.lastEnd = this.clock.now;
    }
    socket.onclose?.({ code });
  }

  private socket(conn = this.sockets.length): Socket {
    const socket = this.sockets[conn - 1];
    if (!socket) throw new Error(`there is no connection ${conn} yet`);
    return socket;
  }

  private arrive(socket: Socket, data: unknown): void {
    socket.onmessage?.({ data });
  }

  /** The text of a frame step, with the request filled in that it answers. */
  private frameText(step: Fields, socket: Socket): string {
    const { op: _op, conn: _conn, answers, binary: _binary, pad = 0, ...frame } = step;
    const { entity } = frame;
    if (answers !== undefined) {
      const [kind, nth] = (answers as string).split('#');
      frame['request'] = this.request(kind!, nth === undefined ? undefined : Number(nth), entity, socket) ?? NO_REQUEST;
    }
    if (frame['type'] === 'event' || frame['type'] === 'snapshot') Object.assign(frame, this.mark(entity, frame));
    if (Array.isArray(frame['events'])) {
      frame['events'] = frame['events'].map((event: Fields) => ({ ...event, ...this.mark(entity, event) }));
    }
    return JSON.stringify(frame) + ' '.repeat(pad);
  }

  /** Notes an arrival; its `at` is what changes that come of it will have. */
  private mark(entity: string, { seq, id, at }: Fields): { at?: string } {
    if (at !== undefined || this.plainly) return {};
    const arrival: Arrival = { step: this.now, at: `arrival ${++this.serial}`, entity, seq, id };
    this.arrivals.push(arrival);
    return { at: arrival.at };
  }

  /** The latest request of a kind for an entity on a socket, or the n-th distinct one of the case. */
  private request(kind: string, nth: number | undefined, entity: string | undefined, socket: Socket): unknown {
    const concerns = ({ type, fields }: Sent) =>
      type === kind &&
      (entity === undefined ||
        fields['entity'] === entity ||
        fields['behind']?.some(([name]: [string]) => name === entity));
    if (nth !== undefined) {
      const all = this.sent
        .filter(concerns)
        .map(({ conn, fields }) => [this.sockets[conn! - 1]!.app, fields['request']]);
      const distinct = all.filter(
        ([app, request], at) => all.findIndex(([other, same]) => other === app && same === request) === at,
      );
      return distinct[nth - 1]?.[1];
    }
    const here = this.sent.filter(({ conn }) => conn === socket.conn);
    // A member is covered by the subscription of its topic.
    const topic = ({ type, fields }: Sent) => type === kind && isTopic(String(fields['entity']));
    return (here.filter(concerns).at(-1) ?? here.filter(topic).at(-1))?.fields['request'];
  }

  private async burst(step: Fields, conn: number | undefined): Promise<void> {
    const { entity, epoch, from, to } = step as { entity: string; epoch: string; from: number; to: number };
    const socket = this.socket(conn);
    const event = (seq: number) => ({ type: 'event', entity, epoch, seq, data: { v: seq } });
    if (step['task'] !== 'one') {
      for (let seq = from; seq <= to; seq++) {
        this.arrive(socket, JSON.stringify(event(seq)));
        await this.settle();
      }
      return;
    }
    for (let first = from; first <= to; first += BATCH) {
      const count = Math.min(BATCH, to - first + 1);
      this.arrive(socket, JSON.stringify(Array.from({ length: count }, (_, at) => event(first + at))));
    }
  }

  private async advance(ms: number, heartbeats: boolean, late: boolean): Promise<void> {
    const { clock } = this;
    const end = clock.now + ms;
    const promised = this.given.config['heartbeat'];
    const interval = heartbeats && promised !== undefined ? Math.max(1, Math.trunc(promised * 1_000)) : Infinity;
    let beat = clock.now + interval;
    for (;;) {
      const next = Math.min(late ? Infinity : (clock.next() ?? Infinity), beat);
      if (next > end) break;
      clock.now = Math.max(clock.now, next);
      if (beat <= clock.now) {
        beat = clock.now + interval;
        const newest = this.sockets.at(-1);
        if (newest?.state === 'open') this.arrive(newest, JSON.stringify({ type: 'heartbeat', heads: [] }));
      }
      if (late) await clock.rest();
      else await this.settle();
    }
    clock.now = end;
    await this.settle();
  }

  // --- What happens by itself ---

  /** Lets everything happen that happens without time passing. */
  private async settle(): Promise<void> {
    for (let left = RESTLESS; left > 0; left--) {
      await this.clock.rest();
      const reply = this.replies.shift();
      if (reply) this.arrive(reply.socket, reply.text);
      else if (!this.clock.fire()) return this.count();
    }
    throw new Error('it does not come to rest');
  }

  /** Takes what was counted since the last look. */
  private count(): void {
    for (const app of this.apps) {
      const stats = app.client.stats();
      for (const [counter, name] of COUNTED) {
        if ((stats?.[counter] ?? 0) > (app.stats?.[counter] ?? 0)) this.flag(name);
      }
      app.stats = stats;
    }
  }

  onDial(socket: Socket): void {
    this.sockets.push(socket);
    const { lastEnd } = socket.app;
    this.push('dial', socket.conn, {}, lastEnd === undefined ? undefined : this.clock.now - lastEnd);
  }

  onHangUp(socket: Socket, code: number): void {
    socket.app.lastEnd = this.clock.now;
    this.push('close', socket.conn, { code });
  }

  /** Takes a command apart: one entry for each entity that it names. */
  onSend(socket: Socket, text: string): void {
    const frame = JSON.parse(text) as Fields;
    const { type, request } = frame;
    if (type === 'ping') {
      if (socket.answersPings) this.pong(socket, frame['id']);
      else socket.unanswered.push(frame['id']);
    }
    const list = (frame['entities'] ?? frame['ranges']) as unknown[] | undefined;
    if (!list) return this.push(type, socket.conn, frame);
    for (const item of list) {
      const fields = typeof item === 'object' ? (item as Fields) : { entity: item };
      this.push(type, socket.conn, { ...fields, request });
    }
  }

  private pong(socket: Socket, id: unknown): void {
    this.replies.push({ socket, text: JSON.stringify({ type: 'pong', id }) });
  }

  private push(type: string, conn: number | undefined, fields: Fields, sinceEnd?: number): void {
    this.sent.push({ step: this.now, time: this.clock.now, type, conn, fields, sinceEnd });
  }

  // --- Judging ---

  /** Moves the clock on until what a `delay` of this step waits for has come. */
  private async awaitDelays(step: number): Promise<void> {
    for (const expect of this.given.expect) {
      const delay = expect['send']?.delay as [number, number] | undefined;
      if (!delay || until(expect) !== step) continue;
      const begin = expect['send'].type === 'dial' ? this.app?.lastEnd : undefined;
      const limit = (begin ?? this.starts[expect['at']]!) + delay[1];
      while (!this.sent.some((sent) => this.matches(sent, expect))) {
        const next = this.clock.next();
        if (next === undefined || next > limit) break;
        this.clock.now = Math.max(this.clock.now, next);
        await this.settle();
      }
    }
  }

  /** Judges what must be seen now. */
  private judgeStep(step: number): void {
    for (const expect of this.given.expect) {
      if (expect['at'] !== step) continue;
      const { hold, drop, state } = expect;
      if (hold && this.held(hold.entity) !== hold.count) {
        this.fail(step, JSON.stringify(expect), `${this.held(hold.entity)} held`);
      }
      if (drop) this.judgeDrop(step, expect, drop);
      for (const [key, wanted] of Object.entries((state as Fields | undefined) ?? {})) {
        if (key === 'entity' || key === 'note') continue;
        const got = this.stateOf(key, state.entity);
        const last = this.app?.changes.get(state.entity)?.change.seq;
        const isLastChange = key === 'seq' && got === last && (got as number) < (wanted as number);
        if (!isLastChange && !within(key, wanted, got)) this.fail(step, JSON.stringify(expect), `${key} ${show(got)}`);
      }
    }
  }

  private stateOf(key: string, entity: string | undefined): unknown {
    switch (key) {
      case 'connection':
        return this.app ? (this.app.client.status.getSnapshot() as ClientStatus).connection : 'closed';
      case 'sockets':
        return this.sockets.filter(({ state }) => state !== 'ended').length;
      case 'listeners':
        return this.page.listeners;
      case 'clean':
        return [];
      case 'held':
        return this.held(entity!);
    }
    if (!this.app) return undefined;
    const state = this.read(this.app, entity!);
    return state[key === 'state' ? 'data' : key];
  }

  private judgeDrop(step: number, expect: Fields, drop: Fields): void {
    if (this.held(drop['entity']) > this.heldBefore.get(drop['entity'])!) {
      this.fail(step, JSON.stringify(expect), 'it is held');
    }
    if (drop['as'] && !this.flags.some((flag) => flag.step === step && flag.name === drop['as'])) {
      this.fail(step, JSON.stringify(expect), `no ${drop['as']} was counted`);
    }
  }

  /** Judges what needs the whole run, and gives all failures. */
  judge(): Failure[] {
    if (this.starts.length < this.given.input.length || this.failures.length > 0) return this.failures;
    this.judgeDeliveries();
    for (const expect of this.given.expect) {
      const { send, flag, never, deliver, drop } = expect;
      if (drop) {
        const isIt = ({ step, entity, seq, id }: Arrival) =>
          step === expect['at'] &&
          entity === drop.entity &&
          (drop.seq === undefined || drop.seq === seq) &&
          (drop.id === undefined || drop.id === id);
        if (this.arrivals.some((arrival) => isIt(arrival) && this.applied.has(arrival.at))) {
          this.fail(expect['at'], JSON.stringify(expect), 'it was applied');
        }
      } else if (send) this.judgeSend(expect);
      else if (flag) {
        if (!this.flags.some((got) => this.isIn(got, expect) && flagMatches(got, flag))) {
          const got = this.flags.filter((got) => this.isIn(got, expect));
          this.fail(expect['at'], JSON.stringify(expect), `flags ${show(got)}`);
        }
      } else if (never) this.judgeNever(expect, never);
      else if (deliver) {
        const isTo = typeof deliver.to === 'string';
        const came = (got: Delivered) =>
          got.step === expect['at'] && got.to === deliver.to && deliveryMatches(got.shown, deliver);
        if (isTo && !this.delivered.some(came)) {
          const got = this.delivered.filter(({ to }) => to === deliver.to);
          this.fail(expect['at'], JSON.stringify(expect), `deliveries ${show(got.slice(0, 10))}`);
        }
      } else if (!AT_ONCE.some((key) => key in expect)) throw new Error(`expectation ${JSON.stringify(expect)}`);
    }
    return this.failures;
  }

  private isIn({ step }: { readonly step: number | undefined }, expect: Fields): boolean {
    return step !== undefined && step >= expect['at'] && step <= until(expect);
  }

  /** Deliveries are complete and in order; optional ones may be missing. */
  private judgeDeliveries(): void {
    const wanted: { readonly at: number; readonly deliver: Fields }[] = [];
    for (const { at, deliver } of this.given.expect) {
      if (!deliver || typeof deliver.to === 'string') continue;
      const { from, to, ...one } = deliver as Fields;
      if (from === undefined) wanted.push({ at, deliver });
      else for (let seq = from; seq <= to; seq++) wanted.push({ at, deliver: { ...one, seq } });
    }
    wanted.sort((a, b) => a.at - b.at);
    const reach = (index: number, places: Set<number>) => {
      places.add(index);
      while (wanted[index]?.deliver['optional']) places.add(++index);
    };
    // The expectations that may come next; more than one because of optional ones.
    let places = new Set<number>();
    reach(0, places);
    for (const got of this.delivered) {
      if (got.to !== undefined || got.step === undefined) continue;
      const next = new Set<number>();
      for (const index of places) {
        const want = wanted[index];
        if (want?.at === got.step && deliveryMatches(got.shown, want.deliver)) reach(index + 1, next);
      }
      if (next.size === 0) {
        return this.fail(got.step, show([...places].map((index) => wanted[index])), `delivery ${show(got)}`);
      }
      places = next;
    }
    if (places.has(wanted.length)) return;
    const { at, deliver } = wanted[Math.min(...places)]!;
    this.fail(at, `delivery ${show(deliver)}`, 'no such delivery');
  }

  private judgeSend(expect: Fields): void {
    const found = this.sent.filter((sent) => this.matches(sent, expect));
    const { times } = expect;
    if (times === undefined ? found.length === 0 : found.length !== times) {
      const got = this.sent.filter((sent) => this.isIn(sent, expect)).slice(0, 12);
      return this.fail(expect['at'], JSON.stringify(expect), `${found.length} times, sent ${show(got)}`);
    }
    if (expect['send'].each !== 'entity') return;
    const names = new Set(found.map(({ fields }) => fields['entity']));
    if (names.size < found.length) this.fail(expect['at'], JSON.stringify(expect), 'one entity twice');
  }

  private matches(sent: Sent, expect: Fields): boolean {
    if (!this.isIn(sent, expect) || !sendMatches(sent, expect['send'])) return false;
    const delay = expect['send'].delay as [number, number] | undefined;
    if (!delay) return true;
    const got = this.delay(sent, expect);
    return got !== undefined && got >= delay[0] && got <= delay[1];
  }

  private delay(sent: Sent, expect: Fields): number | undefined {
    return sent.type === 'dial' ? sent.sinceEnd : sent.time - this.starts[expect['at']]!;
  }

  /** The delay of the first send that an expectation names, in its range or not. */
  firstDelay(expect: Fields): number | undefined {
    const first = this.sent.find((sent) => this.isIn(sent, expect) && sendMatches(sent, expect['send']));
    return first && this.delay(first, expect);
  }

  private judgeNever(expect: Fields, never: Fields): void {
    const { deliver, send, close, flag } = never;
    const broken: unknown[] = [];
    const inside = <T extends { readonly step: number | undefined }>(list: readonly T[]) =>
      list.filter((got) => this.isIn(got, expect));
    if (deliver) {
      broken.push(
        ...inside(this.delivered).filter(({ to, shown }) => to === undefined && deliveryMatches(shown, deliver)),
      );
    }
    if (send) broken.push(...inside(this.sent).filter((sent) => sendMatches(sent, send)));
    if (close) broken.push(...inside(this.sent).filter((sent) => sent.type === 'close' && sendMatches(sent, close)));
    if (flag) broken.push(...inside(this.flags).filter((got) => flagMatches(got, flag)));
    if (broken.length > 0) this.fail(expect['at'], JSON.stringify(expect), show(broken.slice(0, 5)));
  }
}

const TOPIC = 'topic/';

const isTopic = (entity: string): boolean => entity.startsWith(TOPIC);

const until = (expect: Fields): number => expect['until'] ?? expect['at'];

const show = (value: unknown): string => JSON.stringify(value) ?? 'undefined';

/** Whether two JSON values are the same; null means absent. */
function same(a: any, b: any): boolean {
  a ??= undefined;
  b ??= undefined;
  if (typeof a !== 'object' || typeof b !== 'object') return a === b;
  const keys = Object.keys(a);
  return (
    Array.isArray(a) === Array.isArray(b) &&
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]))
  );
}

/** Lists with the same items in any order. */
function sameItems(a: any, b: any): boolean {
  if (!Array.isArray(a) || !Array.isArray(b)) return same(a, b);
  return a.length === b.length && a.every((item) => b.some((other) => same(item, other)));
}

function within(key: string, wanted: unknown, got: unknown): boolean {
  if (key === 'clean') return (wanted as string[]).every((name) => !(name in Object.prototype));
  if ((key === 'sockets' || key === 'listeners') && Array.isArray(wanted)) {
    return wanted[0] <= (got as number) && (got as number) <= wanted[1];
  }
  return key === 'data' ? dataMatches(wanted, got) : same(wanted, got);
}

/** A topic's members are in no order. */
const dataMatches = (wanted: unknown, got: unknown): boolean => sameItems(wanted, got) || same(wanted, got);

function sendMatches({ type, conn, fields }: Sent, send: Fields): boolean {
  return Object.entries(send).every(([key, wanted]) => {
    if (key === 'delay' || key === 'spread' || key === 'each' || key === 'note') return true;
    if (key === 'type') return wanted === type;
    if (key === 'conn') return wanted === conn;
    return key === 'behind' ? sameItems(wanted, fields[key]) : same(wanted, fields[key]);
  });
}

function deliveryMatches(shown: Fields, deliver: Fields): boolean {
  return Object.entries(deliver).every(([key, wanted]) => {
    switch (key) {
      case 'optional':
      case 'to':
      case 'note':
        return true;
      case 'kind':
      case 'id':
        return shown['kind'] === undefined || same(wanted, shown[key]);
      case 'reset':
        return shown['kind'] === undefined || (wanted ?? false) === shown['reset'];
      case 'skipped':
        if (shown['kind'] === undefined) return true;
        return typeof wanted === 'boolean' ? wanted === (shown[key] !== undefined) : same(wanted, shown[key]);
      case 'state':
      case 'data':
        return dataMatches(wanted, shown['data']);
    }
    return same(wanted, shown[key]);
  });
}

/** Counters name no entity. */
function flagMatches(got: Flag, flag: Fields): boolean {
  return (
    flag['name'] === got.name &&
    (flag['entity'] === undefined || got.entity === undefined || flag['entity'] === got.entity) &&
    (flag['from'] === undefined || flag['from'] === got.from) &&
    (flag['to'] === undefined || flag['to'] === got.to)
  );
}

// --- Options ---

/** Names of models: all words of the case that could be an entity. */
function namesIn({ config, input }: Case): string[] {
  const names = new Set<string>();
  const walk = (value: unknown): void => {
    if (typeof value === 'string') {
      const [kind = ''] = value.split('/');
      if (/^[\w-]+$/.test(kind) && kind !== 'topic') names.add(kind);
      else if (/^[[{]/.test(value)) walk(parsed(value));
    } else if (typeof value === 'object' && value !== null) Object.values(value).forEach(walk);
  };
  for (const step of input) {
    if (step['op'] === 'ready_many') for (let at = 1; at <= step['count']; at++) names.add(`e${at}`);
  }
  walk(config['subscribe']);
  walk(Object.keys(config['entities'] ?? {}));
  walk(input);
  return [...names].slice(0, MODELS);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const OF_MODEL = ['continuity', 'overlap', 'reopen', 'resetSeq', 'onGap', 'terminal', 'replay', 'reduce', 'ids'];

function modelOptions(config: Fields): ModelOptions<any, any> {
  const options: Fields = {};
  for (const key of OF_MODEL) {
    const value = config[key];
    if (value === undefined || value === null || value === false || value === 'each') continue;
    options[key] = key === 'reduce' && value === 'strict' ? strict : value;
  }
  return options;
}

/** Merges, but not what says `fail`. */
function strict(state: any, data: any): unknown {
  if (data !== null && typeof data === 'object' && 'fail' in data) throw new Error('data that fails');
  return merge(state, data);
}

/** RFC 7396. */
function merge(state: any, data: any): unknown {
  const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isObject(data)) return data;
  const merged = { ...(isObject(state) ? state : {}) };
  for (const [key, value] of Object.entries(data)) {
    if (value === null) delete merged[key];
    else merged[key] = merge(merged[key], value);
  }
  return merged;
}

function clientOptions(given: Case): Fields {
  const { config } = given;
  const options: Fields = { url: 'ws://server.test/ws', flush: config['flush'] ?? 'sync', logger: null };
  const { entities = {}, subscribe: _wanted, heartbeat: _beat, can: _can, getToken: _token, ...rest } = config;
  for (const [key, value] of Object.entries(rest)) {
    const [group, name] = key.split('.');
    if (OF_MODEL.includes(key)) continue;
    if (name === undefined) options[key] = value;
    else (options[group!] ??= {})[name] = value;
  }
  const models = namesIn(given).map((name) => [name, model(modelOptions({ ...config, ...entities[name] }))]);
  return { ...options, models: Object.fromEntries(models) };
}
