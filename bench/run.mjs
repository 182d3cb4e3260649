// npm run bench: measures, prints tables, writes bench/results/bench.json, and fails when a gate does not hold.
//
//   npm run bench                          everything, about twenty minutes
//   npm run bench -- throughput            or `footprint`, `thread`
//   npm run bench -- thread --seconds=20   the main thread under 10,000 events/s, 60 s each without it
//   npm run bench -- throughput --only=W1 --runs=1 --passes=12    while working on something
import { existsSync, readFileSync } from 'node:fs';
import { cpus, loadavg, totalmem } from 'node:os';
import { join } from 'node:path';
import { buildPackage } from '../scripts/build.mjs';
import { setup } from '../scripts/setup.mjs';
import { isStopping, root, stopOnSignals } from '../scripts/tools.mjs';
import { keep } from './keep.mjs';

stopOnSignals();

const args = process.argv.slice(2);
const option = (name, value) => args.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3) ?? value;
const parts = args.filter((arg) => !arg.startsWith('--'));
const wanted = (part) => parts.length === 0 || parts.includes(part);

/** Above this many waiting programs the times tell more about them than about us. */
const BUSY = 1.5;

async function main() {
  await setup('bench');
  if (!existsSync(join(root, 'pkg/dist/index.js')) || !args.includes('--as-built')) await buildPackage();
  const load = loadavg()[0];
  if (load > BUSY) console.error(`bench: the machine is busy (load ${load.toFixed(1)}): times will spread`);
  const lock = (folder) => JSON.parse(readFileSync(join(root, folder, 'package-lock.json'), 'utf8')).packages;
  const peers = JSON.parse(readFileSync(join(root, 'bench/package.json'), 'utf8')).dependencies;
  const result = {
    date: new Date().toISOString().slice(0, 10),
    machine: { cpu: cpus()[0]?.model, cores: cpus().length, memory: `${Math.round(totalmem() / 2 ** 30)} GiB`, load },
    versions: {
      inorder: lock('')[''].version,
      ...Object.fromEntries(Object.keys(peers).map((name) => [name, lock('bench')[`node_modules/${name}`].version])),
    },
  };
  let holds = true;
  if (wanted('throughput')) {
    const { throughput } = await import('./throughput/run.mjs');
    const options = { only: option('only'), runs: +option('runs', 3), passes: +option('passes', 14) };
    result.throughput = await throughput(options, result);
    holds &&= result.throughput.holds;
  }
  if (wanted('footprint')) {
    const { footprint } = await import('./footprint/run.mjs');
    result.footprint = await footprint(result);
    holds &&= result.footprint.holds;
  }
  if (wanted('thread')) {
    const { thread } = await import('./thread/run.mjs');
    result.thread = await thread({ seconds: +option('seconds', 60) });
  }
  console.log(`\nwritten to ${await keep('bench', result)}`);
  console.log(holds ? 'all gates hold' : 'NOT all gates hold');
  if (!holds) process.exitCode = 1;
}

main().catch((error) => {
  if (!isStopping()) console.error(`bench: ${error.stack}`);
  process.exitCode = 1;
});
