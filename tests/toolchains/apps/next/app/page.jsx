import { createClient, model } from 'inorder';
import { Job } from './job';

let sockets = 0;
class WebSocket {
  constructor() {
    sockets++;
  }
}

// A server component: what is made here opens nothing, neither while building nor while serving.
const client = createClient({ url: 'wss://example.com/ws', WebSocket, models: { job: model() } });

export const dynamic = 'force-dynamic';

export default function Page() {
  return (
    <main>
      <p>{`on the server: ${client.entity('job/1').getServerSnapshot().sync}, ${sockets} sockets`}</p>
      <Job />
    </main>
  );
}
