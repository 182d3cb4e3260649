// Waits for a job to end, once.
import { createClient, model } from 'inorder';
import { fresh, post, url, WebSocket } from './gateway.mjs';

const client = createClient({ url, WebSocket, models: { job: model({ reduce: 'merge' }) } });
const job = client.entity(fresh('job'));

// Resolves with the final snapshot, whatever happens to the connection meanwhile.
const ended = job.finished({ signal: AbortSignal.timeout(60_000) });

for (const progress of [25, 50, 75]) await post(job.name, { status: 'running', data: { progress } });
await post(job.name, { status: 'completed', data: { progress: 100 } });

const { status, state, seq } = await ended;
console.log(`${status} at ${state.progress} %, as change ${seq}`);
client.close();
