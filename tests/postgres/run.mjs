// npm run test:postgres: several gateways on one PostgreSQL, killed in the middle of everything (G11).
//
//   npm run test:postgres                 50,000 events, 20 kills, copies put back, the rules' own tests on PostgreSQL
//   npm run test:postgres -- --short      what npm test runs; --built says that it has built the package and the gateway
//   npm run test:postgres -- --seed 7     what a run does is drawn from its seed; when it does it is not
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { buildGateway, buildPackage, gatewayPath } from '../../scripts/build.mjs';
import { setup } from '../../scripts/setup.mjs';
import { nativeCargo, nativeCargoEnv, root } from '../../scripts/tools.mjs';
import { Cluster } from './cluster.mjs';
import { Gateway } from './gateway.mjs';
import { audit, compare } from './ledger.mjs';
import { partitions } from './partitions.mjs';
import { throughProxy } from './proxy.mjs';
import { scaleTable, topicAtScale } from './topic.mjs';
import { Writers } from './writers.mjs';

const short = process.argv.includes('--short');
/** The package and the gateway are there already. */
const built = process.argv.includes('--built');
const seedAt = process.argv.indexOf('--seed');
const SEED = seedAt > 0 ? Number(process.argv[seedAt + 1]) : 1 + Math.floor(Math.random() * 1_000_000);
const EVENTS = short ? 1_500 : 50_000;
const KILLS = short ? 3 : 20;
const PAGES = short ? 4 : 8;
const WRITERS = 16;
const ENTITIES = 12;
const TOPIC = 'orders';
const MEMBERS = short ? 500 : 10_000;
const CHURN_S = short ? 2 : 10;
/** Within this time a page shows the truth again, in milliseconds. */
const RIGHT_MS = 40_000;

/** Loaded when the package that they are clients of is built. */
let Page, readTruth;

const counts = { passed: 0, failed: 0 };
const since = performance.now();
const seconds = (from = since) => ((performance.now() - from) / 1000).toFixed(1);

function check(name, wrong) {
  const bad = wrong.length > 0;
  counts[bad ? 'failed' : 'passed'] += 1;
  console.log(`${bad ? 'FAILED' : 'ok    '} ${name} (${seconds()} s)`);
  for (const line of wrong.slice(0, 10)) console.log(`         ${line}`);
  if (wrong.length > 10) console.log(`         and ${wrong.length - 10} more`);
}

const expect = (name, good, otherwise = 'it was not so') => check(name, good ? [] : [otherwise]);

async function pagesAre(name, pages, gateway) {
  const truth = await readTruth(gateway, TOPIC);
  const wrong = await Promise.all(
    pages.map(async (page) => (await page.settle(truth, RIGHT_MS)).map((what) => `${page.name}: ${what}`)),
  );
  check(`${name}: ${pages.length} pages show the ${truth.size} entities of the log`, wrong.flat());
}

/** Writers race, gateways are killed, pages move; then everything is compared. */
async function race(cluster, binary) {
  const gateways = [];
  for (let count = 0; count < 2; count += 1) {
    gateways.push(
      await Gateway.start(binary, '--database', cluster.url(), '--heartbeat', '0.5', '--log', 'warn,sqlx=error'),
    );
  }
  const writers = new Writers(gateways, { seed: SEED, topic: `topic/${TOPIC}`, count: ENTITIES });
  const pages = Array.from({ length: PAGES }, (_, page) => new Page(`page ${page + 1}`, gateways, TOPIC, page));
  const began = performance.now();
  const writing = writers.run(WRITERS, EVENTS);
  let kills = 0;
  let crashes = 0;
  while (writers.stored < EVENTS) {
    await sleep(20);
    if (kills < KILLS && writers.stored >= ((kills + 1) * EVENTS) / (KILLS + 1)) {
      const victim = gateways[kills % gateways.length];
      await victim.down('SIGKILL');
      kills += 1;
      // Once in the middle the database crashes as well.
      if (kills === Math.floor(KILLS / 2)) {
        await cluster.down('SIGQUIT');
        crashes += 1;
        await cluster.up();
      }
      await victim.up();
    }
  }
  await writing;
  const took = (performance.now() - began) / 1000;
  await pagesAre('after the kills', pages, gateways[0]);
  const log = audit(cluster, writers);
  const { wrong, events, byEntity } = log;
  check(`the log: ${events} events of ${byEntity.size} entities, 1 to n, once each, as answered`, wrong);
  check(
    'the same id has the same number',
    writers.contradictions.map((of) => JSON.stringify(of)),
  );
  check('pages: nothing that is not in the log, no hole, nothing twice, nothing back', compare(pages, log));
  const holes = pages.filter((page) => page.gaps > 0).map((page) => `${page.name}: ${page.gaps} gaps`);
  check('nothing was left out of the push, whichever batch was committed first', holes);
  const sum = (key) => pages.reduce((total, page) => total + page[key], 0);
  expect(
    'the pages moved',
    pages.every((page) => page.dials > 1),
  );
  console.log(`
  events stored        ${events}, by ${WRITERS} writers on ${ENTITIES} entities at a time, through ${gateways.length} gateways
  kills                ${kills} of gateways, ${crashes} of PostgreSQL
  posts sent again     ${writers.retries} without an answer, ${writers.again} though answered
  pages                ${pages.length}, ${sum('dials')} dials, ${sum('events')} events shown, ${sum('skips')} passed over some, ${sum('resets')} resets
  time                 ${took.toFixed(1)} s, ${Math.round(events / took)} events a second
`);
  return { gateways, writers, pages };
}

/** A gateway that hears nothing of the other's commits finds them by looking. */
async function deafness(cluster, binary, { gateways, writers }) {
  const deaf = await Gateway.start(binary, '--database', cluster.url(), '--log', 'warn', '--deaf');
  const page = new Page('a page of a deaf gateway', [deaf], TOPIC);
  await page.settle(await readTruth(deaf, TOPIC), RIGHT_MS);
  const before = page.events;
  for (let count = 0; count < 5; count += 1) {
    await writers.send(gateways[0].url, 'order/deaf', { id: `deaf-${count}`, data: { count } });
  }
  await writers.send(gateways[0].url, `topic/${TOPIC}`, { id: 'deaf', data: { add: ['order/deaf'] } });
  writers.sent.set('deaf', {});
  for (let count = 0; count < 5; count += 1) writers.sent.set(`deaf-${count}`, {});
  await pagesAre('a lost NOTIFY loses nothing', [page], deaf);
  check('and without a gap', page.violations);
  expect(
    'the page saw the change that was not announced',
    page.members().get('order/deaf')?.seq === 5 && page.events >= before,
  );
  page.close();
  await deaf.down();
}

/** The files of the whole cluster are put back beneath running gateways, which are not told. */
async function putBack(cluster, { gateways, writers, pages }, copy) {
  const before = (await gateways[0].get('/health')).epoch;
  const resets = pages.reduce((total, page) => total + page.resets, 0);
  const lost = writers.stored;
  await writers.run(4, writers.stored + (short ? 100 : 500));
  await pagesAre('before the copy', pages, gateways[1]);
  await cluster.down();
  rmSync(cluster.data, { recursive: true });
  cpSync(copy, cluster.data, { recursive: true, preserveTimestamps: true });
  cluster.own();
  await cluster.up();
  let epochs;
  // Each notices when it reaches the database again, one after the other.
  const isRenewed = await eventually(async () => {
    epochs = await Promise.all(gateways.map(async (gateway) => (await gateway.get('/health')).epoch));
    return epochs[0] && epochs[0] !== before && epochs[0] === epochs[1];
  });
  expect('a copy put back beneath running gateways: a new epoch, the same on both', isRenewed, epochs?.join(' '));
  // Numbers that pages have seen are given to other changes now.
  await writers.run(4, writers.stored + (short ? 100 : 500));
  await pagesAre('after the copy', pages, gateways[0]);
  const log = audit(cluster, writers);
  check('the log goes on, 1 to n, once each', log.wrong);
  check('pages were reset and mix no histories', compare(pages, log));
  const more = pages.reduce((total, page) => total + page.resets, 0) - resets;
  expect(`pages said so: ${more} resets`, more >= pages.length, `${more} resets`);
  return lost;
}

async function eventually(test) {
  for (const until = Date.now() + RIGHT_MS; Date.now() < until; await sleep(100)) {
    if (await test().catch(() => false)) return true;
  }
  return false;
}

/** Nobody looked while the copy was put back: the mark tells; a dump is noticed without one. */
async function whileAway(cluster, binary) {
  const log = (name) => ['--database', cluster.url(name), '--log', 'warn'];
  const mark = join(cluster.folder, 'mark');
  const epochOf = async (...args) => {
    const gateway = await Gateway.start(binary, ...args);
    const { epoch } = await gateway.get('/health');
    for (let count = 0; count < 3; count += 1) {
      await fetch(`${gateway.url}/entities/order/1/events`, { method: 'POST', body: '{"data":1}' });
    }
    await gateway.down('SIGTERM');
    return epoch;
  };
  const first = await epochOf(...log('away'), '--mark', mark);
  expect('a restart keeps its epoch', first === (await epochOf(...log('away'), '--mark', mark)));
  const dump = cluster.run('pg_dump', '-n', 'away', cluster.url());
  await cluster.down();
  const copy = join(cluster.folder, 'copy-away');
  cpSync(cluster.data, copy, { recursive: true, preserveTimestamps: true });
  await cluster.up();
  expect('nothing went back, nothing is renewed', first === (await epochOf(...log('away'), '--mark', mark)));
  await cluster.down();
  rmSync(cluster.data, { recursive: true });
  cpSync(copy, cluster.data, { recursive: true, preserveTimestamps: true });
  cluster.own();
  await cluster.up();
  const second = await epochOf(...log('away'), '--mark', mark);
  expect('a copy put back while no gateway ran: the mark tells, a new epoch', second !== first);
  cluster.sql('DROP SCHEMA away CASCADE');
  const file = join(cluster.folder, 'dump.sql');
  writeFileSync(file, dump);
  cluster.run('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', file, cluster.url());
  const third = await epochOf(...log('away'));
  expect('a dump that was loaded: a new epoch without any mark', third !== first && third !== second);
  expect('and only one', third === (await epochOf(...log('away'))));
  expect('the operator may ask for one', third !== (await epochOf(...log('away'), '--new-epoch')));
}

/** The gateway's own tests of G1 to G13, of sockets and topics, with PostgreSQL beneath. */
async function rules(cluster) {
  const args = ['test', '--locked', '--package', 'inorder-gateway', '--test', 'gateway', '--'];
  // Two put a log back in ways that only SQLite's has; here the run above does it.
  const skipped = ['g09', 'r39_a_cursor_does_not_reach_over_a_new_epoch'].flatMap((name) => ['--skip', name]);
  const chosen = ['rules::', 'sockets::', 'topics::', 'http::', 'operation::', ...skipped, '--test-threads', '2'];
  const env = { ...nativeCargoEnv(), INORDER_POSTGRES: cluster.url() };
  const child = spawn(nativeCargo(), [...args, ...chosen], { cwd: root, env, stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text) => (said += text));
  const [code] = await once(child, 'exit');
  const [, passed, failed] = said.match(/test result: .*?(\d+) passed; (\d+) failed/) ?? [];
  if (code !== 0) console.log(said);
  check(
    `the rules' own tests on PostgreSQL: ${passed} passed, ${failed} failed`,
    code === 0 && Number(passed) > 40 ? [] : ['see above'],
  );
}

async function main() {
  if (!built) {
    await setup('postgres');
    await buildPackage();
    await buildGateway({ profile: 'debug' });
  }
  ({ Page, readTruth } = await import('./pages.mjs'));
  console.log(`seed ${SEED}`);
  const binary = process.env.INORDER_GATEWAY ?? gatewayPath('debug');
  const cluster = await Cluster.start();
  let world;
  try {
    world = await race(cluster, binary);
    await deafness(cluster, binary, world);
    await partitions({ cluster, binary, check, expect });
    await throughProxy({ Page, readTruth, cluster, ...world, topic: TOPIC, check, expect });
    const scale = await topicAtScale({ Page, readTruth, ...world, size: MEMBERS, churn: CHURN_S, short });
    check(`a topic of ${MEMBERS}: right after each, and a resume costs what changed`, scale.wrong);
    console.log(`\n${scaleTable(scale.rows)}\n`);
    await cluster.down();
    const copy = join(cluster.folder, 'copy');
    cpSync(cluster.data, copy, { recursive: true, preserveTimestamps: true });
    await cluster.up();
    await putBack(cluster, world, copy);
    if (!short) {
      await whileAway(cluster, binary);
      await rules(cluster);
    }
  } catch (error) {
    check(`the run itself: ${error.stack}`, [...(world?.gateways ?? []).map((gateway) => gateway.said)]);
    if (!world?.gateways.length) counts.failed += 1;
  } finally {
    for (const page of world?.pages ?? []) page.close();
    world?.writers.close();
    for (const gateway of world?.gateways ?? []) await gateway.down();
    await cluster.remove();
  }
  console.log(`\n${counts.passed} passed, ${counts.failed} failed`);
  process.exit(counts.failed > 0 ? 1 : 0);
}

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
await main();
