// npm run toolchains: packs the package, installs it in an app for each toolchain, builds that, opens it in Chromium,
// and looks whether the events of a job arrive there.
//
//   npm run toolchains -- Vite Next    only those whose names have one of these words in them
//   npm run toolchains -- --quick      only those that `npm test` runs
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync } from 'node:zlib';
import { chromium } from 'playwright-core';
import { buildPackage } from '../../scripts/build.mjs';
import { setup } from '../../scripts/setup.mjs';
import * as tools from '../../scripts/tools.mjs';
import { EVERY_CHANGE, freePort, serve } from './server.mjs';
import { LINTERS, judgeFiles, pack, promised } from './tarball.mjs';
import { MODULE, TOOLCHAINS } from './toolchains.mjs';

const { toolchainsDir } = tools;
const here = fileURLToPath(new URL('.', import.meta.url));

/** No build takes this long, not even on a busy machine. */
const BUILD_TIMEOUT_MS = 300_000;
/** From opening the page or starting the program to the last event. A development server builds in this time. */
const EVENTS_TIMEOUT_MS = 60_000;

/** Nothing that calls home, no colours, no questions. */
const ENVIRONMENT = {
  ...process.env,
  PATH: join(toolchainsDir, 'node_modules/.bin') + delimiter + process.env.PATH,
  CI: 'true',
  NO_COLOR: '1',
  NEXT_TELEMETRY_DISABLED: '1',
  DENO_NO_UPDATE_CHECK: '1',
};

const page = (tags) => `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <title>inorder</title>
    <link rel="icon" href="data:," />
    ${tags}
  </head>
  <body>
    <output></output>
  </body>
</html>
`;

/** The pinned version of a toolchain, whether it is installed or not. */
const pinOf = (name) => {
  if (name === undefined) return '';
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
  return { ...dependencies, ...devDependencies }[name].replace(/^npm:.*@/, '');
};

/** What the table leaves out. */
const USUAL = { tags: MODULE, config: {}, out: 'dist', shows: EVERY_CHANGE, sockets: 1 };

/** Where the package is installed once, to be copied to every app. */
const installed = join(toolchainsDir, 'installed');

/** Installs the package from its archive, as npm does it. */
async function install(archive) {
  rmSync(installed, { recursive: true, force: true });
  mkdirSync(installed, { recursive: true });
  writeFileSync(join(installed, 'package.json'), JSON.stringify({ name: 'app', private: true, type: 'module' }));
  await execute(`npm install --offline --no-audit --no-fund ${archive}`, {}, installed);
}

/** Lays an app out as a person has it who installed the package, and says where. */
function layOut({ name, app, importing, tags, config }) {
  const folder = join(toolchainsDir, 'apps', name.toLowerCase().replace(/[^a-z0-9]+/g, '-'));
  rmSync(folder, { recursive: true, force: true });
  cpSync(join(here, 'apps', app), folder, { recursive: true });
  cpSync(installed, folder, { recursive: true });
  for (const [file, text] of Object.entries(config)) writeFileSync(join(folder, file), text);
  // Next has sources and pages of its own.
  if (app === 'next') return folder;
  const follow = readFileSync(join(here, 'apps/follow.js'), 'utf8');
  writeFileSync(join(folder, 'follow.js'), importing ? follow.replace("'inorder'", `'${importing}'`) : follow);
  if (app !== 'program') writeFileSync(join(folder, 'index.html'), page(tags));
  return folder;
}

/** A command of the table as program and arguments; words that are names of places stand for their values. */
function parse(command, { package: name }, places = {}) {
  const [program, ...args] = command.split(' ').map((word) => places[word] ?? word);
  // Two versions of one tool share a name in .bin; the package knows which is its own.
  const manifest = name && join(toolchainsDir, 'node_modules', name, 'package.json');
  const bin = manifest && existsSync(manifest) && JSON.parse(readFileSync(manifest, 'utf8')).bin?.[program];
  return bin?.endsWith('.js') ? [process.execPath, [join(manifest, '..', bin), ...args]] : [program, args];
}

/** Runs a command in an app's folder and returns its lines; throws with the last of them. */
async function execute(command, toolchain, folder, { places, timeoutMs = BUILD_TIMEOUT_MS } = {}) {
  const lines = [];
  const onLine = (line) => lines.push(line);
  const options = { cwd: folder, env: ENVIRONMENT, onLine, timeoutMs };
  const { code, timedOut } = await tools.start(...parse(command, toolchain, places), options).done;
  if (code === 0) return lines;
  throw new Error([timedOut ? 'took too long' : `exit code ${code}`, ...lines.slice(-30)].join('\n'));
}

/** What the scripts below a folder weigh together after brotli, in bytes. */
function weigh(folder) {
  const scripts = readdirSync(folder, { recursive: true }).filter((file) => /\.(m?js|wasm)$/.test(file));
  return scripts.reduce((sum, file) => sum + brotliCompressSync(readFileSync(join(folder, file))).length, 0);
}

/** Waits until a server answers that was just started; returns its page. */
async function answers(child, lines, url) {
  let ended = false;
  void child.done.then(() => (ended = true));
  for (const began = performance.now(); performance.now() - began < EVENTS_TIMEOUT_MS;) {
    if (ended) break;
    const response = await fetch(url).catch(() => undefined);
    if (response?.ok) return response.text();
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error([`no answer from ${url}`, ...lines.slice(-30)].join('\n'));
}

/** Opens the page and returns what it shows in the end; throws with what it says meanwhile. */
async function look(browser, url, shows) {
  const context = await browser.newContext();
  const complaints = [];
  try {
    const page = await context.newPage();
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) complaints.push(`${message.type()}: ${message.text()}`);
    });
    await page.goto(url);
    const output = page.locator('output');
    await output
      .filter({ hasText: shows })
      .waitFor({ timeout: EVENTS_TIMEOUT_MS })
      .catch(() => {});
    return { shown: await output.textContent({ timeout: 1_000 }).catch(() => ''), complaints };
  } finally {
    await context.close();
  }
}

/** Tries one toolchain; returns its row of the matrix, or throws. */
async function tryOut(toolchain, browser) {
  const { build, start, run, headers, serves, complaint, out, shows, sockets } = toolchain;
  const row = {};
  const folder = layOut(toolchain);
  const server = await serve(join(folder, out), headers);
  let child;
  try {
    if (build) {
      const began = performance.now();
      await execute(build, toolchain, folder);
      row.build = (performance.now() - began) / 1000;
      row.bytes = weigh(join(folder, out));
    }
    let result;
    if (run) {
      const lines = await execute(run, toolchain, folder, {
        places: { SERVER: server.socket },
        timeoutMs: EVENTS_TIMEOUT_MS,
      });
      result = { shown: lines.join('\n'), complaints: [] };
    } else {
      let url = server.page;
      if (start) {
        const port = await freePort();
        const lines = [];
        const options = { cwd: folder, env: ENVIRONMENT, onLine: (line) => lines.push(line) };
        child = tools.start(...parse(start, toolchain, { PORT: String(port) }), options);
        url = `http://127.0.0.1:${port}/`;
        const html = await answers(child, lines, url);
        const shown = html.replace(/<script.*?<\/script>/gs, '');
        if (serves && !shown.includes(serves)) throw new Error(`the server's page lacks "${serves}":\n${shown}`);
      } else if (!existsSync(join(folder, out, 'index.html'))) {
        cpSync(join(folder, 'index.html'), join(folder, out, 'index.html'));
      }
      result = await look(browser, `${url}?server=${server.socket}`, shows);
    }
    const faults = result.complaints.filter((text) => !complaint || !text.includes(complaint));
    const isRight = shows instanceof RegExp ? shows.test(result.shown) : result.shown === shows;
    if (!isRight) faults.push(`shown: "${result.shown}", expected: "${shows}"`);
    if (sockets !== undefined && server.connections() !== sockets)
      faults.push(`${server.connections()} sockets, expected ${sockets}`);
    if (faults.length > 0) throw new Error(faults.join('\n'));
    return row;
  } finally {
    if (child) await tools.stop(child);
    await server.stop();
  }
}

// --- The matrix ------------------------------------------------------------------------------------------------------

const COLUMNS = [28, 10, 10, 12, 9];
const cells = (...texts) =>
  texts
    .map((text, i) => String(text ?? '').padEnd(COLUMNS[i] ?? 0))
    .join('')
    .trimEnd();

const started = performance.now();
let passed = 0;
let failed = 0;

/** Runs one check and prints its line: what `act` returns, or why it failed. */
async function check(name, version, act) {
  const installed = version === undefined || existsSync(join(toolchainsDir, 'node_modules', version));
  try {
    if (!installed) throw new Error(`not available: ${version} is not installed; npm has none for this machine`);
    const { build, bytes, verdict = 'yes' } = await act();
    const seconds = build === undefined ? '' : `${build.toFixed(1)} s`;
    console.log(cells(name, pinOf(version), seconds, verdict, bytes?.toLocaleString('en').padStart(8)));
    passed++;
  } catch (error) {
    if (tools.isStopping()) return;
    console.log(`${cells(name, pinOf(version), '', 'FAILED')}\n${error.message.replace(/^/gm, '    ')}`);
    failed++;
  }
}

/** What the page's table lacks, and what it has too much. */
function judgePage(text) {
  const wanted = TOOLCHAINS.map(({ name, package: version, build, start, run, quick }) => {
    const commands = [build, start, run].filter(Boolean).map((command) => `\`${command}\``);
    return `| ${[name, pinOf(version), commands.join(', ') || 'none', quick ? 'yes' : ''].join(' | ')} |`;
  });
  const found = text.split('\n').filter((row) => /^\| (?!toolchain|---)/.test(row));
  return [
    ...wanted.filter((row) => !found.includes(row)).map((row) => `lacks ${row}`),
    ...found.filter((row) => !wanted.includes(row)).map((row) => `says ${row}`),
  ];
}

async function main() {
  const options = process.argv.slice(2);
  const quick = options.includes('--quick');
  const words = options.filter((option) => !option.startsWith('-'));
  const chosen = TOOLCHAINS.filter(
    (toolchain) => (toolchain.quick || !quick) && (words.length === 0 || words.some((w) => toolchain.name.includes(w))),
  );
  if (chosen.length === 0)
    throw new Error(`no toolchain is called so; known: ${TOOLCHAINS.map((t) => t.name).join('; ')}`);
  await setup(quick ? 'test' : 'toolchains');
  if (!promised().every((file) => existsSync(join(tools.root, file)))) await buildPackage();

  const archive = pack(toolchainsDir);
  console.log(`${archive.files.length} files are packed:\n  ${archive.files.join('\n  ')}\n`);
  console.log(`Node ${process.versions.node}, Chromium ${tools.versionOf(tools.chromium())}\n`);
  console.log(cells('toolchain', 'version', 'build', 'events seen', 'brotli'));
  await check('the packed files', undefined, async () => {
    const faults = judgeFiles(archive.files);
    if (faults.length > 0) throw new Error(faults.join('\n'));
    return { verdict: 'right' };
  });
  await check('docs/toolchains.md', undefined, async () => {
    const faults = judgePage(readFileSync(join(tools.root, 'docs/toolchains.md'), 'utf8'));
    if (faults.length > 0) throw new Error(faults.join('\n'));
    return { verdict: 'right' };
  });
  for (const [name, command] of LINTERS) {
    await check(command[0], name, async () => {
      await execute(command.join(' '), {}, toolchainsDir, { places: { ARCHIVE: archive.path } });
      return { verdict: 'clean' };
    });
  }
  await install(archive.path);
  const browser = await chromium.launch({
    executablePath: tools.chromium(),
    args: [...tools.chromiumFlags],
    // Signals are ours; the browser ends with this process.
    ...{ handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false },
  });
  try {
    for (const toolchain of chosen) {
      await check(toolchain.name, toolchain.package, () => tryOut({ ...USUAL, ...toolchain }, browser));
    }
  } finally {
    await browser.close();
  }
  console.log(`${((performance.now() - started) / 1000).toFixed(0)} s`);
}

tools.stopOnSignals();
try {
  await main();
} catch (error) {
  if (!tools.isStopping()) console.error(`toolchains: ${error.message}`);
  failed++;
}
if (!tools.isStopping()) {
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 ? 1 : 0;
}
