// npm run storm: a gateway goes away under 100,000 clients and comes back; prints how they dial, and draws it.
//
//   npm run storm                          100,000 clients, away for 60 s
//   npm run storm -- clients=10000 away=20000
//   npm run storm -- picture=docs/storm.svg    where the picture goes; bench/results/storm.svg without it
//
// Time is simulated. inorder's dials come from its core (examples/storm.rs), the others' from their own code.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { setup } from '../../scripts/setup.mjs';
import { capture, isStopping, nativeCargo, nativeCargoEnv, root, stopOnSignals } from '../../scripts/tools.mjs';
import { keep } from '../keep.mjs';
import { table } from '../table.mjs';
import { draw } from './drawing.mjs';

/** More dials than this in one piece of time are a storm, in percent of the clients. */
const GATE = 2;

/** Draws what the others draw by chance, the same in each run. */
const SEED = 1;

stopOnSignals();
const options = Object.fromEntries(process.argv.slice(2).map((arg) => arg.split('=')));

/** A small generator of numbers from 0 to 1 (mulberry32). */
function seeded(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

async function main() {
  await setup('bench');
  const args = [options.clients ?? '100000', options.away ?? '60000'];
  const output = capture(
    nativeCargo(),
    ['run', '--locked', '--release', '--quiet', '--example', 'storm', '--', ...args],
    { cwd: root, env: nativeCargoEnv(), maxBuffer: 64 << 20 },
  );
  if (output === undefined) throw new Error('examples/storm.rs did not run');
  const { dials, ...storm } = JSON.parse(output);
  // Only now: these need the peers to be installed.
  const { PEERS, dialsOf } = await import('./peers.mjs');
  Math.random = seeded(SEED);
  const all = { inorder: dials };
  for (const [name, makeClient] of Object.entries(PEERS)) all[name] = dialsOf(makeClient, storm);

  const version = (name) => {
    const lock = name === 'inorder' ? 'package-lock.json' : 'bench/package-lock.json';
    const { packages } = JSON.parse(readFileSync(join(root, lock), 'utf8'));
    return (packages[name === 'inorder' ? '' : `node_modules/${name}`] ?? {}).version;
  };
  const back = Math.floor(storm.away / storm.piece);
  const percent = (count) => (100 * count) / storm.clients;
  const results = Object.entries(all).map(([name, counts]) => {
    const after = counts.slice(back);
    let in99 = 0;
    for (let sum = 0; in99 < after.length && sum < 0.99 * storm.clients; in99++) sum += after[in99];
    const peak = Math.max(...after);
    return {
      name,
      version: version(name),
      peak: percent(peak),
      peakAt: after.indexOf(peak) * storm.piece,
      shares: after.map(percent),
      in99: in99 * storm.piece,
      in100: after.length * storm.piece,
      inVain: counts.slice(0, back).reduce((sum, count) => sum + count, 0) / storm.clients,
      peakInVain: percent(Math.max(...counts.slice(0, back))),
    };
  });
  const seconds = (ms) => (ms / 1_000).toFixed(1);
  console.log(
    `\n${storm.clients.toLocaleString('en')} clients, gateway away for ${storm.away / 1_000} s; after it came back:\n`,
  );
  console.log(
    table(
      [
        'client',
        'peak per 100 ms',
        'after s',
        '99 % back after s',
        'all after s',
        'dials in vain each',
        'peak while away',
      ],
      results.map(({ name, version, peak, peakAt, in99, in100, inVain, peakInVain }) => [
        `${name} ${version}`,
        `${peak.toFixed(2)} %`,
        seconds(peakAt),
        seconds(in99),
        seconds(in100),
        inVain.toFixed(1),
        `${peakInVain.toFixed(1)} %`,
      ]),
    ),
  );
  const file = resolve(root, options.picture ?? 'bench/results/storm.svg');
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, draw(results, { ...storm, gate: GATE }));
  const holds = results[0].peak <= GATE;
  console.log(`\ndrawn in ${file}\nwritten to ${await keep('storm', { ...storm, load: loadavg()[0], results })}`);
  console.log(`inorder's peak is ${holds ? 'at most' : 'MORE THAN'} ${GATE} %`);
  if (!holds) process.exitCode = 1;
}

main().catch((error) => {
  if (!isStopping()) console.error(`storm: ${error.stack}`);
  process.exitCode = 1;
});
