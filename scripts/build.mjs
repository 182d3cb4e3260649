// npm run build: sets up what is needed and builds the package, its reference, the page and the gateway.
//
//   npm run build -- package docs page gateway    only these
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setup } from './setup.mjs';
import { bin, isStopping, nativeCargo, nativeCargoEnv, root, run, stopOnSignals, targetDir } from './tools.mjs';

/** Builds the npm package into pkg/dist: wasm, glue, facade; prints what it weighs, and fails on too much if asked to. */
export const buildPackage = ({ check = false, debug = true, ...options } = {}) => {
  const args = [...(check ? ['--check'] : []), ...(debug ? [] : ['--without-debug'])];
  return run(process.execPath, [join(root, 'scripts/build-package.mjs'), ...args], { cwd: root, ...options });
};

/** Writes the reference of the JavaScript API into docs/api, from the public types and the guides. */
export const buildDocs = (options = {}) =>
  run(bin('typedoc'), ['--options', 'pkg/typedoc.json', '--logLevel', 'Warn'], { cwd: root, ...options });

/** Builds the demo's page into demo/dist; it imports the package, which must be built. */
export const buildPage = (options = {}) =>
  run(bin('vite'), ['build', 'demo', '--logLevel', 'warn'], { cwd: root, ...options });

/** Builds the gateway and returns its path. */
export async function buildGateway({ profile = 'release', ...options } = {}) {
  const args = ['build', '--locked', '--package', 'inorder-gateway', ...(profile === 'release' ? ['--release'] : [])];
  await run(nativeCargo(), args, { cwd: root, env: nativeCargoEnv(), ...options });
  return gatewayPath(profile);
}

/** Where cargo puts the gateway. */
export const gatewayPath = (profile) => join(targetDir, profile, 'inorder-gateway');

const PARTS = { package: buildPackage, docs: buildDocs, page: buildPage, gateway: () => buildGateway() };

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  stopOnSignals();
  const parts = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(PARTS);
  try {
    const unknown = parts.find((part) => !PARTS[part]);
    if (unknown) throw new Error(`unknown part ${unknown}; known: ${Object.keys(PARTS).join(', ')}`);
    await setup('build');
    for (const part of Object.keys(PARTS).filter((part) => parts.includes(part))) await PARTS[part]();
  } catch (error) {
    if (!isStopping()) console.error(`build: ${error.message}`);
    process.exitCode = 1;
  }
}
