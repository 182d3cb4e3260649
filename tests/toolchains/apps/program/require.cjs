const WebSocket = require('ws');
const { createClient, model } = require('inorder');

const client = createClient({ url: process.argv[2], WebSocket, models: { job: model() } });

client.on('final', async ({ entity, status }) => {
  const imported = await import('inorder');
  console.log(status, imported.createClient === createClient ? 'once' : 'twice');
  client.close();
});
client.entity('job/1').subscribe(() => {});
