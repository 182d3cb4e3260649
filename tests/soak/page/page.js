// A small page as an application would write it. It notes everything that it was told and hands that in; it judges
// nothing.
import { createClient, model } from './inorder/index.js';

const query = new URLSearchParams(location.search);

/** What was noted is handed in this often, in milliseconds. */
const REPORT_MS = 400;

/** Tried again after this time, in milliseconds: Firefox may put a page away in the middle of a request, which never ends. */
const ANSWER_MS = 2_000;

/** One load of this page. */
const session = Array.from(crypto.getRandomValues(new Uint32Array(2)), (word) => word.toString(36)).join('');

/** What was not handed in yet, each with its number. */
let notes = [];
let count = 0;
const note = (...what) => notes.push([count++, Math.round(performance.now()), ...what]);

const address = `records?${new URLSearchParams({ engine: query.get('engine'), session })}`;

async function report() {
  const { length } = notes;
  try {
    if (length > 0) {
      const { ok } = await Promise.race([
        fetch(address, { method: 'POST', body: JSON.stringify(notes) }),
        new Promise((resolve) => setTimeout(resolve, ANSWER_MS, { ok: false })),
      ]);
      // What came meanwhile stands behind. A batch that arrives twice is known by its numbers.
      if (ok) notes = notes.slice(length);
    }
  } catch {
    // Again with the next.
  }
  setTimeout(report, REPORT_MS);
}
report();

addEventListener('error', ({ message, filename, lineno }) => note('thrown', `${message} ${filename}:${lineno}`));
addEventListener('unhandledrejection', ({ reason }) => note('thrown', `rejected: ${reason?.stack ?? reason}`));
document.addEventListener('visibilitychange', () => note('page', document.visibilityState));
for (const type of ['freeze', 'resume']) document.addEventListener(type, () => note('page', type));
addEventListener('pageshow', ({ persisted }) => persisted && note('page', 'restored'));
addEventListener('pagehide', ({ persisted }) => {
  note('page', persisted ? 'put away' : 'left');
  note('stats', client.stats());
  navigator.sendBeacon(address, JSON.stringify(notes));
});

if (query.has('traps')) {
  note('traps');
  await import('./traps.js');
}

const client = createClient({
  url: query.get('gateway'),
  models: {
    job: model({ reduce: 'merge' }),
    gauge: model({ onGap: 'snapshot' }),
    price: model({ onGap: 'skip' }),
  },
  backoff: { cap: 1_000 },
});

client.on('error', ({ code, entity, message }) => note('error', code, entity, message));
client.on('connection', ({ connection }) => note('connection', connection));
client.on('final', ({ entity, status, seq, state }) => note('final', entity, status, seq, state));
client.on('change', ({ entity, kind, epoch, seq, status, state, event, reset, skipped }) =>
  note('change', entity, kind, epoch, seq, status, state, event, reset, skipped),
);

/** What is on the page, by entity. */
const shown = new Map();
const place = document.querySelector('#shown');

function show(entity, snapshot) {
  if (shown.get(entity) === snapshot) return;
  shown.set(entity, snapshot);
  const { epoch, seq, status, state, sync } = snapshot;
  note('shown', entity, sync, epoch, seq, status, state);
}

const draw = () => {
  place.textContent = Array.from(
    shown,
    ([entity, { seq, status, sync }]) => `${entity} #${seq} ${status} ${sync}`,
  ).join('\n');
};

const topic = client.topic('jobs');
topic.subscribe((jobs) => {
  for (const entity of shown.keys()) {
    if (!entity.startsWith('job/') || jobs.has(entity)) continue;
    shown.delete(entity);
    note('gone', entity);
  }
  for (const [entity, snapshot] of jobs) show(entity, snapshot);
  draw();
});

for (const entity of query.get('entities').split(',')) {
  client.entity(entity).subscribe((snapshot) => {
    show(entity, snapshot);
    draw();
  });
}

/** What is shown now, for who compares it with the truth. */
globalThis.current = () => {
  note('stats', client.stats());
  return JSON.stringify({
    session,
    count,
    topic: topic.sync,
    entities: Array.from(shown, ([entity, { epoch, seq, status, state, sync }]) => ({
      entity,
      epoch,
      seq,
      status,
      state,
      sync,
    })),
  });
};
