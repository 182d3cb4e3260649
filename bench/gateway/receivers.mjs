// A process that holds many sockets, counts the events that arrive, and times some of them. Bare TCP, so that it is
// cheaper than what it measures.
import { connect } from 'node:net';

/** Sockets that are being opened at a time. */
const OPENING = 100;
/** Sockets whose events are timed: one in so many, and at least one. */
const TIMED = 50;

const EVENT = Buffer.from('"type":"event"');
const SUBSCRIBED = Buffer.from('"type":"subscribed"');
const OPCODE = { text: 1, close: 8, ping: 9, pong: 10 };

let events = 0;
let bytes = 0;
let messages = 0;
let latencies = [];
let broken = 0;
const open = [];

const now = () => Number(process.hrtime.bigint() / 1_000n);

/** A client's frame; the mask is zero, so the payload stays as it is. */
function frame(opcode, payload) {
  const size = payload.length;
  const head = size < 126 ? [0x80 | opcode, 0x80 | size] : [0x80 | opcode, 0x80 | 126, size >> 8, size & 255];
  return Buffer.concat([Buffer.from([...head, 0, 0, 0, 0]), payload]);
}

function count(payload, what) {
  let found = 0;
  for (let at = payload.indexOf(what); at >= 0; at = payload.indexOf(what, at + what.length)) found += 1;
  return found;
}

/** Opens a socket that follows one entity; resolves once it is told that it does. */
function follow({ port, entity, timed }) {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    let rest = Buffer.alloc(0);
    let upgraded = false;
    socket.on('error', reject);
    socket.on('close', () => (broken += 1));
    socket.on('connect', () => {
      const lines = ['GET /ws HTTP/1.1', 'Host: localhost', 'Upgrade: websocket', 'Connection: Upgrade'];
      const more = ['Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=='];
      socket.write([...lines, ...more, 'Sec-WebSocket-Protocol: inorder.v1.json', '', ''].join('\r\n'));
    });
    const take = (opcode, payload) => {
      if (opcode === OPCODE.ping) socket.write(frame(OPCODE.pong, payload));
      if (opcode !== OPCODE.text) return;
      messages += 1;
      bytes += payload.length;
      events += count(payload, EVENT);
      if (payload.includes(SUBSCRIBED)) resolve(socket);
      if (!timed) return;
      const at = now();
      for (const [, since] of payload.toString('latin1').matchAll(/"t":(\d+)/g)) latencies.push(at - Number(since));
    };
    socket.on('data', (data) => {
      let text = rest.length > 0 ? Buffer.concat([rest, data]) : data;
      if (!upgraded) {
        const end = text.indexOf('\r\n\r\n');
        if (end < 0) return void (rest = text);
        upgraded = true;
        text = text.subarray(end + 4);
        const hello = { type: 'hello', client: 'bench/1' };
        const subscribe = { type: 'subscribe', request: 1, entities: [{ entity }] };
        socket.write(frame(OPCODE.text, Buffer.from(JSON.stringify([hello, subscribe]))));
      }
      while (text.length >= 2) {
        const short = text[1] & 127;
        const head = short < 126 ? 2 : short === 126 ? 4 : 10;
        if (text.length < head) break;
        const size = short < 126 ? short : short === 126 ? text.readUInt16BE(2) : Number(text.readBigUInt64BE(2));
        if (text.length < head + size) break;
        take(text[0] & 15, text.subarray(head, head + size));
        text = text.subarray(head + size);
      }
      // A copy, so that a few bytes do not keep a large buffer.
      rest = text.length > 0 ? Buffer.from(text) : Buffer.alloc(0);
    });
  });
}

async function openAll({ ports, sockets, entities }) {
  let next = 0;
  const work = async () => {
    while (next < sockets) {
      const at = next;
      next += 1;
      const wanted = { port: ports[at % ports.length], entity: `load/${at % entities}`, timed: at % TIMED === 0 };
      open.push(await follow(wanted));
    }
  };
  await Promise.all(Array.from({ length: Math.min(OPENING, sockets) }, work));
}

const DEEDS = {
  open: openAll,
  /** Forgets what was counted. */
  begin() {
    [events, bytes, messages, latencies] = [0, 0, 0, []];
  },
  /** What was counted; `at` is when. */
  read({ full }) {
    return { events, bytes, messages, broken, at: now(), ...(full && { latencies }) };
  },
  close() {
    for (const socket of open) socket.destroy();
    process.disconnect();
  },
};

process.on('message', async ({ deed, ...of }) => {
  try {
    process.send({ deed, ...(await DEEDS[deed](of)) });
  } catch (error) {
    process.send({ deed, error: String(error) });
  }
});
process.on('disconnect', () => process.exit());
