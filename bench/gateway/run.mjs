// npm run bench:gateway: how many events are committed and fanned out, how many sockets are held, and what limits it.
//
//   npm run bench:gateway                      everything, some minutes
//   npm run bench:gateway -- sockets=2000      with fewer sockets
//   npm run bench:gateway -- postgres=no       without PostgreSQL
//   npm run bench:gateway -- only=postgres     gateways on one PostgreSQL, and what partitions of its log buy
//   npm run bench:gateway -- gateway=PATH      another build of the gateway
//
// Servers, producers and receivers are processes of their own. The broadcaster is Node with `ws`, without a log.
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, mkdtempSync, rmSync } from 'node:fs';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { buildGateway, gatewayPath } from '../../scripts/build.mjs';
import { setup } from '../../scripts/setup.mjs';
import { stopOnSignals } from '../../scripts/tools.mjs';
import { table } from '../table.mjs';
import { Cluster } from '../../tests/postgres/cluster.mjs';
import { Gateway } from '../../tests/postgres/gateway.mjs';

const options = Object.fromEntries(process.argv.slice(2).map((arg) => arg.split('=')));
const SOCKETS = Number(options.sockets ?? 10_000);
const here = import.meta.dirname;
const folder = mkdtempSync(join(tmpdir(), 'inorder-bench-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

/** Connections that post; so many events are on their way at a time. */
const CONNECTIONS = 64;
/** Sockets on one entity, and events of a run: so many deliveries that each run takes seconds. */
const FAN_OUTS = [
  { sockets: 1, events: 15_000 },
  { sockets: 100, events: 4_000 },
  { sockets: 1_000, events: 300 },
];
/** What a commit waits for: the disk as it is, and microseconds more for each flush of PostgreSQL's log. */
const FLUSHES = [
  { delay: 0, events: 4_000 },
  { delay: 5_000, events: 2_000 },
];
const COMMITS = [
  { writers: 16, entities: 64 },
  { writers: 64, entities: 64 },
  { writers: 16, entities: 1 },
];
const PARTITIONS = [1, 4, 8];
/** Nothing takes longer; what is lost is said. */
const PATIENCE_MS = 120_000;
/** The kernel's clock ticks a second, in /proc. */
const TICKS = 100;

const number = (value, digits = 0) =>
  value === undefined
    ? ''
    : value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });

const print = (head, rows) => console.log(`\n${table(head, rows)}\n`);

/** CPU seconds that a process has used. */
function cpuOf(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

/** Memory of a process, in bytes. */
const memoryOf = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))[1]) * 1024;

/** A process of this folder that is told what to do. */
class Helper {
  static start(file) {
    const helper = new Helper();
    helper.process = fork(join(here, file), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    return helper;
  }

  async ask(deed, of = {}) {
    this.process.send({ deed, ...of });
    const [answer] = await once(this.process, 'message');
    if (answer.error) throw new Error(answer.error);
    return answer;
  }

  get cpu() {
    return cpuOf(this.process.pid);
  }

  async end() {
    if (this.process.connected) this.process.disconnect();
    if (this.process.exitCode === null) await once(this.process, 'exit');
  }
}

/** The broadcaster as a server with the same handles as a gateway. */
async function startBroadcaster() {
  const child = spawn(process.execPath, [join(here, 'broadcaster.mjs')], { stdio: ['ignore', 'pipe', 'inherit'] });
  process.once('exit', () => child.kill());
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  const end = async () => {
    child.kill();
    await once(child, 'exit');
  };
  return { ports: [Number(/(\d+)$/.exec(line)[1])], pids: [child.pid], end };
}

async function startGateways(count, ...args) {
  const gateways = [];
  for (let made = 0; made < count; made += 1) {
    gateways.push(await Gateway.start(options.gateway ?? gatewayPath('release'), '--log', 'warn', ...args));
  }
  return {
    gateways,
    ports: gateways.map(({ port }) => port),
    pids: gateways.map(({ pid }) => pid),
    end: () => Promise.all(gateways.map((gateway) => gateway.down('SIGKILL'))),
  };
}

let logs = 0;
const onFile = () => startGateways(1, '--database', join(folder, `log-${(logs += 1)}.db`));

const quantile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

/** Opens sockets, posts events, waits until all have arrived. */
async function run(start, { sockets, entities, events, perSecond = 0, database }) {
  const server = await start();
  const receivers = Helper.start('receivers.mjs');
  const producers = Helper.start('producers.mjs');
  try {
    await sleep(300);
    const empty = server.pids.map(memoryOf);
    const opening = performance.now();
    await receivers.ask('open', { ports: server.ports, sockets, entities });
    const opened = performance.now() - opening;
    await sleep(500);
    const held = server.pids.map(memoryOf);
    await receivers.ask('begin');
    const cpu = {
      server: server.pids.map(cpuOf),
      receivers: receivers.cpu,
      producers: producers.cpu,
      database: database?.cpu(),
    };
    const since = performance.now();
    const posting = producers.ask('run', {
      ports: server.ports,
      connections: CONNECTIONS,
      events,
      entities,
      perSecond,
      name: `${events}`,
    });
    const wanted = (events * sockets) / entities;
    let read = await receivers.ask('read', {});
    while (read.events < wanted && performance.now() - since < PATIENCE_MS && read.broken === 0) {
      await sleep(20);
      read = await receivers.ask('read', {});
    }
    const { began, posted } = await posting;
    const took = (read.at - began) / 1e6;
    const { latencies, bytes, messages, broken } = await receivers.ask('read', { full: true });
    latencies.sort((a, b) => a - b);
    const metrics = await Promise.all((server.gateways ?? []).map((gateway) => gateway.metrics()));
    const counted = (name) => metrics.reduce((total, of) => total + of[name], 0);
    const sum = (list) => list.reduce((total, value) => total + value, 0);
    const spent = (name, after) => (after - cpu[name]) / took;
    return {
      opened,
      perSocket: (sum(held) - sum(empty)) / sockets,
      eventsPerSecond: posted / took,
      deliveriesPerSecond: read.events / took,
      lost: wanted - read.events,
      broken,
      p50: quantile(latencies, 0.5) / 1_000,
      p99: quantile(latencies, 0.99) / 1_000,
      perMessage: read.events / messages,
      perCommit: metrics.length > 0 ? counted('inorder_events_total') / counted('inorder_batches_total') : undefined,
      bytesPerEvent: bytes / read.events,
      cores: {
        server: (sum(server.pids.map(cpuOf)) - sum(cpu.server)) / took,
        database: database && (database.cpu() - cpu.database) / took,
        receivers: spent('receivers', receivers.cpu),
        producers: spent('producers', producers.cpu),
      },
    };
  } finally {
    await receivers.end();
    await producers.end();
    await server.end();
  }
}

const FLOW = [
  'events/s',
  'deliveries/s',
  'events/commit',
  'events/message',
  'p50 ms',
  'p99 ms',
  'cores: server',
  'database',
  'receivers',
  'producers',
  'lost',
];
const flow = (result) => [
  number(result.eventsPerSecond),
  number(result.deliveriesPerSecond),
  number(result.perCommit, 1),
  number(result.perMessage, 1),
  number(result.p50, 1),
  number(result.p99, 1),
  number(result.cores.server, 2),
  number(result.cores.database, 2),
  number(result.cores.receivers, 2),
  number(result.cores.producers, 2),
  number(result.lost + result.broken),
];

/** Writers without anyone who looks, on entities that are spread over the partitions. */
async function commit(cluster, { gateways, partitions, writers, events, entities }) {
  const url = cluster.url(`commits_${(logs += 1)}`);
  const server = await startGateways(gateways, '--database', url, '--partitions', String(partitions));
  const producers = Helper.start('producers.mjs');
  try {
    const run = (count) => {
      const of = { ports: server.ports, connections: writers, events: count, entities, perSecond: 0, name: `${count}` };
      return producers.ask('run', of);
    };
    // Plans are made and entities too.
    await run(events / 10);
    const batches = async () => {
      const metrics = await Promise.all(server.gateways.map((gateway) => gateway.metrics()));
      return metrics.reduce((total, of) => total + of.inorder_batches_total, 0);
    };
    const before = { batches: await batches(), server: server.pids.map(cpuOf), database: cluster.cpu() };
    const { began, ended, posted, wait } = await run(events);
    const took = (ended - began) / 1e6;
    const sum = (list) => list.reduce((total, value) => total + value, 0);
    return [
      number(posted / took),
      number(posted / ((await batches()) - before.batches), 1),
      number(wait.p50 / 1_000, 1),
      number(wait.p99 / 1_000, 1),
      number((sum(server.pids.map(cpuOf)) - sum(before.server)) / took, 2),
      number((cluster.cpu() - before.database) / took, 2),
      loadavg()[0].toFixed(1),
    ];
  } finally {
    await producers.end();
    await server.end();
  }
}

/** How many events are committed, by partitions, gateways, and what a flush takes. */
async function commits(cluster) {
  const head = [
    'writers',
    'entities',
    'gateways',
    'partitions',
    'events/s',
    'events/commit',
    'answer p50 ms',
    'p99 ms',
    "gateways' cores",
    "PostgreSQL's",
    'load',
  ];
  for (const { delay, events } of FLUSHES) {
    for (const [name, value] of Object.entries({ commit_delay: delay, commit_siblings: 0 })) {
      cluster.sql(`ALTER SYSTEM SET ${name} = ${value}`);
    }
    cluster.sql('SELECT pg_reload_conf()');
    console.log(`Commits, nobody looking; ${delay / 1_000} ms more for each flush.`);
    const rows = [];
    for (const { writers, entities } of COMMITS) {
      for (const gateways of [1, 2, 4]) {
        for (const partitions of PARTITIONS) {
          const result = await commit(cluster, { gateways, partitions, writers, events, entities });
          rows.push([writers, entities, gateways, partitions, ...result]);
        }
      }
    }
    print(head, rows);
  }
}

/** Several gateways push what is committed through either. */
async function fanOut(cluster) {
  console.log('Several gateways on one PostgreSQL (fsync on), 100 sockets spread over them.');
  const shared = [];
  for (const count of [1, 2]) {
    const start = () => startGateways(count, '--database', cluster.url(`bench_${count}`));
    const result = await run(start, { sockets: 100, entities: 1, events: 6_000, database: cluster });
    shared.push([`${count} gateway${count > 1 ? 's' : ''}, one entity`, ...flow(result)]);
    const apart = () => startGateways(count, '--database', cluster.url(`bench_apart_${count}`));
    const spread = await run(apart, { sockets: 100, entities: 50, events: 6_000, database: cluster });
    shared.push([`${count} gateway${count > 1 ? 's' : ''}, 50 entities`, ...flow(spread)]);
  }
  print(['', ...FLOW], shared);
}

async function onPostgres(act) {
  const cluster = await Cluster.start();
  try {
    await act(cluster);
  } finally {
    await cluster.remove();
  }
}

async function main() {
  const postgres = options.postgres !== 'no';
  if (options.built === undefined && options.gateway === undefined) {
    await setup(postgres ? 'postgres' : 'build');
    await buildGateway();
  }
  const load = () => loadavg()[0].toFixed(1);
  console.log(`${cpus().length} cores of ${cpus()[0].model}; load average at the beginning ${load()}`);
  if (options.only !== 'postgres') await alone();
  if (postgres) {
    await onPostgres(fanOut);
    await onPostgres(commits);
  }
  console.log(`load average at the end ${load()}`);
}

/** One gateway beside the broadcaster. */
async function alone() {
  const servers = [
    ['Node and ws, no log', startBroadcaster],
    ['gateway, SQLite', onFile],
  ];

  console.log(
    `\nAs fast as ${CONNECTIONS} connections post, all sockets on one entity. Times are from post to arrival, commit included.`,
  );
  const full = [];
  for (const { sockets, events } of FAN_OUTS) {
    for (const [name, start] of servers) {
      full.push([
        `${name}, ${number(sockets)} socket${sockets > 1 ? 's' : ''}`,
        ...flow(await run(start, { sockets, entities: 1, events })),
      ]);
    }
  }
  print(['', ...FLOW], full);

  console.log('At a pace that all can keep: 200 events a second to 100 sockets each.');
  const paced = [];
  for (const [name, start] of servers) {
    paced.push([name, ...flow(await run(start, { sockets: 100, entities: 1, events: 1_600, perSecond: 200 }))]);
  }
  print(['', ...FLOW], paced);

  console.log(`${number(SOCKETS)} sockets in one process, 100 entities, 50 events a second.`);
  const many = [];
  for (const [name, start] of servers) {
    const result = await run(start, { sockets: SOCKETS, entities: 100, events: 500, perSecond: 50 });
    many.push([name, number(result.opened / 1_000, 1), number(result.perSocket / 1024, 1), ...flow(result)]);
  }
  print(['', 's to open', 'KiB/socket', ...FLOW], many);
}

stopOnSignals();
await main();
