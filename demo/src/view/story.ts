import { createClient, model, type Client, type EntitySnapshot, type Model, type WebSocketClass } from 'inorder';
import { el, part, setAttribute, setText } from '../dom';
import { FakeSocket, type Hearer } from '../fake/socket';
import { framesOf, terminalOf } from '../frames';
import { NaiveClient } from '../naive';
import { tapped } from '../tap';

interface Delivery {
  readonly entity: string;
  readonly seq: number;
  readonly status: string;
  /** As the worker's clock says, which is four minutes slow on one of them. */
  readonly at: string;
  readonly says: string;
}

const DEPLOYMENTS = ['deployment/dep_301', 'deployment/dep_302', 'deployment/dep_303'] as const;

const DELIVERIES: readonly Delivery[] = [
  {
    entity: 'dep_301',
    seq: 1,
    status: 'queued',
    at: '12:00:01',
    says: 'Three deployments are queued. Both clients show the first one.',
  },
  { entity: 'dep_302', seq: 1, status: 'queued', at: '12:00:02', says: 'The second one.' },
  {
    entity: 'dep_303',
    seq: 1,
    status: 'queued',
    at: '11:56:03',
    says: 'The third one runs on a worker whose clock is four minutes slow. Clocks give no order; only the numbers do.',
  },
  { entity: 'dep_302', seq: 2, status: 'building', at: '12:00:08', says: 'dep_302 builds.' },
  {
    entity: 'dep_301',
    seq: 3,
    status: 'live',
    at: '12:00:31',
    says: 'dep_301 is live, but its change 2 has not come. The naive client shows live. inorder holds change 3 back: something is missing.',
  },
  {
    entity: 'dep_302',
    seq: 2,
    status: 'building',
    at: '12:00:08',
    says: 'The broker delivers change 2 of dep_302 a second time. inorder drops it.',
  },
  {
    entity: 'dep_301',
    seq: 2,
    status: 'building',
    at: '12:00:09',
    says: 'Change 2 of dep_301 arrives late. The naive client turns a live deployment back into a build, for ever. inorder shows building, then live, and locks it.',
  },
  { entity: 'dep_302', seq: 3, status: 'failed', at: '12:00:40', says: 'The build of dep_302 fails.' },
  {
    entity: 'dep_303',
    seq: 3,
    status: 'live',
    at: '11:56:44',
    says: 'dep_303 is live, and again a change was overtaken. inorder waits for it.',
  },
  {
    entity: 'dep_302',
    seq: 4,
    status: 'building',
    at: '12:01:10',
    says: 'Somebody retries dep_302 by hand. It is building again, and that is real: an equal status is no reason to drop a change.',
  },
  {
    entity: 'dep_303',
    seq: 2,
    status: 'building',
    at: '12:00:11',
    says: 'The last one. By the clocks this change is the newest, and that is what the naive client believes. Of three cards it shows two wrong.',
  },
];

/** What is true after so many deliveries: the highest change that anybody made of each, whether it came or not. */
const TRUTH: Record<string, string> = { dep_301: 'live', dep_302: 'building', dep_303: 'live' };

/** The story waits for its reader: an hour of grace before anything that is missing is asked for. */
const GRACE_MS = 3_600_000;

/** How long a step of the automatic play lasts, in milliseconds. */
const STEP_MS = 2_600;

const EPOCH = 'story';

/** One performance: a client, a socket that says what the script says, and a naive client that hears the same. */
class Performance {
  readonly naive = new NaiveClient();
  readonly client: Client<{ readonly deployment: Model<any, any> }>;
  readonly shown = new Map<string, EntitySnapshot>();
  #socket: FakeSocket | undefined;
  #step = 0;
  #wanted = 0;

  constructor(private readonly onChange: () => void) {
    const hear = (text: string): void => this.#hear(text);
    const left = (): void => undefined;
    const connect = (socket: FakeSocket): Hearer => {
      this.#socket = socket;
      return { hear, left };
    };
    class Socket extends FakeSocket {
      constructor(url: string) {
        super({ connect }, url);
      }
    }
    const before = (frames: Parameters<NaiveClient['receive']>[0][]): void => {
      for (const frame of frames) this.naive.receive(frame, performance.now());
    };
    this.client = createClient({
      url: 'ws://in-the-page/story',
      WebSocket: tapped(Socket satisfies WebSocketClass, {
        before: (frames) => before([...frames]),
        after: () => this.onChange(),
      }),
      models: { deployment: model({ reduce: 'merge', terminal: terminalOf('deployment') }) },
      gap: { grace: GRACE_MS },
    });
    for (const name of DEPLOYMENTS) {
      this.client.entity(name).subscribe((snapshot) => {
        this.shown.set(name, snapshot as EntitySnapshot);
        this.#play();
        this.onChange();
      });
    }
  }

  /** Plays up to this delivery. */
  playTo(step: number): void {
    this.#wanted = step;
    this.#play();
  }

  held(name: string): number {
    return this.client.held(name);
  }

  end(): void {
    this.client.close();
  }

  #play(): void {
    // Nothing is delivered before every entity has its first position.
    if ([...this.shown.values()].filter(({ seq }) => seq !== undefined).length < DEPLOYMENTS.length) return;
    while (this.#step < this.#wanted) {
      const delivery = DELIVERIES[this.#step];
      this.#step += 1;
      if (!delivery) return;
      const { entity, seq, status, at } = delivery;
      const frame = { type: 'event', entity: `deployment/${entity}`, epoch: EPOCH, seq, status, at, data: {} };
      this.#socket?.receive(JSON.stringify(frame));
    }
  }

  #hear(text: string): void {
    const say = (frame: object): void => this.#socket?.receive(JSON.stringify(frame));
    for (const { type, request, entities, id } of framesOf(text)) {
      if (type === 'hello') say({ type: 'welcome', can: ['replay', 'snapshot', 'heads'] });
      if (type === 'ping') say({ type: 'pong', id });
      if (type !== 'subscribe') continue;
      for (const { entity } of entities as { entity: string }[]) {
        say({ type: 'subscribed', request, entity, epoch: EPOCH, head: 0 });
        say({ type: 'snapshot', request, entity, epoch: EPOCH, seq: 0, data: null });
      }
    }
  }
}

/** The deployments case, step by step. */
export class Story {
  #performance: Performance | undefined;
  #step = 0;
  #timer: ReturnType<typeof setInterval> | undefined;
  readonly #says = el('p', { class: 'says', 'aria-live': 'polite' });
  readonly #script = el('ol', { class: 'script', 'aria-label': 'Deliveries in the order in which they arrive' });
  readonly #cards = new Map<string, { naive: HTMLElement; inorder: HTMLElement }>();
  readonly #back = el('button', { type: 'button' }, 'Back');
  readonly #next = el('button', { type: 'button', class: 'primary' }, 'Next delivery');
  readonly #play = el('button', { type: 'button' }, 'Play');
  readonly #count = el('span', { class: 'count' });

  constructor() {
    this.#back.addEventListener('click', () => this.#go(this.#step - 1));
    this.#next.addEventListener('click', () => this.#go(this.#step === DELIVERIES.length ? 0 : this.#step + 1));
    this.#play.addEventListener('click', () => (this.#timer === undefined ? this.#start() : this.#stop()));
    for (const { entity, seq, status, at } of DELIVERIES) {
      const line = el('li', {}, el('b', {}, entity), el('span', {}, `#${seq} ${status}`), el('time', {}, at));
      this.#script.append(line);
    }
    const column = (title: string, which: 'naive' | 'inorder'): HTMLElement => {
      const list = el('div', { class: 'cards', 'data-column': which }, el('h3', {}, title));
      for (const name of DEPLOYMENTS) {
        const id = name.slice(name.indexOf('/') + 1);
        const state = el('div', { class: 'state' });
        list.append(el('div', { class: 'deployment' }, el('b', {}, id), state));
        const pair = this.#cards.get(id) ?? { naive: state, inorder: state };
        this.#cards.set(id, { ...pair, [which]: state });
      }
      return list;
    };
    part('story').append(
      el('h2', { id: 'story-title' }, 'The deployment that went backward'),
      el(
        'p',
        { class: 'lead' },
        'Ten changes, eleven deliveries, in an order that brokers really produce. Step through them.',
      ),
      el('div', { class: 'steps' }, this.#back, this.#next, this.#play, this.#count),
      this.#says,
      el('div', { class: 'scene' }, this.#script, column('Naive client', 'naive'), column('inorder', 'inorder')),
    );
    this.#go(0);
  }

  #start(): void {
    setText(this.#play, 'Pause');
    if (this.#step === DELIVERIES.length) this.#go(0, true);
    this.#timer = setInterval(() => {
      if (this.#step === DELIVERIES.length) this.#stop();
      else this.#go(this.#step + 1, true);
    }, STEP_MS);
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    setText(this.#play, 'Play');
  }

  #go(step: number, playing = false): void {
    if (!playing) this.#stop();
    if (step < 0) return;
    if (step < this.#step || !this.#performance) {
      this.#performance?.end();
      // Nothing is loaded or opened before somebody steps.
      this.#performance = step === 0 ? undefined : new Performance(() => this.#show());
    }
    this.#step = step;
    this.#performance?.playTo(step);
    this.#show();
  }

  #show(): void {
    const step = this.#step;
    setText(this.#count, `${step} of ${DELIVERIES.length}`);
    setText(this.#says, DELIVERIES[step - 1]?.says ?? 'Nothing has been delivered yet. Both clients wait.');
    setText(this.#next, step === DELIVERIES.length ? 'Start over' : 'Next delivery');
    // It keeps the focus that it may have.
    setAttribute(this.#back, 'aria-disabled', step === 0 ? 'true' : undefined);
    [...this.#script.children].forEach((line, index) => {
      setAttribute(line, 'data-when', index + 1 === step ? 'now' : index < step ? 'past' : 'future');
      setAttribute(line, 'aria-current', index + 1 === step ? 'step' : undefined);
    });
    const scene = this.#performance;
    for (const [id, { naive, inorder }] of this.#cards) {
      const name = `deployment/${id}`;
      const cell = scene?.naive.cells.get(name);
      const snapshot = scene?.shown.get(name);
      this.#card(naive, id, cell?.seq === 0 ? undefined : cell?.status, 0, false);
      this.#card(
        inorder,
        id,
        snapshot?.seq === 0 ? undefined : snapshot?.status,
        scene?.held(name) ?? 0,
        snapshot?.sync === 'final',
      );
    }
  }

  #card(root: HTMLElement, id: string, status: string | undefined, held: number, final: boolean): void {
    const over = this.#step === DELIVERIES.length;
    const wrong = over && status !== TRUTH[id];
    const gone = this.#cards.get(id)?.naive === root && id === 'dep_301' && this.#step >= 7 && status !== 'live';
    setAttribute(root, 'data-status', status);
    setAttribute(root, 'data-wrong', wrong || gone);
    const notes = [held ? `${held} held` : '', final ? 'final' : '', wrong || gone ? 'really live' : ''].filter(
      Boolean,
    );
    setText(root, [status ?? '—', ...notes].join(' · '));
  }
}
