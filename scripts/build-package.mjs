// Builds the npm package into pkg/dist: the core as wasm, the facade, types and source maps.
//
//   cargo ─▶ wasm-opt ─▶ text ─▶ a chunk of its own ─┐
//   pkg/src/*.ts ─────────────────────────▶ rolldown ┴─▶ terser ─▶ pkg/dist
//
// And the same for people who look for a fault, as `inorder/debug`: nothing is minified, and the wasm has its names, checks
// itself and says why it panics.
//
//   --check           fails when something weighs too much
//   --without-debug   leaves `inorder/debug` out: a first build is a minute faster
//
// Prints what it weighs; what is for debugging does not count.
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { rolldown } from 'rolldown';
import { minify } from 'terser';
import { root, run, stopOnSignals, wasmOpt, webCargo, webCargoEnv, webTargetDir } from './tools.mjs';

/** What the entry with everything it loads should weigh, in bytes after brotli. */
const AIM = 20_000;

/**
 * What it may weigh until it is there: a little more than it does. It is raised only where a fault is healed, or a mistake
 * gets its error.
 */
const LIMIT = 28_900;

/** What `inorder/react` may add, in bytes after brotli. */
const REACT_LIMIT = 1_200;

/**
 * Panics become traps without a message: 3 KB that nobody would read. The stack lies below the data, and a small one
 * makes addresses short; the deepest call takes 600 bytes, and an overflow still traps.
 */
const RUSTFLAGS = '-Zunstable-options -Cpanic=immediate-abort -Clink-arg=-zstack-size=4096';

/** What rustc's wasm32 target has, and no more: every engine that we support takes these. */
const FEATURES = [
  '--mvp-features',
  '--enable-bulk-memory',
  '--enable-bulk-memory-opt',
  '--enable-multivalue',
  '--enable-mutable-globals',
  '--enable-nontrapping-float-to-int',
  '--enable-reference-types',
  '--enable-sign-ext',
];

/** Properties that nobody outside sees end with `_`: the build gives them short names. */
const INTERNAL = /_$/;

const source = join(root, 'pkg/src');
const out = join(root, 'pkg/dist');
const work = join(webTargetDir, 'package');
const target = 'wasm32-unknown-unknown';

const cargoBuild = (args, env, options) =>
  run(
    webCargo(),
    ['build', '--locked', '--lib', '--target', target, '--no-default-features', '--quiet', '-Z', ...args],
    { cwd: root, env: webCargoEnv(env), ...options },
  );

/** Builds the wasm; returns the bytes. */
async function buildWasm(options) {
  const std = ['build-std=std,panic_abort', '-Z', 'build-std-features=optimize_for_size'];
  await cargoBuild([...std, '--profile', 'web'], { RUSTFLAGS }, options);
  const built = join(webTargetDir, target, 'web/inorder.wasm');
  const optimised = join(work, 'inorder.wasm');
  await run(wasmOpt(), [...FEATURES, '-Oz', '--converge', '--strip-producers', built, '-o', optimised], options);
  return readFile(optimised);
}

/** Builds the wasm of `inorder/debug`; its standard library is the one that the tests of the driver need anyway. */
async function buildDebugWasm(options) {
  await cargoBuild(['build-std=std,panic_abort,panic_unwind', '--features', 'messages'], {}, options);
  const built = join(webTargetDir, target, 'debug/inorder.wasm');
  const named = join(work, 'debug.wasm');
  await run(wasmOpt(), [...FEATURES, '--strip-dwarf', '--strip-producers', '-g', built, '-o', named], options);
  return readFile(named);
}

/** Printable characters that neither JavaScript nor HTML minds in a string. */
const DIGITS = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i)).filter((c) => !'"$\'<\\`'.includes(c));

/** Digits that begin a pair. */
const PAIRS = 2;

/** Writes bytes as plain text that compresses well; `pkg/src/unpack.ts` reads it and says why. */
export function pack(bytes) {
  const counts = new Uint32Array(256);
  for (const byte of bytes) counts[byte]++;
  const all = [...counts.keys()];
  const frequent = new Set(all.toSorted((a, b) => counts[b] - counts[a]).slice(0, DIGITS.length - PAIRS));
  const texts = [];
  let singles = PAIRS;
  let pairs = 0;
  for (const byte of all) {
    if (frequent.has(byte)) texts[byte] = DIGITS[singles++];
    else texts[byte] = DIGITS[Math.floor(pairs / DIGITS.length)] + DIGITS[pairs++ % DIGITS.length];
  }
  let mask = '';
  for (let byte = 0; byte < 256; byte += 4) {
    mask += [0, 1, 2, 3].reduce((bits, i) => bits | (Number(frequent.has(byte + i)) << i), 0).toString(16);
  }
  return mask + Array.from(bytes, (byte) => texts[byte]).join('');
}

/**
 * Makes each client a copy of `pkg/src/client/`: the folder is bundled by itself and wrapped into a function.
 *
 * So its files can be plain functions over variables, and the minifier shortens every name in them: properties of
 * classes would keep theirs. What the files share with other clients stays outside.
 */
export function perClient() {
  const id = join(source, 'client/client.ts');
  return {
    name: 'per-client',
    resolveId: (name) => (name === '#client' ? id : undefined),
    async load(name) {
      if (name !== id) return undefined;
      const build = await rolldown({
        input: id,
        platform: 'neutral',
        transform: { target: 'es2022' },
        external: (name, importer) =>
          name === '#given' || (importer && !join(importer, '..', name).startsWith(join(source, 'client/'))),
      });
      // Sources are named from the file that they stand for.
      const { output } = await build.generate({ dir: join(source, 'client'), format: 'esm', sourcemap: true });
      await build.close();
      const [{ code, map }] = output;
      const outside = [];
      let given;
      // Line by line, so that the map holds.
      const inside = code.split('\n').map((line) => {
        const [, names, from] = /^import (.*) from "(.*)";$/.exec(line) ?? [];
        if (from === undefined) return line.replace(/^export \{ client \};$/, 'return client;');
        if (from === '#given') given = names;
        else outside.push(line);
        return '';
      });
      if (!given || !inside.includes('return client;'))
        throw new Error(`the client's code has another shape:\n${code}`);
      const [first] = inside;
      inside[0] = `${outside.join(' ')} export function makeClient(options, source) { ${first}`;
      if (/ as /.test(given)) throw new Error(`rename what is like #given: ${given}`);
      return { code: `${inside.join('\n')}\n}`, map, moduleType: 'js' };
    },
  };
}

export async function bundle(wasm, { entries, dir, debug }) {
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  const packed = pack(wasm);
  const build = await rolldown({
    input: Object.fromEntries(entries.map((name) => [name, join(source, `${name}.ts`)])),
    external: ['react'],
    platform: 'neutral',
    transform: { target: 'es2022', define: { VERSION: JSON.stringify(version), DEBUG: String(debug) } },
    plugins: [
      perClient(),
      {
        name: 'inorder',
        resolveId: (id) => (id === '#wasm' ? '\0wasm' : undefined),
        load: (id) => (id === '\0wasm' ? `export default ${JSON.stringify(packed)}` : undefined),
      },
    ],
  });
  const { output } = await build.generate({
    dir,
    format: 'esm',
    entryFileNames: '[name].js',
    chunkFileNames: '[name].js',
    sourcemap: true,
  });
  await build.close();
  await mkdir(dir, { recursive: true });
  // The same short names in all chunks.
  const nameCache = {};
  for (const { type, fileName, code, map } of output) {
    if (type !== 'chunk') continue;
    if (debug) {
      await writeFile(join(dir, fileName), code);
      await writeFile(join(dir, `${fileName}.map`), map.toString());
      continue;
    }
    // Next.js wants to know which modules are of no use on a server; rolldown and terser drop the directive.
    const preamble = fileName === 'react.js' ? "'use client';" : '';
    const small = await minify(code, {
      ...{ module: true, ecma: 2020, nameCache },
      // Not `reduce_funcs`: a function that is used once would be made anew at each call.
      compress: { passes: 3, pure_getters: true, unsafe_arrows: true, keep_fargs: false, reduce_funcs: false },
      mangle: { properties: { regex: INTERNAL } },
      // Lines in place of semicolons: when an option is wrong, Node shows the line that threw before what it says.
      format: { wrap_func_args: false, semicolons: false, preamble },
      sourceMap: { content: map, includeSources: true, url: `${fileName}.map` },
    });
    await writeFile(join(dir, fileName), small.code);
    await writeFile(join(dir, `${fileName}.map`), small.map);
  }
}

/** Sizes of texts or bytes as they go over the network together. */
function weigh(...parts) {
  const brotli = (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }).length;
  const sum = (of) => parts.reduce((total, part) => total + of(part), 0);
  return {
    min: sum((part) => part.length),
    gzip: sum((part) => gzipSync(part, { level: 9 }).length),
    brotli: sum(brotli),
  };
}

/** The files that `entry` loads, itself included, whether at once or later. */
async function reach(entry, seen = new Set()) {
  if (seen.has(entry)) return seen;
  seen.add(entry);
  const code = await readFile(join(out, entry), 'utf8');
  for (const [, file] of code.matchAll(/(?:from|import)\s*\(?\s*["'`]\.\/([\w.-]+\.js)["'`]/g)) await reach(file, seen);
  return seen;
}

/** Builds everything and returns the sizes. */
export async function buildPackage({ debug = true, ...options } = {}) {
  for (const folder of [out, work]) await mkdir(folder, { recursive: true });
  const wasm = await buildWasm(options);
  const debugWasm = debug && (await buildDebugWasm(options));
  for (const file of await readdir(out)) await rm(join(out, file), { recursive: true });
  await bundle(wasm, { entries: ['index', 'slim', 'react'], dir: out, debug: false });
  if (debugWasm) await bundle(debugWasm, { entries: ['index'], dir: join(out, 'debug'), debug: true });
  await writeFile(join(out, 'inorder.wasm'), wasm);
  for (const file of await readdir(join(source, 'public')))
    await copyFile(join(source, 'public', file), join(out, file));

  const read = async (files) => Promise.all([...files].map((file) => readFile(join(out, file))));
  return {
    entry: weigh(...(await read(await reach('index.js')))),
    'first load': weigh(...(await read(['index.js']))),
    slim: weigh(...(await read(await reach('slim.js')))),
    react: weigh(...(await read(await reach('react.js')))),
    wasm: weigh(wasm),
  };
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  stopOnSignals();
  try {
    const sizes = await buildPackage({ debug: !process.argv.includes('--without-debug') });
    console.log('bytes                     min     gzip   brotli');
    for (const [what, { min, gzip, brotli }] of Object.entries(sizes)) {
      console.log(what.padEnd(20) + [min, gzip, brotli].map((n) => n.toLocaleString('en').padStart(9)).join(''));
    }
    const { brotli } = sizes.entry;
    if (brotli > AIM)
      console.log(`The entry weighs ${brotli} bytes after brotli; the aim is ${AIM}, the limit ${LIMIT}.`);
    if (process.argv.includes('--check')) {
      if (brotli > LIMIT) throw new Error('the entry has grown above its limit');
      if (sizes.react.brotli > REACT_LIMIT) throw new Error(`inorder/react is above its limit of ${REACT_LIMIT} bytes`);
    }
  } catch (error) {
    console.error(`build-package: ${error.message}`);
    process.exitCode = 1;
  }
}
