// What the compiler knows. Checked by `npm run lint`, never run.
import { createClient, InorderError, model } from '../../pkg/dist/index.js';
import type { Client, EntitySnapshot, ErrorCode, Store, Sync } from '../../pkg/dist/index.js';

interface Job {
  progress: number;
}
interface Book {
  bids: number[];
}
type JobEvent = Partial<Job>;

const client = createClient({
  url: 'wss://example.com/ws',
  models: {
    job: model<Job, JobEvent>({ reduce: 'merge', terminal: ['completed'] }),
    book: model<Book>({ reduce: (state, event) => ({ ...state, ...event }) }),
  },
});

const same = <T>(_a: T, _b: T): void => {};

const job = client.entity('job/42');
job.subscribe((snapshot) => {
  same<number | undefined>(snapshot.state?.progress, 1);
  same<Sync>(snapshot.sync, 'live');
  // @ts-expect-error: a job has no bids
  snapshot.state?.bids;
});
const id: string = 'x';
client.entity(`book/${id}`).subscribe(({ state }) => same<number[] | undefined>(state?.bids, []));
// @ts-expect-error: there is no such model
client.entity('pet/1');
// @ts-expect-error: two arguments
job.subscribe(() => {}, 1);
// @ts-expect-error: a snapshot is read only
job.getSnapshot().seq = 1;

const store: Store<EntitySnapshot<Job>> = job;
store.getSnapshot();
for await (const change of job.changes()) same<JobEvent | undefined>(change.event, { progress: 1 });
same<EntitySnapshot<Job>>(await job.finished(), job.getSnapshot());

client.topic('all').subscribe((all) => {
  for (const [, { state }] of all) if (state && 'progress' in state) same<number>(state.progress, 1);
});
client.topic<'job'>('jobs').subscribe((all) => same<number | undefined>(all.get('x')?.state?.progress, 1));

client.on('final', ({ entity, status }) => same<(string | undefined)[]>([entity, status], ['', undefined]));
client.on('error', (error) => {
  same<ErrorCode>(error.code, 'closed');
  if (error instanceof InorderError) same<boolean>(error.retryable, true);
});
// @ts-expect-error: there is no such event
client.on('done', () => {});

{
  using stop = job.subscribe({ next: () => {} });
  stop.unsubscribe();
}
const any: Client = client as unknown as Client;
any.close();

// @ts-expect-error: the url is needed
createClient({ models: { job: model() } });
// @ts-expect-error: no such option
createClient({ url: 'wss://example.com', models: { job: model() }, retries: 3 });
