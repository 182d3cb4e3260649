// npm run audit: what inorder depends on. cargo-deny checks licences, bans and sources of all crates by deny.toml; npm is
// asked for known vulnerabilities of what the package brings to its users.
//
// Ends with `N passed, N failed`. A registry that does not answer is neither: it is said.
import { join } from 'node:path';
import { setup } from './setup.mjs';
import * as tools from './tools.mjs';

const { nativeCargoEnv, root } = tools;

const MANIFESTS = ['Cargo.toml', 'fuzz/Cargo.toml'];

/** npm is given this long to answer. */
const NPM_TIMEOUT_MS = 60_000;

const counts = { passed: 0, failed: 0 };
const count = (ok, said) => {
  counts[ok ? 'passed' : 'failed'] += 1;
  console.log(`${ok ? 'ok    ' : 'FAILED'} ${said}`);
};

async function crates(manifest) {
  const lines = [];
  const { code } = await tools.start(
    tools.cargoTools['cargo-deny'].path,
    ['--locked', '--workspace', '--manifest-path', join(root, manifest), 'check', 'bans', 'licenses', 'sources'],
    { cwd: root, env: nativeCargoEnv({ CARGO: tools.nativeCargo() }), onLine: (line) => lines.push(line) },
  ).done;
  const verdicts = [...(lines.at(-1) ?? '').matchAll(/(bans|licenses|sources) (\w+)/g)];
  if (code !== 0) console.log(lines.join('\n'));
  if (verdicts.length !== 3) return count(false, `${manifest}: cargo-deny gave no verdict`);
  for (const [, what, verdict] of verdicts) count(verdict === 'ok', `${manifest}: ${what}`);
}

async function packages() {
  const lines = [];
  const onLine = (line, stream) => stream === 'stdout' && lines.push(line);
  await tools.start('npm', ['audit', '--omit=dev', '--json'], { cwd: root, onLine, timeoutMs: NPM_TIMEOUT_MS }).done;
  let report;
  try {
    report = JSON.parse(lines.join('\n'));
  } catch {
    report = {};
  }
  const { vulnerabilities, dependencies } = report.metadata ?? {};
  if (!vulnerabilities)
    return console.log('no answer: npm audit: the registry was asked and says nothing of vulnerabilities');
  // The package itself is counted.
  const brought = dependencies.prod - 1;
  // Of nothing npm asks nothing.
  if (brought <= 0) return count(true, 'package.json: the package brings no other package, so none can be vulnerable');
  count(
    vulnerabilities.total === 0,
    `package.json: ${vulnerabilities.total} known vulnerabilities in ${brought} packages`,
  );
}

async function main() {
  await setup('audit');
  for (const manifest of MANIFESTS) await crates(manifest);
  await packages();
  console.log(`${counts.passed} passed, ${counts.failed} failed`);
  if (counts.failed > 0) process.exitCode = 1;
}

tools.stopOnSignals();
main().catch((error) => {
  if (!tools.isStopping()) console.error(`audit: ${error.message}`);
  process.exitCode = 1;
});
