// npm run format: formats the Rust, TypeScript, JavaScript, HTML and CSS of the clone.
import { setup } from './setup.mjs';
import { bin, isStopping, nativeCargo, nativeCargoEnv, root, run, stopOnSignals } from './tools.mjs';

stopOnSignals();
try {
  await setup('lint');
  await run(nativeCargo(), ['fmt', '--all'], { cwd: root, env: nativeCargoEnv() });
  await run(bin('prettier'), ['--write', '--log-level', 'warn', '.'], { cwd: root });
} catch (error) {
  if (!isStopping()) console.error(`format: ${error.message}`);
  process.exitCode = 1;
}
