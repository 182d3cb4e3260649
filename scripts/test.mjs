// npm test: sets up what is missing and runs every step; goes on after a failure; ends with `N passed, N failed`.
//
//   npm test -- native unit     only these steps, and what they build on
//   npm test -- --list          the names of the steps
//   npm test -- --verbose       prints all output; otherwise a step's output is printed when it fails
//
// Three steps run at a time: one that computes, and beside it two that mostly wait for sockets and timers; where those are
// over, what needs one core only.
//
// The counts are those that the tools print. A check without tests of its own (a formatter, a compiler) counts as one.
// A step that crashes, times out or finds no test counts as a failure, and so does a test that was skipped.
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { buildGateway, buildPackage, buildPage, gatewayPath } from './build.mjs';
import { screen } from './screen.mjs';
import { setup } from './setup.mjs';
import * as tools from './tools.mjs';

const { bin, nativeCargo, nativeCargoEnv, root, webCargo, webCargoEnv } = tools;

const options = process.argv.slice(2);
const verbose = options.includes('--verbose') || options.includes('-v');

/** No step needs this long; it is there so that a hang is a failure with a name. */
const STEP_TIMEOUT_MS = 20 * 60_000;
/** A browser is given this long for all tests of one file; a loaded machine is slow, a hang is endless. */
const BROWSER_TIMEOUT_S = 180;

/** Standard library for wasm tests: panics are caught there, and the test harness needs `panic_unwind`. */
const BUILD_STD = ['-Z', 'build-std=std,panic_abort,panic_unwind', '--target', 'wasm32-unknown-unknown'];

const reports = join(tools.targetDir, 'test-reports');

// --- What a step's output says ---------------------------------------------------------------------------------------

/** Sums the lines `test result: ok. 3 passed; 0 failed; 1 ignored; …` of cargo test and of wasm-bindgen's runner. */
function countCargo(lines) {
  const sum = { passed: 0, failed: 0 };
  for (const line of lines) {
    const counts = line.match(/^\s*test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored/);
    if (!counts) continue;
    const [passed, failed, ignored] = counts.slice(1).map(Number);
    sum.passed += passed;
    sum.failed += failed + ignored;
  }
  return sum;
}

/** Reads the last line `N passed, N failed` that a program of ours prints. */
function countLine(lines) {
  for (const line of lines.toReversed()) {
    const counts = line.match(/^\s*(\d+) passed, (\d+) failed\b/);
    if (counts) return { passed: Number(counts[1]), failed: Number(counts[2]) };
  }
  return { passed: 0, failed: 0 };
}

/** Reads vitest's JSON report. A file that does not load has no tests, so failed files count too. */
function countVitest(file) {
  const report = JSON.parse(readFileSync(file, 'utf8'));
  const unloaded = report.testResults.filter((f) => f.status === 'failed' && f.assertionResults.length === 0).length;
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + report.numPendingTests + report.numTodoTests + unloaded,
  };
}

// --- How steps run programs ------------------------------------------------------------------------------------------

/** Runs one program of a step; resolves to its lines and whether it succeeded. */
async function execute(context, command, args, { env, timeoutMs = STEP_TIMEOUT_MS } = {}) {
  const lines = [];
  const onLine = (line) => {
    lines.push(line);
    context.print(line);
  };
  context.print(
    `$ ${[relative(root, command).startsWith('..') ? command : relative(root, command), ...args].join(' ')}`,
  );
  const { code, signal, timedOut } = await tools.start(command, args, { cwd: root, env, onLine, timeoutMs }).done;
  if (timedOut) context.print(`took more than ${timeoutMs / 1000} s and was killed`);
  else if (signal) context.print(`ended by ${signal}`);
  return { lines, ok: code === 0 };
}

/** A check: one passed or one failed. */
const check = (command, args, options) => async (context) => {
  const { ok } = await execute(context, ...(await resolve(command, args, options)));
  return { passed: ok ? 1 : 0, failed: ok ? 0 : 1 };
};

/** Programs that print counts: `count` reads them. */
const counted = (count, command, args, options) => async (context) => {
  const { lines, ok } = await execute(context, ...(await resolve(command, args, options)));
  const counts = count(lines);
  if (counts.passed + counts.failed === 0) context.print('no test ran');
  // A crash after the last count, or before the first one, is a failure that nobody counted.
  if ((!ok || counts.passed === 0) && counts.failed === 0) counts.failed = 1;
  return counts;
};

/** Paths of tools are only known after the set-up, so steps give functions. */
async function resolve(command, args, options) {
  return Promise.all([command, args, options].map((part) => (typeof part === 'function' ? part() : part)));
}

const build = (make) => async (context) => {
  await make({ onLine: context.print, timeoutMs: STEP_TIMEOUT_MS });
  return { passed: 1, failed: 0 };
};

/** The package, and what it weighs. One that weighs too much is a failure, but others can build on it. */
async function buildAndWeigh(context) {
  const entry = join(root, 'pkg/dist/index.js');
  rmSync(entry, { force: true });
  const options = { onLine: context.print, timeoutMs: STEP_TIMEOUT_MS };
  const error = await buildPackage({ check: true, ...options }).then(
    () => undefined,
    (error) => error,
  );
  if (error) context.print(error.message);
  return { passed: error ? 0 : 1, failed: error ? 1 : 0, usable: existsSync(entry) };
}

const native = (args) => [() => nativeCargo(), args, () => ({ env: nativeCargoEnv() })];

const vitest = (folder, env = {}) => {
  const report = join(reports, `${folder.replaceAll('/', '-')}.json`);
  return counted(
    () => (existsSync(report) ? countVitest(report) : { passed: 0, failed: 0 }),
    () => bin('vitest'),
    () => {
      rmSync(report, { force: true });
      // A folder with a configuration of its own is a root of its own.
      const where = existsSync(join(root, folder, 'vitest.config.ts')) ? ['--root', folder] : [folder];
      // Build folders hold copies: `npm run mutants` makes one of everything.
      const fresh = '--exclude=target/**';
      return ['run', ...where, fresh, '--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
    },
    () => ({ env: { ...process.env, CI: 'true', NO_COLOR: '1', ...browserEnv(), ...env } }),
  );
};

/** Where tests find the browsers and the gateway that was built for them. */
const browserEnv = () => ({ CHROMIUM: tools.findChromium() ?? '', INORDER_GATEWAY: gatewayPath('debug') });

/** The files `*.rs` of tests/browser as cargo knows them: `--test NAME …`. */
function browserTests() {
  const metadata = tools.capture(nativeCargo(), ['metadata', '--no-deps', '--format-version', '1', '--offline'], {
    cwd: root,
    env: nativeCargoEnv(),
    maxBuffer: 64 << 20,
  });
  const targets = JSON.parse(metadata ?? '{"packages":[]}').packages.flatMap((p) => p.targets);
  const folder = join(root, 'tests/browser') + sep;
  const names = targets.filter((t) => t.kind.includes('test') && t.src_path.startsWith(folder)).map((t) => t.name);
  return names.flatMap((name) => ['--test', name]);
}

/** Where in an engine wasm-bindgen's runner puts tests that run anywhere, by the variable that says so. */
const PLACES = {
  Node: 'WASM_BINDGEN_USE_NODE_EXPERIMENTAL',
  'a window': 'WASM_BINDGEN_USE_BROWSER',
  'a worker': 'WASM_BINDGEN_USE_DEDICATED_WORKER',
  'a shared worker': 'WASM_BINDGEN_USE_SHARED_WORKER',
  'a service worker': 'WASM_BINDGEN_USE_SERVICE_WORKER',
};

/** The tests of the wasm driver in one place of an engine. `variables` name its WebDriver and what that needs. */
const wasmTests = (place, variables = () => ({})) =>
  counted(
    countCargo,
    () => webCargo(),
    () => ['test', '--locked', ...BUILD_STD, ...browserTests()],
    () => {
      const env = webCargoEnv({
        CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER: tools.wasmBindgenTestRunner(),
        WASM_BINDGEN_TEST_TIMEOUT: String(BROWSER_TIMEOUT_S),
        WASM_BINDGEN_TEST_DRIVER_TIMEOUT: '30',
        MOZ_HEADLESS: '1',
      });
      // The runner takes the first driver that has a variable, and one place at a time.
      const others = ['GECKODRIVER', 'SAFARIDRIVER', 'CHROMEDRIVER', 'MSEDGEDRIVER', ...Object.values(PLACES)];
      for (const name of others) delete env[name];
      return { env: { ...env, ...variables(), [PLACES[place]]: '1' } };
    },
  );

/** The same in several places, one after the other. */
const everywhere = (places, variables) => async (context) => {
  const sum = { passed: 0, failed: 0 };
  for (const place of places) {
    context.print(`in ${place}`);
    const { passed, failed } = await wasmTests(place, variables)(context);
    sum.passed += passed;
    sum.failed += failed;
  }
  return sum;
};

/** What a driver is asked for, in the file that the runner reads. */
function capabilities(name, wanted) {
  const file = join(reports, `webdriver-${name}.json`);
  writeFileSync(file, JSON.stringify(wanted));
  return { WASM_BINDGEN_TEST_WEBDRIVER_JSON: file };
}

/** WebKit needs a screen. To wasm-bindgen's runner it is a Safari; that one takes no capabilities. */
async function wasmTestsInWebkit(context) {
  const { display, stop } = await screen();
  const variables = () => ({
    SAFARIDRIVER: tools.webkitDriver(),
    DISPLAY: display,
    WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: '1',
  });
  try {
    return await wasmTests('a window', variables)(context);
  } finally {
    await stop();
  }
}

/** Every TypeScript project of the clone, type-checked on its own. */
async function types(context) {
  const projects = ['pkg', 'demo', 'tests', '.']
    .flatMap((folder) => tsconfigs(join(root, folder), folder === '.' ? 0 : 3))
    .map((path) => relative(root, path))
    .filter((path) => path !== 'tsconfig.base.json');
  const sum = { passed: 0, failed: 0 };
  if (projects.length === 0) context.print('no tsconfig.json found');
  for (const project of projects) {
    // What was checked before and has not changed is not checked again.
    const known = join(tools.targetDir, 'types', `${project.replaceAll(sep, '-')}.tsbuildinfo`);
    const incremental = ['--incremental', '--tsBuildInfoFile', known];
    const args = ['--noEmit', '--pretty', 'false', ...incremental, '--project', project];
    const { ok } = await execute(context, bin('tsc'), args);
    sum[ok ? 'passed' : 'failed'] += 1;
  }
  return projects.length === 0 ? { passed: 0, failed: 1 } : sum;
}

function tsconfigs(folder, depth) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return depth > 0 && entry.name !== 'node_modules' ? tsconfigs(path, depth - 1) : [];
    return /^tsconfig.*\.json$/.test(entry.name) ? [path] : [];
  });
}

// --- The steps, in order ---------------------------------------------------------------------------------------------

const STEPS = [
  { name: 'fmt', run: check(...native(['fmt', '--all', '--check'])) },
  { name: 'prettier', run: check(() => bin('prettier'), ['--check', '--log-level', 'warn', '.']) },
  { name: 'package', run: buildAndWeigh, show: true },
  { name: 'gateway', run: build((options) => buildGateway({ profile: 'debug', ...options })) },
  { name: 'page-build', after: ['package'], run: build(buildPage) },
  {
    name: 'audit',
    run: counted(countLine, () => process.execPath, ['scripts/audit.mjs']),
    show: /no answer/,
  },
  {
    name: 'clippy',
    run: check(...native(['clippy', '--locked', '--workspace', '--all-targets', '--', '-D', 'warnings'])),
  },
  {
    name: 'clippy-wasm',
    run: check(
      () => tools.webClippy()[0],
      () => [
        ...tools.webClippy().slice(1),
        '--locked',
        ...BUILD_STD,
        '--lib',
        ...browserTests(),
        '--',
        '-D',
        'warnings',
      ],
      () => ({ env: webCargoEnv() }),
    ),
  },
  { name: 'native', run: counted(countCargo, ...native(['test', '--locked', '--workspace', '--no-fail-fast'])) },
  { name: 'zoo', run: counted(countCargo, ...native(['test', '--locked', '--features', 'zoo', '--test', 'zoo'])) },
  { name: 'fuzz', run: counted(countLine, () => process.execPath, ['scripts/fuzz.mjs']), show: true },
  { name: 'types', light: true, after: ['package'], run: types },
  { name: 'api', light: true, after: ['package'], run: check(process.execPath, ['scripts/api-report.mjs', '--check']) },
  { name: 'docs', light: true, run: check(() => bin('typedoc'), ['--options', 'pkg/typedoc.json', '--emit', 'none']) },
  { name: 'unit', light: true, after: ['package'], run: vitest('tests/package') },
  {
    name: 'traces',
    light: true,
    after: ['package'],
    run: counted(countLine, () => process.execPath, ['scripts/traces.mjs', '1000', '--debug']),
    show: true,
  },
  { name: 'frameworks', light: true, after: ['package'], run: vitest('tests/frameworks') },
  {
    name: 'toolchains',
    light: true,
    after: ['package'],
    run: counted(
      countLine,
      () => process.execPath,
      () => [join(root, 'tests/toolchains/run.mjs'), '--quick'],
    ),
  },
  { name: 'wasm-node', run: wasmTests('Node') },
  {
    name: 'wasm-chromium',
    run: everywhere(['a window', 'a worker', 'a shared worker', 'a service worker'], () => ({
      CHROMEDRIVER: tools.chromedriver(),
      ...capabilities('chromium', {
        'goog:chromeOptions': { args: ['--headless=new', ...tools.chromiumFlags], binary: tools.chromium() },
      }),
    })),
  },
  {
    name: 'wasm-firefox',
    run: everywhere(['a window', 'a worker'], () => ({
      GECKODRIVER: tools.geckodriver(),
      ...capabilities('firefox', {
        'moz:firefoxOptions': { binary: tools.firefox(), prefs: { 'remote.active-protocols': 1 } },
      }),
    })),
  },
  // Only on Linux does WebKit come with a driver.
  ...(process.platform === 'linux' ? [{ name: 'wasm-webkit', run: wasmTestsInWebkit }] : []),
  {
    name: 'postgres',
    lane: 'wire',
    after: ['package', 'gateway'],
    run: counted(
      countLine,
      () => process.execPath,
      ['tests/postgres/run.mjs', '--short', '--built'],
      () => ({ env: { ...process.env, ...browserEnv() } }),
    ),
  },
  { name: 'examples', lane: 'wire', after: ['package', 'gateway', 'page-build'], run: vitest('tests/examples') },
  { name: 'page', lane: 'page', after: ['gateway', 'page-build'], run: vitest('tests/page') },
  {
    name: 'hostile',
    lane: 'wire',
    after: ['package', 'gateway'],
    run: vitest('tests/hostile'),
    show: /: .*(MiB|a minute|questions|served)/,
  },
  {
    name: 'soak',
    lane: 'wire',
    after: ['package', 'gateway'],
    run: counted(
      countLine,
      () => process.execPath,
      ['tests/soak/run.mjs', '--minutes', '1'],
      () => ({ env: { ...process.env, ...browserEnv() } }),
    ),
    show: true,
  },
];

// --- Running them ----------------------------------------------------------------------------------------------------

const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(1)} s`;

/** The steps named, and before them what they build on. */
function choose(names) {
  if (names.length === 0) return STEPS;
  const chosen = new Set();
  const add = (name) => {
    const step = STEPS.find((step) => step.name === name);
    if (!step) throw new Error(`unknown step ${name}; known: ${STEPS.map((step) => step.name).join(', ')}`);
    for (const before of step.after ?? []) add(before);
    chosen.add(step);
  };
  names.forEach(add);
  return STEPS.filter((step) => chosen.has(step));
}

async function runStep(step, results) {
  const output = [];
  const context = {
    print(line) {
      if (verbose) console.log(`  ${line}`);
      else output.push(line);
    },
  };
  const began = performance.now();
  let counts;
  const broken = (step.after ?? []).find((name) => results.get(name)?.failed && !results.get(name).usable);
  try {
    if (broken) throw new Error(`not run: it builds on ${broken}, which failed`);
    counts = await step.run(context);
  } catch (error) {
    context.print(error.message);
    counts = { passed: 0, failed: 1 };
  }
  if (tools.isStopping()) return;
  results.set(step.name, counts);
  // `show`: all lines, or those with figures.
  const isShown = (line) => counts.failed > 0 || step.show === true || step.show?.test(line);
  for (const line of output.filter(isShown)) console.log(`  ${line}`);
  const verdict = counts.failed > 0 ? 'FAILED' : 'ok';
  console.log(
    `${verdict.padEnd(6)} ${step.name.padEnd(14)} ${String(counts.passed).padStart(5)} passed ${String(counts.failed).padStart(4)} failed  ${seconds(began)}`,
  );
}

/** Runs the steps in their order, each lane for itself, and none before what it builds on. */
async function runAll(steps, results) {
  const left = [...steps];
  const isReady = (step) => (step.after ?? []).every((name) => results.has(name));
  const lane = async (name) => {
    while (!tools.isStopping()) {
      const own = left.filter((step) => step.lane === name);
      const mine = own.length > 0 ? own : left.filter((step) => step.light);
      if (mine.length === 0) return;
      const next = mine.find(isReady);
      if (next) {
        left.splice(left.indexOf(next), 1);
        await runStep(next, results);
      } else await new Promise((resolve) => setTimeout(resolve, 200));
    }
  };
  await Promise.all([...new Set(steps.map((step) => step.lane))].map(lane));
}

async function main() {
  if (options.includes('--list')) {
    console.log(STEPS.map((step) => step.name).join('\n'));
    return;
  }
  const began = performance.now();
  const steps = choose(options.filter((option) => !option.startsWith('-')));
  const results = new Map();
  try {
    await setup('test', 'postgres');
    mkdirSync(reports, { recursive: true });
  } catch (error) {
    console.error(`setup: ${error.message}`);
    results.set('setup', { passed: 0, failed: 1 });
  }
  if (!results.has('setup')) await runAll(steps, results);
  if (tools.isStopping()) return;

  const total = (key) => [...results.values()].reduce((sum, counts) => sum + counts[key], 0);
  const failed = [...results].filter(([, counts]) => counts.failed > 0).map(([name]) => name);
  console.log(`\n${results.size} steps in ${seconds(began)}${failed.length ? `; failed: ${failed.join(', ')}` : ''}`);
  console.log(`${total('passed')} passed, ${total('failed')} failed`);
  process.exitCode = total('failed') > 0 ? 1 : 0;
}

tools.stopOnSignals();
main().catch((error) => {
  console.error(`test: ${error.message}`);
  console.log('0 passed, 1 failed');
  process.exitCode = 1;
});
