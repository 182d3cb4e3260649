// Shows the connection, when the next attempt is due, and lets a person hurry it. Stop the gateway to see it.
import { createClient, model } from 'inorder';
import { url, WebSocket } from './gateway.mjs';

const client = createClient({
  url,
  WebSocket,
  models: { job: model() },
  // Long waits, so that there is something to hurry. The default begins with half a second.
  backoff: { min: 10_000, base: 20_000, cap: 20_000 },
});

client.status.subscribe(({ connection, retryAt }) => {
  const seconds = retryAt && Math.ceil((retryAt - Date.now()) / 1000);
  console.log(seconds ? `${connection}, next attempt in ${seconds} s; Enter tries now` : connection);
});

client.connect();
process.stdin.on('data', () => client.reconnect());
process.stdin.on('end', () => client.close());
