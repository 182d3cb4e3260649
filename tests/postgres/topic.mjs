// Topics at scale (R39): what joining, churn, reconnecting and changing the gateway cost, in bytes and time.
import { setTimeout as sleep } from 'node:timers/promises';
import { table } from '../../bench/table.mjs';

/** Names in one event of a topic. */
const NAMES = 2_000;
/** Posts on their way at a time. */
const POSTS = 64;
/** What a resume may cost: the handshake and the cursor, and so much for each member that changed. */
const RESUME_BYTES = 2_000;
const CHANGE_BYTES = 400;
/** When the client asks again, and costs are those of a machine that is too slow. */
const ASKED_AGAIN_MS = 5_000;
const PATIENCE_MS = 60_000;

async function each(things, act) {
  const waiting = [...things];
  const work = async () => {
    for (let thing = waiting.pop(); thing !== undefined; thing = waiting.pop()) await act(thing);
  };
  await Promise.all(Array.from({ length: POSTS }, work));
}

/** Runs the phases with one page; returns the table's rows and what was wrong. */
export async function topicAtScale({ Page, readTruth, writers, gateways, size, churn, short }) {
  const topic = 'scale';
  const rows = [];
  const wrong = [];
  let made = 0;
  let changes = 0;
  const [home, other] = gateways;
  const must = async (entity, event) => {
    const answer = await writers.send(home.url, entity, event);
    if (answer?.status !== 200) throw new Error(`${entity} was not stored: ${JSON.stringify(answer)}`);
  };
  const change = (name) => must(name, { data: { value: (changes += 1), text: 'a few words about it' } });
  const members = [];
  const grow = async (count) => {
    const names = Array.from({ length: count }, () => `order/scale-${(made += 1)}`);
    await each(names, change);
    members.push(...names);
    return names;
  };

  const added = await grow(size);
  for (let at = 0; at < added.length; at += NAMES) {
    await must(`topic/${topic}`, { data: { add: added.slice(at, at + NAMES) } });
  }

  const page = new Page('the page of the large topic', [home], topic);
  /** From `act` on, until the page shows what is true once `act` is done. */
  const phase = async (name, changed, act) => {
    let [received, sent] = [page.bytes, page.sent];
    const since = await act(() => ([received, sent] = [page.bytes, page.sent]));
    const truth = await readTruth(home.pid ? home : other, topic);
    const left = await page.settle(truth, PATIENCE_MS, 20);
    const row = {
      name,
      changed,
      received: page.bytes - received,
      sent: page.sent - sent,
      ms: performance.now() - since,
    };
    rows.push(row);
    wrong.push(...left.map((what) => `${name}: ${what}`));
    return row;
  };
  const now = () => performance.now();

  await phase('join', size, async () => now());
  await phase(`churn of 1 % a second, ${churn} s`, churn * Math.ceil(size / 100), async () => {
    const share = Math.ceil(size / 100);
    for (let second = 0; second < churn; second += 1) {
      const next = now() + 1_000;
      const gone = members.splice(0, share);
      const come = await grow(share);
      await must(`topic/${topic}`, { data: { add: come, remove: gone } });
      await sleep(Math.max(0, next - now()));
    }
    return now();
  });
  /** The page is away while so many members change; from its dial on. */
  const away = (count, come) => async (countFromHere) => {
    // The second heartbeat from here on brings a cursor that covers what the page shows, and the fifth one has no heads
    // of what changed before.
    const until = now() + PATIENCE_MS;
    for (const cursors = page.cursors + 5; page.cursors < cursors; await sleep(20)) {
      if (now() > until) throw new Error(`${page.name} gets no heartbeats; it dialled ${page.dials} times`);
    }
    const back = page.leave();
    countFromHere();
    await each(members.slice(0, count), change);
    await come?.();
    back();
    return now();
  };
  const resume = async (name, count, come) => {
    const row = await phase(name, count, away(count, come));
    const allowed = RESUME_BYTES + CHANGE_BYTES * count;
    // A client that waits longer asks again for all that it has no word of (R30).
    if (row.ms > ASKED_AGAIN_MS) return;
    if (row.received > allowed) wrong.push(`${name}: ${row.received} bytes, allowed are ${allowed}`);
    if (row.sent > allowed) wrong.push(`${name}: ${row.sent} bytes sent, allowed are ${allowed}`);
  };
  await resume('reconnect, nothing changed', 0);
  await resume('reconnect, 1 % changed', size / 100);
  if (!short) await resume('reconnect, 10 % changed', size / 10);
  const move = async () => {
    page.gateways = [other];
    await home.down('SIGKILL');
  };
  await resume('another gateway, 1 % changed', size / 100, move);
  await home.up();
  wrong.push(...page.violations);
  page.close();
  return { rows, wrong };
}

/** The table as text. */
export function scaleTable(rows) {
  const number = (value) => Math.round(value).toLocaleString('en-US');
  const cells = rows.map((row) => [row.name, ...[row.changed, row.received, row.sent, row.ms].map(number)]);
  return table(['', 'members changed', 'bytes received', 'bytes sent', 'ms to consistent'], cells);
}
