// The hooks' types need no types of React. Compiled by the step `types`, never run.
import { createClient, type EntitySnapshot, model, type Topic } from 'inorder';
import { useEntity, useStatus, useTopic } from 'inorder/react';
import * as slim from 'inorder/slim';
import { is, type Same } from './same.js';

interface Job {
  readonly progress: number;
}

const models = {
  job: model<Job, { readonly by: number }>({ reduce: (job, { by }) => ({ progress: (job?.progress ?? 0) + by }) }),
};
const client = createClient({ url: 'wss://example.com/ws', models });

const snapshot = useEntity(client.entity('job/42'));
is<Same<typeof snapshot, EntitySnapshot<Job>>>();
const progress = useEntity(client.entity('job/42'), ({ state }) => state?.progress);
is<Same<typeof progress, number | undefined>>();
const both = useEntity(
  client.entity('job/42'),
  ({ state, sync }) => ({ progress: state?.progress ?? 0, sync }),
  (a, b) => a.progress === b.progress,
);
is<Same<typeof both.progress, number>>();

const jobs: Topic<Job> = client.topic<'job'>('jobs');
const members = useTopic(jobs);
is<Same<typeof members, ReadonlyMap<string, EntitySnapshot<Job>>>>();
const count = useTopic(jobs, (all) => all.size);
is<Same<typeof count, number>>();

const connection = useStatus(client, (status) => status.connection);
is<Same<typeof connection, 'idle' | 'connecting' | 'live' | 'offline' | 'closed' | 'stopped'>>();
const { retryAt } = useStatus(client);
is<Same<typeof retryAt, number | undefined>>();

// @ts-expect-error: a job has no bids
useEntity(client.entity('job/42'), ({ state }) => state?.bids);
// @ts-expect-error: a topic is no entity
useEntity(jobs);
// @ts-expect-error: an entity is no topic
useTopic(client.entity('job/42'));
const sameText = (a: string, b: string) => a === b;
// @ts-expect-error: isEqual compares what is selected
useEntity(client.entity('job/42'), ({ seq }) => seq, sameText);
// @ts-expect-error: the client, not its status
useStatus(client.status);

// @ts-expect-error: inorder/slim needs the wasm
slim.createClient({ url: 'wss://example.com/ws', models });
const small = slim.createClient({ url: 'wss://example.com/ws', models, wasm: '/inorder.wasm' });
is<Same<typeof small, typeof client>>();
