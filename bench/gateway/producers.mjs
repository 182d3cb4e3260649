// A process that posts events over some connections, as fast as they are answered or at a given pace.
import { connect } from 'node:net';

const TEXT = 'some words of the size that a change of a job has, give or take a few';
const now = () => Number(process.hrtime.bigint() / 1_000n);

let posted = 0;
/** From each post to its answer, in microseconds. */
let waits = [];

/** One connection that posts one event after the other. */
function producer(port, next) {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    let said = '';
    let since = 0;
    const post = async () => {
      const event = await next();
      if (!event) {
        socket.end();
        return resolve();
      }
      since = now();
      const body = JSON.stringify({ id: event.id, data: { t: since, text: TEXT } });
      socket.write(
        `POST /entities/${event.entity}/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
          `Content-Length: ${body.length}\r\n\r\n${body}`,
      );
    };
    socket.setEncoding('latin1');
    socket.on('connect', post);
    socket.on('error', reject);
    socket.on('data', (text) => {
      said += text;
      const end = said.indexOf('\r\n\r\n');
      if (end < 0) return;
      const size = Number(/content-length: (\d+)/i.exec(said)?.[1] ?? 0);
      const chunked = /transfer-encoding: chunked/i.test(said);
      if (chunked ? !said.endsWith('0\r\n\r\n') : said.length < end + 4 + size) return;
      if (!said.startsWith('HTTP/1.1 200')) return reject(new Error(said));
      said = '';
      posted += 1;
      waits.push(now() - since);
      post();
    });
  });
}

const quantile = (sorted, share) => sorted[Math.floor(sorted.length * share)];

/** Posts `events` to `entities` entities; `perSecond` 0 is as fast as possible. Returns when it began, and the waits. */
async function run({ ports, connections, events, entities, perSecond, name }) {
  const began = now();
  posted = 0;
  waits = [];
  let count = 0;
  const next = async () => {
    if (count >= events) return undefined;
    const at = count;
    count += 1;
    if (perSecond > 0) {
      const wait = began + (at / perSecond) * 1e6 - now();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait / 1_000));
    }
    return { entity: `load/${at % entities}`, id: `${name}-${at}` };
  };
  await Promise.all(Array.from({ length: connections }, (_, at) => producer(ports[at % ports.length], next)));
  waits.sort((a, b) => a - b);
  return { began, ended: now(), posted, wait: { p50: quantile(waits, 0.5), p99: quantile(waits, 0.99) } };
}

process.on('message', async ({ deed, ...of }) => {
  try {
    process.send({ deed, ...(await run(of)) });
  } catch (error) {
    process.send({ deed, error: String(error) });
  }
});
process.on('disconnect', () => process.exit());
