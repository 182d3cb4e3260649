import { createClient, model } from 'inorder';
import { Job } from './job';

// A server component: what is made here opens nothing, while building and while serving.
const client = createClient({ url: process.env.SERVER, models: { job: model() } });

export const dynamic = 'force-dynamic';

export default function Page() {
  return (
    <main>
      <p>on the server: {client.entity('job/1').getServerSnapshot().sync}</p>
      <Job />
    </main>
  );
}
