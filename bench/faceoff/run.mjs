// npm run faceoff: who shows a wrong state? Prints a table and writes bench/results/faceoff.json.
//
//   npm run faceoff -- nats cut        only these contenders and faults
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { buildGateway, buildPackage } from '../../scripts/build.mjs';
import { setup } from '../../scripts/setup.mjs';
import { isStopping, root, stopAll, stopOnSignals } from '../../scripts/tools.mjs';
import { keep } from '../keep.mjs';
import { table } from '../table.mjs';
import { FAULTS } from './faults.mjs';

stopOnSignals();

const ORDERED_PIPE = 'its transport keeps order and loses nothing, and it numbers nothing that its client would check';

/** Who takes part with what, and what lies outside of their contracts. */
const CONTENDERS = {
  inorder: {
    title: 'inorder and its gateway',
    faults: ['drop', 'tail', 'swap', 'duplicate', 'stale', 'late', 'epoch', 'half-open', 'cut'],
    outside: { forgotten: 'no server-side subscription outlives a socket' },
  },
  nats: {
    title: 'NATS JetStream ordered consumer',
    faults: ['drop', 'tail', 'swap', 'duplicate', 'stale', 'late', 'half-open', 'cut', 'forgotten'],
    outside: { epoch: 'a stream that is restored from a backup goes back without a sign that a client could see' },
  },
  socketio: {
    title: 'socket.io, connection state recovery',
    faults: ['epoch', 'half-open', 'cut'],
    outside: { 'drop, tail, swap, duplicate, stale, late': ORDERED_PIPE, forgotten: 'there is nothing to forget' },
  },
  centrifuge: {
    title: 'centrifuge',
    faults: ['epoch', 'half-open', 'cut'],
    outside: {
      'drop, tail, swap, duplicate, stale, late':
        'the server compares positions with its broker and ends the subscription',
      forgotten: 'the server says so in its protocol',
    },
  },
  azure: {
    title: '@azure/web-pubsub-client, reliable protocol',
    faults: ['duplicate', 'stale', 'late', 'epoch', 'half-open', 'cut'],
    outside: {
      'drop, tail, swap': 'the service sends in order and repeats what was not acknowledged',
      forgotten: 'as above',
    },
  },
};

async function main() {
  await setup('bench');
  if (!existsSync(join(root, 'pkg/dist/index.js'))) await buildPackage();
  await buildGateway({ profile: 'debug' });
  const words = process.argv.slice(2);
  const among = (all) => {
    const named = words.filter((word) => all.includes(word));
    return named.length ? named : all;
  };
  const { trial } = await import('./trial.mjs');
  const results = [];
  for (const key of among(Object.keys(CONTENDERS))) {
    const contender = await import(`./contenders/${key}.mjs`);
    for (const fault of CONTENDERS[key].faults.filter((fault) => among(Object.keys(FAULTS)).includes(fault))) {
      process.stderr.write(`\r  ${key}: ${fault}`.padEnd(40));
      results.push({ contender: key, fault, ...(await trial(contender, fault)) });
    }
  }
  process.stderr.write('\n');
  console.log(
    table(
      ['client', 'fault', 'wrong states', 'lost', 'duplicates', 'seconds', 'bytes again', ''],
      results.map(({ contender, fault, wrong, lost, duplicates, seconds, bytes, isDone }) => [
        contender,
        fault,
        wrong,
        lost,
        duplicates,
        seconds === undefined ? 'never' : seconds.toFixed(2),
        bytes,
        isDone ? '' : 'did not end at the final state',
      ]),
    ),
  );
  const lock = (folder) => JSON.parse(readFileSync(join(root, folder, 'package-lock.json'), 'utf8')).packages;
  const peers = Object.keys(lock('bench')[''].dependencies);
  const versions = Object.fromEntries(peers.map((name) => [name, lock('bench')[`node_modules/${name}`].version]));
  console.log(`\nwritten to ${await keep('faceoff', { versions, contenders: CONTENDERS, faults: FAULTS, results })}`);
  const ours = results.filter(({ contender }) => contender === 'inorder');
  if (ours.some(({ wrong, duplicates, isDone }) => wrong || duplicates || !isDone)) process.exitCode = 1;
  await stopAll();
}

main()
  .catch((error) => {
    if (!isStopping()) console.error(`faceoff: ${error.stack}`);
    process.exitCode = 1;
  })
  .finally(() => setTimeout(() => process.exit(), 200));
