import { createClient, model } from 'inorder';

/** Follows one job to its end and shows the numbers of its changes, or what went wrong. */
export async function follow(show, options) {
  const client = createClient({ models: { job: model() }, ...options });
  client.on('error', ({ code, message }) => show(`${code}: ${message}`));
  const job = client.entity('job/1');
  const seen = [];
  for await (const { seq } of job.changes()) seen.push(seq);
  const { status } = await job.finished();
  client.close();
  show(`${seen.join(' ')} ${status}`);
}
