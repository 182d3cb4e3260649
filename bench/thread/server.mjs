// Sends events at a steady pace, in a process of its own: `node server.mjs RATE ROWS BATCH`.
import { WebSocketServer } from 'ws';

const [rate, rows, batch] = process.argv.slice(2).map(Number);

/** How often it is looked what is due, in milliseconds. */
const TICK_MS = 5;

const EPOCH = 'k3';
const names = Array.from({ length: rows }, (_, index) => `row/${index + 1}`);
const server = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: () => 'inorder.v1.json' });

server.on('listening', () => process.send({ port: server.address().port }));
server.on('connection', (socket) => {
  const seqs = names.map(() => 1);
  let timer;
  const say = (...frames) => socket.send(JSON.stringify(frames.length === 1 ? frames[0] : frames));
  socket.on('message', (data) => {
    const frames = [JSON.parse(data)].flat();
    for (const { type, request, id } of frames) {
      if (type === 'hello') say({ type: 'welcome', heartbeat: 30, can: ['replay', 'snapshot', 'heads'] });
      if (type === 'ping') say({ type: 'pong', id });
      if (type !== 'subscribe') continue;
      say({ type: 'subscribed', request, entity: 'topic/rows', epoch: EPOCH, head: 1 });
      say({ type: 'snapshot', request, entity: 'topic/rows', epoch: EPOCH, seq: 1, data: names });
      const data = { name: 'ACME', price: 100, volume: 0, changes: 0 };
      say(...names.map((entity) => ({ type: 'snapshot', entity, epoch: EPOCH, seq: 1, data })));
    }
  });
  const events = (count, from) =>
    Array.from({ length: count }, (_, index) => {
      const at = (from + index) % rows;
      seqs[at] += 1;
      const data = { price: 100 + (seqs[at] % 17), volume: seqs[at] * 10, changes: seqs[at] };
      return { type: 'event', entity: names[at], epoch: EPOCH, seq: seqs[at], data };
    });
  const stop = () => {
    clearInterval(timer);
    timer = undefined;
    return seqs.reduce((sum, seq) => sum + seq, 0);
  };
  socket.on('close', stop);
  process.removeAllListeners('message');
  process.on('message', (word) => {
    if (word === 'stop') return process.send({ sum: stop(), queued: socket.bufferedAmount });
    const began = performance.now();
    let sent = 0;
    timer = setInterval(() => {
      const due = Math.floor(((performance.now() - began) / 1_000) * rate);
      while (sent + batch <= due) {
        say(...events(batch, sent));
        sent += batch;
      }
    }, TICK_MS);
  });
});
process.on('disconnect', () => process.exit());
