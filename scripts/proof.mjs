// npm run proof: a million simulated worlds, small ones visited completely, and the planted faults with who noticed
// each; then the fuzzers for ten minutes.
//
//   npm run proof -- 5000000    so many worlds instead
import { setup } from './setup.mjs';
import { isStopping, nativeCargo, nativeCargoEnv, root, run, stopOnSignals } from './tools.mjs';

stopOnSignals();

const WORLDS = '1000000';

async function main() {
  await setup('proof');
  const cargo = (...args) => run(nativeCargo(), args, { cwd: root, env: nativeCargoEnv() });
  await cargo('run', '--release', '--locked', '--quiet', '--example', 'proof', '--', process.argv[2] ?? WORLDS);
  await cargo('run', '--release', '--locked', '--quiet', '--example', 'proof', '--', 'exhaustive');
  await cargo('test', '--release', '--locked', '--quiet', '--features', 'zoo', '--test', 'zoo', '--', '--nocapture');
  await run(process.execPath, ['scripts/fuzz.mjs', '--seconds', '600', '--asan'], { cwd: root });
}

main().catch((error) => {
  if (isStopping()) return;
  console.error(`proof: ${error.message}`);
  process.exitCode = 1;
});
