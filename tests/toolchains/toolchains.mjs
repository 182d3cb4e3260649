// Every toolchain that the package is tried with. What is written here is all that each needs.
//
//   name     what the matrix calls it
//   quick    whether `npm test` runs it; `npm run toolchains` runs all
//   package  whose version the matrix shows
//   app      the folder in apps/ that it builds, and `importing` what it imports if that is not `inorder`
//   config   files that the tool is configured with: most need none
//   build    the command that builds the app into `out`, which a static server then serves with a page of these tags:
//   tags     one module script, unless said otherwise
//   start    or the command of a server of its own
//   run      or the command of a program that runs without a page
//   serves   what the server's page must have in it
//   shows    the text or pattern of what is shown at the end; `EVERY_CHANGE` unless said otherwise
//   sockets  how many connections are made; 1 unless said otherwise
import { LAST_CHANGE } from './server.mjs';

export const MODULE = '<script type="module" src="./main.js"></script>';
const CLASSIC = '<script defer src="./main.js"></script>';
const PATH = './node_modules/inorder/pkg/dist/index.js';
const IMPORT_MAP = `<script type="importmap">{ "imports": { "inorder": "${PATH}" } }</script>`;

/** What a page may do whose policy allows nothing but its own scripts, wasm, and this server. */
const policy = (scripts) => ({
  'Content-Security-Policy': `default-src 'none'; script-src ${scripts}; connect-src 'self'; img-src data:`,
});

/** What Next's server component has rendered. */
const RENDERED = 'on the server: joining, 0 sockets';

export const TOOLCHAINS = [
  { name: 'no bundler, import map', quick: true, app: 'page', tags: IMPORT_MAP + MODULE, out: '.' },
  { name: 'no bundler, module worker', quick: true, app: 'worker', importing: PATH, out: '.' },
  {
    name: "CSP with 'wasm-unsafe-eval'",
    quick: true,
    app: 'page',
    importing: PATH,
    out: '.',
    headers: policy("'self' 'wasm-unsafe-eval'"),
  },
  {
    name: 'CSP without it',
    quick: true,
    app: 'page',
    importing: PATH,
    out: '.',
    headers: policy("'self'"),
    shows: /^load: .*wasm-unsafe-eval/,
    // The dial does not wait for the wasm; it is given up.
    complaint: 'WebSocket is closed before the connection is established',
    sockets: undefined,
  },
  {
    name: 'esbuild, esm',
    quick: true,
    package: 'esbuild',
    app: 'page',
    build: 'esbuild main.js --bundle --minify --splitting --format=esm --outdir=dist',
  },
  {
    name: 'esbuild, iife',
    package: 'esbuild',
    app: 'page',
    build: 'esbuild main.js --bundle --minify --format=iife --outdir=dist',
    tags: CLASSIC,
  },
  {
    name: 'webpack 5',
    quick: true,
    package: 'webpack',
    app: 'page',
    build: 'webpack ./main.js --mode production',
    tags: CLASSIC,
  },
  {
    name: 'webpack 5, worker',
    package: 'webpack',
    app: 'worker',
    build: 'webpack ./main.js --mode production',
    tags: CLASSIC,
  },
  {
    name: 'Rspack',
    package: '@rspack/core',
    app: 'page',
    build: 'rspack build --entry ./main.js --mode production',
    tags: CLASSIC,
  },
  {
    name: 'Rollup',
    quick: true,
    package: 'rollup',
    app: 'page',
    build: 'rollup main.js --plugin node-resolve --dir dist --format es',
  },
  { name: 'Rolldown', package: 'rolldown', app: 'page', build: 'rolldown main.js --dir dist --format es --minify' },
  { name: 'Vite 8', quick: true, package: 'vite', app: 'page', build: 'vite build' },
  { name: 'Vite 8, worker', package: 'vite', app: 'worker', build: 'vite build' },
  { name: 'Vite 8, inorder/slim', package: 'vite', app: 'slim', build: 'vite build', shows: LAST_CHANGE },
  { name: 'Vite 8, inorder/debug', package: 'vite', app: 'page', importing: 'inorder/debug', build: 'vite build' },
  { name: 'Vite 8, dev', package: 'vite', app: 'page', start: 'vite --host 127.0.0.1 --port PORT' },
  { name: 'Vite 6', package: 'vite-6', app: 'page', build: 'vite build' },
  {
    name: 'Vite 6, worker',
    package: 'vite-6',
    app: 'worker',
    // Up to Vite 7 the usual format of workers can't be in chunks.
    config: { 'vite.config.js': "export default { worker: { format: 'es' } };" },
    build: 'vite build',
  },
  { name: 'Vite 6, dev', package: 'vite-6', app: 'page', start: 'vite --host 127.0.0.1 --port PORT' },
  { name: 'Parcel', package: 'parcel', app: 'page', build: 'parcel build index.html' },
  {
    name: 'Next 16, Turbopack',
    quick: true,
    package: 'next',
    app: 'next',
    build: 'next build',
    start: 'next start --hostname 127.0.0.1 --port PORT',
    out: '.next/static',
    serves: RENDERED,
    shows: LAST_CHANGE,
  },
  {
    name: 'Next 16, webpack',
    package: 'next',
    app: 'next',
    build: 'next build --webpack',
    start: 'next start --hostname 127.0.0.1 --port PORT',
    out: '.next/static',
    serves: RENDERED,
    shows: LAST_CHANGE,
  },
  {
    name: 'Next 16, dev',
    package: 'next',
    app: 'next',
    start: 'next dev --hostname 127.0.0.1 --port PORT',
    serves: RENDERED,
    shows: LAST_CHANGE,
  },
  { name: 'Bun, build', package: 'bun', app: 'page', build: 'bun build main.js --minify --splitting --outdir=dist' },
  { name: 'Bun', package: 'bun', app: 'program', run: 'bun global.js SERVER' },
  { name: 'Deno', package: 'deno', app: 'program', run: 'deno run --allow-net --allow-read global.js SERVER' },
  { name: 'Node, import', quick: true, app: 'program', run: 'node import.js SERVER' },
  {
    name: 'Node, inorder/debug',
    quick: true,
    app: 'program',
    importing: 'inorder/debug',
    run: 'node import.js SERVER',
  },
  { name: 'Node, require', quick: true, app: 'program', run: 'node require.cjs SERVER', shows: 'completed once' },
  {
    name: 'Node, rendering',
    quick: true,
    app: 'program',
    run: 'node render.js SERVER',
    shows: 'joining idle',
    sockets: 0,
  },
];
