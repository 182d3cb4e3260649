// npm run docs: writes the reference of the JavaScript API. `npm run build` does it too, but needs compilers for the rest.
import { buildDocs } from './build.mjs';
import { setup } from './setup.mjs';
import { isStopping, stopOnSignals } from './tools.mjs';

stopOnSignals();
try {
  await setup('docs');
  await buildDocs();
} catch (error) {
  if (!isStopping()) console.error(`docs: ${error.message}`);
  process.exitCode = 1;
}
