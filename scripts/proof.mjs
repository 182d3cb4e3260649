// npm run proof: a million simulated worlds, small ones visited completely, the planted faults with who noticed each,
// and 50,000 traces compared with those of the wasm in Chromium; then the fuzzers for ten minutes.
//
//   npm run proof -- 5000000    so many worlds instead (npm run proof:long)
import { buildPackage } from './build.mjs';
import { setup } from './setup.mjs';
import { isStopping, nativeCargo, nativeCargoEnv, root, run, stopOnSignals } from './tools.mjs';

stopOnSignals();

const WORLDS = '1000000';
const TRACES = '50000';

async function main() {
  await setup('proof');
  const cargo = (...args) => run(nativeCargo(), args, { cwd: root, env: nativeCargoEnv() });
  await cargo('run', '--release', '--locked', '--quiet', '--example', 'proof', '--', process.argv[2] ?? WORLDS);
  await cargo('run', '--release', '--locked', '--quiet', '--example', 'proof', '--', 'exhaustive');
  await cargo('test', '--release', '--locked', '--quiet', '--features', 'zoo', '--test', 'zoo', '--', '--nocapture');
  await buildPackage();
  await run(process.execPath, ['scripts/traces.mjs', TRACES], { cwd: root });
  await run(process.execPath, ['scripts/fuzz.mjs', '--seconds', '600', '--asan'], { cwd: root });
}

main().catch((error) => {
  if (isStopping()) return;
  console.error(`proof: ${error.message}`);
  process.exitCode = 1;
});
