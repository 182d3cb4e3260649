// The other server of the comparison: as little as a broadcaster with Node and `ws` needs. No log, no resume, no limits.
import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';

const followers = new Map();
const seqs = new Map();

const server = createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (part) => (body += part));
  request.on('end', () => {
    const entity = request.url.slice('/entities/'.length, -'/events'.length);
    const { data } = JSON.parse(body);
    const seq = (seqs.get(entity) ?? 0) + 1;
    seqs.set(entity, seq);
    const frame = JSON.stringify({ type: 'event', entity, seq, data });
    for (const socket of followers.get(entity) ?? []) socket.send(frame);
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ seq }));
  });
});

// Slow as it may get, it does not hang up on who waits.
server.keepAliveTimeout = 0;

new WebSocketServer({ server, perMessageDeflate: false }).on('connection', (socket) => {
  const followed = [];
  socket.on('message', (text) => {
    for (const { type, entities } of [JSON.parse(text)].flat()) {
      if (type !== 'subscribe') continue;
      for (const { entity } of entities) {
        if (!followers.has(entity)) followers.set(entity, new Set());
        followers.get(entity).add(socket);
        followed.push(entity);
        socket.send(JSON.stringify({ type: 'subscribed', entity, head: seqs.get(entity) ?? 0 }));
      }
    }
  });
  socket.on('close', () => followed.forEach((entity) => followers.get(entity).delete(socket)));
});

server.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
