// What is in the packed package, and what the two tools say that know how packages go wrong.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../../scripts/tools.mjs';

/** All that may be in the package. */
const PACKED = [
  /^package\.json$/,
  /^(README|CHANGELOG)\.md$/,
  /^LICENSE-(MIT|APACHE)$/,
  /^docs\/\w+\.md$/,
  /^pkg\/dist\/(debug\/)?\w+\.(js|js\.map|d\.ts|wasm)$/,
];

/** The files that package.json says the package has. */
export function promised() {
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const targets = Object.values(exports).flatMap((target) =>
    typeof target === 'string' ? target : Object.values(target),
  );
  return [...new Set(targets)].map((target) => target.replace(/^\.\//, ''));
}

/** Packs the package into a folder; returns the archive's path and the names of the files in it. */
export function pack(folder) {
  const args = ['pack', '--ignore-scripts', '--json', '--pack-destination', folder];
  const [{ filename, files }] = JSON.parse(execFileSync('npm', args, { cwd: root, encoding: 'utf8' }));
  return { path: join(folder, filename), files: files.map(({ path }) => path) };
}

/** What is wrong with the files in the package. */
export function judgeFiles(files) {
  const pages = readFileSync(join(root, 'README.md'), 'utf8').matchAll(/\]\((docs\/\w+\.md)\)/g);
  const needed = [
    // Who reads the README in node_modules can read on.
    ...[...pages].map(([, page]) => page),
    ...['package.json', 'README.md', 'CHANGELOG.md', 'LICENSE-MIT', 'LICENSE-APACHE'],
    ...promised(),
    ...files.filter((file) => file.endsWith('.js')).map((file) => `${file}.map`),
  ];
  return [
    ...files.filter((file) => !PACKED.some((pattern) => pattern.test(file))).map((file) => `${file} does not belong`),
    ...needed.filter((file) => !files.includes(file)).map((file) => `${file} is missing`),
  ];
}

/** The linters of packages: the package that brings each, and its command. */
export const LINTERS = [
  ['publint', ['publint', 'run', 'ARCHIVE', '--strict']],
  // A wasm file has no types.
  ['@arethetypeswrong/cli', ['attw', 'ARCHIVE', '--profile', 'esm-only', '--exclude-entrypoints', 'inorder.wasm']],
];
