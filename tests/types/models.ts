// What an app's compiler knows of its models, through the package's entry. Compiled by the step `types`, never run.
import { type Client, createClient, type Entity, type EntitySnapshot, type ErrorCode, model } from 'inorder';
import type { Change, Models, StateOf, Store, Sync, Topic } from 'inorder';
import { is, type Same } from './same.js';

interface Job {
  readonly name: string;
  readonly progress: number;
}
type JobEvent = Partial<Job>;
interface Book {
  readonly bids: readonly number[];
}
interface Trade {
  readonly price: number;
}

const models = {
  job: model<Job, JobEvent>({ reduce: 'merge', terminal: ['completed'] }),
  book: model<Book, Trade>({ reduce: (book, trade) => ({ bids: [...(book?.bids ?? []), trade.price] }) }),
  note: model<string>(),
  any: model(),
};
const client = createClient({ url: 'wss://example.com/ws', models });

// --- A name knows its state and its event ---

declare const id: string;
declare const number: number;
declare const which: boolean;

const job = client.entity('job/42');
is<Same<typeof job, Entity<Job, JobEvent>>>();
is<Same<ReturnType<typeof job.getSnapshot>, EntitySnapshot<Job>>>();
is<Same<ReturnType<typeof job.getSnapshot>['state'], Job | null | undefined>>();
is<Same<Awaited<ReturnType<typeof job.finished>>, EntitySnapshot<Job>>>();

const book = client.entity(`book/${id}`);
is<Same<typeof book, Entity<Book, Trade>>>();
const numbered = client.entity(`book/${number}`);
is<Same<typeof numbered, Entity<Book, Trade>>>();
const deep = client.entity('note/of/today');
is<Same<typeof deep, Entity<string, string>>>();
const whole = client.entity('note');
is<Same<typeof whole, Entity<string, string>>>();
const untyped = client.entity('any/1');
is<Same<typeof untyped, Entity<unknown, unknown>>>();

const either = client.entity(which ? 'job/1' : 'book/1').getSnapshot().state;
is<Same<typeof either, Job | Book | null | undefined>>();

for await (const change of book.changes()) {
  is<Same<typeof change, Change<Book, Trade>>>();
  is<Same<typeof change.event, Trade | undefined>>();
}
for await (const { state } of job) is<Same<typeof state, Job | null | undefined>>();

// @ts-expect-error: no model is named pet
client.entity('pet/1');
// @ts-expect-error: nor jobs
client.entity('jobs/1');
// @ts-expect-error: any string might be anything
client.entity(id);
// @ts-expect-error: the model is not known
client.entity(`${id}/1`);
// @ts-expect-error: a topic is no entity
client.entity('topic/jobs');
// @ts-expect-error: a job has no bids
job.getSnapshot().state?.bids;
// @ts-expect-error: the state may be missing
job.getSnapshot().state.progress;
// @ts-expect-error: a book's event is a trade
for await (const { event } of book.changes()) event?.progress;
// @ts-expect-error: subscribe takes one argument
job.subscribe(console.log, console.error);
// @ts-expect-error: there is no such event
client.on('done', () => {});
// @ts-expect-error: what is shown is read only
job.getSnapshot().state = null;

// --- Topics: of one model, or of any ---

const jobs = client.topic<'job'>('jobs');
is<Same<typeof jobs, Topic<Job>>>();
const all = client.topic('all');
is<Same<typeof all, Topic<unknown>>>();
// @ts-expect-error: no model is named pet
client.topic<'pet'>('pets');

// --- Models ---

is<Same<StateOf<typeof models.book>, Book>>();
model<Book, Trade>({ reduce: (_, trade) => ({ bids: [trade.price] }), onGap: 'snapshot', continuity: 'range' });
// @ts-expect-error: the state is a book
model<Book, Trade>({ reduce: (_, trade) => trade });
// @ts-expect-error: the event is a trade
model<Book, Trade>({ reduce: (book, trade) => ({ bids: [trade.bids] }) });
// @ts-expect-error: there is no such way over a gap
model({ onGap: 'guess' });
// @ts-expect-error: there is no such option
model({ terminals: ['completed'] });
model<Job>({ terminal: (status, state) => status === 'closed' || state?.progress === 100 });

// --- Clients where the models are not known ---

function follow<M extends Models>(client: Client<M>): Client<M> {
  client.on('final', ({ entity, status }) => is<Same<[typeof entity, typeof status], [string, string | undefined]>>());
  return client;
}
is<Same<ReturnType<typeof client.status.getSnapshot>['retryAt'], number | undefined>>();
follow(client)
  .entity('job/1')
  .subscribe(({ state }) => is<Same<typeof state, Job | null | undefined>>());

// --- Errors: every code can be told apart ---

const retries = { load: true, url: true } satisfies { [code in ErrorCode]?: boolean };
client.on('error', ({ code, retryable, entity }) => {
  is<Same<typeof code, ErrorCode>>();
  is<Same<[typeof retryable, typeof entity], [boolean, string | undefined]>>();
  // @ts-expect-error: there is no such code
  if (code === 'oops') return;
  if (code in retries) client.reconnect();
});

// --- Options ---

createClient({
  url: () => 'wss://example.com/ws',
  models,
  getToken: async ({ attempt }) => `${attempt}`,
  logger: null,
});
createClient({ url: new URL('wss://example.com/ws'), models, WebSocket: globalThis.WebSocket, token: undefined });
// @ts-expect-error: models are needed
createClient({ url: 'wss://example.com/ws' });
// @ts-expect-error: where none is named, no entity has a model
createClient({ url: 'wss://example.com/ws', models: {} }).entity('job/42');
// @ts-expect-error: milliseconds, not text
createClient({ url: 'wss://example.com/ws', models, linger: '1s' });
// @ts-expect-error: no such group
createClient({ url: 'wss://example.com/ws', models, retry: { max: 3 } });

// --- Stores are one type, and what follows them ends by itself ---

const store: Store<EntitySnapshot<Job>> = job;
store.subscribe({ next: ({ sync }) => is<Same<typeof sync, Sync>>() });

{
  using following = job.subscribe(() => {});
  following.unsubscribe();
  using all = client;
  all.close();
}
