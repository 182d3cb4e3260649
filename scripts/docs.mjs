// npm run docs: writes the reference of the JavaScript API into docs/api, from the public types and the guides.
import { setup } from './setup.mjs';
import { bin, isStopping, root, run, stopOnSignals } from './tools.mjs';

stopOnSignals();
try {
  await setup('docs');
  await run(bin('typedoc'), ['--options', 'pkg/typedoc.json'], { cwd: root });
} catch (error) {
  if (!isStopping()) console.error(`docs: ${error.message}`);
  process.exitCode = 1;
}
