// inorder with the reference gateway.
import { WebSocket } from 'ws';
import { createClient, model } from '../../../pkg/dist/index.js';
import { gatewayPath } from '../../../scripts/build.mjs';
import { start, stop } from '../../../scripts/tools.mjs';

export const split = (text) => {
  const frames = JSON.parse(text);
  return (Array.isArray(frames) ? frames : [frames]).map((frame) => JSON.stringify(frame));
};
export const join = (texts) => [texts.length === 1 ? texts[0] : `[${texts.join()}]`];
export const isEvent = (text) => /"type":"(event|replay)"/.test(text);

export async function serve(entity) {
  let found;
  const address = new Promise((resolve) => (found = resolve));
  const gateway = start(
    gatewayPath('debug'),
    ['--open', '--port', '0', '--workload', 'none', '--faults', '--heartbeat', '5', '--reduce', 'job=replace'],
    {
      onLine(line) {
        const base = line.match(/listening on (http:\/\/\S+)/)?.[1];
        if (base) found(base);
      },
    },
  );
  const ended = gateway.done.then(({ code }) => Promise.reject(new Error(`the gateway ended with ${code}`)));
  ended.catch(() => {});
  const base = await Promise.race([address, ended]);
  const post = async (path, body) => {
    const answer = await fetch(`${base}${path}`, { method: 'POST', body: body && JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  };
  return {
    url: `${base.replace('http', 'ws')}/ws`,
    publish: (state) => post(`/entities/job/${entity}/events`, { status: state.status, data: state }),
    loseHistory: () => post('/faults/new_epoch?events=3'),
    stop: () => stop(gateway),
  };
}

export async function follow(way, entity, show) {
  const client = createClient({ url: way.url, WebSocket, flush: 'sync', models: { job: model() } });
  client.on('change', ({ state }) => show(state));
  client.on('error', () => {});
  const job = client.entity(`job/${entity}`);
  job.subscribe(() => {});
  while (job.getSnapshot().sync !== 'live') await new Promise((resolve) => setTimeout(resolve, 5));
  return () => client.close();
}
