// What a server does that renders pages: it makes a client and reads from it. Nothing may keep it from ending.
import { createClient, model } from 'inorder';
import WebSocket from 'ws';

const client = createClient({ url: process.argv[2], WebSocket, models: { job: model() } });

console.log(client.entity('job/1').getServerSnapshot().sync, client.status.getServerSnapshot().connection);
