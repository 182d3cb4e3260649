// Follows a job step by step: every change, in order, none twice.
import { createClient, model } from 'inorder';
import { fresh, post, url, WebSocket } from './gateway.mjs';

const client = createClient({ url, WebSocket, models: { job: model({ reduce: 'merge' }) } });
const job = client.entity(fresh('job'));

async function work() {
  for (const step of ['fetch', 'build', 'test']) await post(job.name, { status: 'running', data: { step } });
  await post(job.name, { status: 'failed', data: { reason: 'two tests failed' } });
}

// The first one is the state as it is now; the loop ends after the final one.
for await (const { kind, seq, event, state, skipped, reset } of job.changes()) {
  if (reset) console.log('the server began anew: what was shown before is void');
  if (skipped) console.log(`not seen one by one: ${skipped[0]} to ${skipped[1]}`);
  console.log(kind, seq, JSON.stringify(kind === 'event' ? event : state));
  if (seq === 0) void work();
}
client.close();
