// What a server does that renders pages: it makes a client and reads from it. Nothing may keep it from ending.
import { createClient, model } from 'inorder';

const client = createClient({ url: process.argv[2], models: { job: model() } });

console.log(client.entity('job/1').getServerSnapshot().sync, client.status.getServerSnapshot().connection);
