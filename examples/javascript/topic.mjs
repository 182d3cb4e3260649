// Shows a table of whatever belongs to a topic: rows come and go by themselves.
import { createClient, model } from 'inorder';
import { fresh, post, url, WebSocket } from './gateway.mjs';

const client = createClient({ url, WebSocket, models: { job: model({ reduce: 'merge' }) } });
const topic = fresh('topic');
const jobs = ['job/one', 'job/two', 'job/three'].map((name) => `${name}-${Date.now()}`);

// The same map until something changes; frozen snapshots by name.
const stop = client.topic(topic.slice('topic/'.length)).subscribe((members) => {
  const rows = [...members].map(([name, { state, status }]) => `${name.split('-')[0]} ${status} ${state?.progress}`);
  console.log(`${members.size} jobs: ${rows.sort().join(', ') || 'none yet'}`);
  if (members.size === 2 && [...members.values()].every(({ sync }) => sync === 'final')) {
    stop();
    client.close();
  }
});

for (const name of jobs) await post(name, { status: 'running', data: { progress: 0 } });
await post(topic, { data: { add: jobs } });
await post(topic, { data: { remove: [jobs[2]] } });
for (const name of jobs.slice(0, 2)) await post(name, { status: 'completed', data: { progress: 100 } });
