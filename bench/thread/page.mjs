// The same table twice, by React: once from inorder, once as it is often written. Then the page watches itself.
import { Component, createElement as h, memo, useEffect, useState, useSyncExternalStore } from 'react';
import { createRoot } from 'react-dom/client';

const COLUMNS = ['name', 'price', 'volume', 'changes'];

const cells = (row, seq) => [
  ...COLUMNS.map((name) => h('td', { key: name }, row?.[name] ?? '')),
  h('td', { key: 'seq' }, seq),
];

/** A row that is drawn anew only when its snapshot is another. */
const Row = memo(({ name, snapshot }) => h('tr', { id: name }, cells(snapshot.state, snapshot.seq)));

const tables = {
  /** As the guide says: the topic is the store, rows compare by identity. */
  async inorder(url) {
    const { createClient, model } = await import('inorder');
    const client = createClient({ url, models: { row: model({ reduce: 'merge' }) }, flush: 'frame' });
    const rows = client.topic('rows');
    return function Table() {
      const all = useSyncExternalStore(rows.subscribe, rows.getSnapshot);
      return h(
        'tbody',
        {},
        [...all].map(([name, snapshot]) => h(Row, { key: name, name, snapshot })),
      );
    };
  },

  /** A socket in an effect, a state that each event sets; React joins what one message sets. */
  async naive(url) {
    const NaiveRow = memo(({ name, row }) => h('tr', { id: name }, cells(row, row.seq)));
    return function Table() {
      const [rows, setRows] = useState({});
      useEffect(() => {
        const socket = new WebSocket(url, 'inorder.v1.json');
        socket.onopen = () => {
          socket.send(JSON.stringify({ type: 'hello' }));
          socket.send(JSON.stringify({ type: 'subscribe', request: 1, entities: [{ entity: 'topic/rows' }] }));
        };
        socket.onmessage = ({ data }) => {
          const parsed = JSON.parse(data);
          for (const frame of Array.isArray(parsed) ? parsed : [parsed]) {
            if (!frame.entity?.startsWith('row/')) continue;
            setRows((before) => ({
              ...before,
              [frame.entity]: { ...before[frame.entity], ...frame.data, seq: frame.seq },
            }));
          }
        };
        return () => socket.close();
      }, []);
      return h(
        'tbody',
        {},
        Object.entries(rows).map(([name, row]) => h(NaiveRow, { key: name, name, row })),
      );
    };
  },

  /** Nothing arrives: what the machine itself costs. */
  async nothing() {
    return () => h('tbody');
  },
};

/** What is not caught here would end the page without a word. */
class Boundary extends Component {
  componentDidCatch(error) {
    throw error;
  }

  render() {
    return this.props.children;
  }
}

const watched = { frames: [], tasks: [], delays: [], on: false };

globalThis.open = async (which, url) => {
  const Table = await tables[which](url);
  createRoot(document.getElementById('root')).render(
    h(Boundary, {}, h('button', { id: 'press' }, 'Press'), h('table', {}, h(Table))),
  );
};

/** The numbers that the table shows; an event that was lost or not drawn yet is missing in their sum. */
globalThis.sumOfNumbers = () =>
  [...document.querySelectorAll('tr')].reduce((sum, { lastChild }) => sum + Number(lastChild.textContent), 0);

globalThis.rows = () => document.querySelectorAll('tr').length;

globalThis.watch = () => {
  watched.on = true;
  const frame = (at) => {
    if (!watched.on) return;
    watched.frames.push(at);
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) watched.tasks.push(duration);
  }).observe({ type: 'longtask' });
  // From the moment when the key was hit to the moment when the page hears of it.
  addEventListener('keydown', ({ timeStamp }) => watched.delays.push(performance.now() - timeStamp), { capture: true });
};

globalThis.report = () => {
  watched.on = false;
  const { frames, tasks, delays } = watched;
  const gaps = frames.slice(1).map((at, index) => at - frames[index]);
  return { gaps, tasks, delays };
};
