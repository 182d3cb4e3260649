// Where the tools are, and the environment that each needs. Installing them is setup.mjs's part.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { capture } from './run.mjs';

export { capture, isStopping, run, start, stop, stopAll, stopOnSignals } from './run.mjs';

/** The clone's root. */
export const root = fileURLToPath(new URL('..', import.meta.url)).replace(/[\\/]$/, '');

/** Tools that we install ourselves live here, each version in a folder of its own. */
export const cacheDir =
  process.env.INORDER_CACHE ?? join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'inorder');

/** Build folder of the native toolchain. */
export const targetDir = process.env.CARGO_TARGET_DIR || join(root, 'target');

/**
 * Build folder of the wasm toolchain. It may be another compiler than the native one, and two compilers that share
 * a folder throw away each other's work.
 */
export const webTargetDir = join(targetDir, 'web');

/** Where the toolchains that we try the package with are installed, and the apps that they build. */
export const toolchainsDir = join(targetDir, 'toolchains');

/** The compiler must be at least as new as Cargo.toml's `rust-version`. */
const rustVersion = readFileSync(join(root, 'Cargo.toml'), 'utf8').match(/^rust-version\s*=\s*"([\d.]+)"/m)?.[1];

/** The command line tool must be of the very version of the crate, so Cargo.lock has the word. */
const wasmBindgenVersion = readFileSync(join(root, 'Cargo.lock'), 'utf8').match(
  /name = "wasm-bindgen"\nversion = "([^"]+)"/,
)?.[1];

/** Tools from crates.io: where each is or will be. */
export const cargoTools = {
  'wasm-bindgen-cli': cargoTool('wasm-bindgen', wasmBindgenVersion ?? '0.2.130'),
  geckodriver: cargoTool('geckodriver', '0.37.1'),
  'cargo-deny': cargoTool('cargo-deny', '0.20.2'),
  'cargo-mutants': cargoTool('cargo-mutants', '27.1.0'),
};

function cargoTool(program, version) {
  const folder = join(cacheDir, `${program}-${version}`);
  return { program, version, folder, path: join(folder, 'bin', program) };
}

/** Is version `a` at least version `b`? Compares numbers, so that 1.100 is newer than 1.95. */
export function atLeast(a, b) {
  const [x, y] = [a, b].map((version) => version.split('.').map(Number));
  for (let i = 0; i < y.length; i++) {
    if ((x[i] ?? 0) !== y[i]) return (x[i] ?? 0) > y[i];
  }
  return true;
}

/** What `program --version` prints as its version, or `undefined` when it does not run. */
export function versionOf(program, options) {
  return capture(program, ['--version'], options)?.match(/\d+\.\d+(\.\d+)*/)?.[0];
}

const remembered = new Map();
function once(key, find) {
  if (!remembered.has(key)) remembered.set(key, find());
  return remembered.get(key);
}

/** Forgets what was found, for after an installation. */
export function lookAgain() {
  remembered.clear();
}

const newEnough = (program) => {
  const version = versionOf(program);
  return version !== undefined && (rustVersion === undefined || atLeast(version, rustVersion));
};

/** Cargo for native code: the first on PATH that is new enough, else Debian's; `undefined` when there is none. */
export function nativeCargo() {
  return once('native', () => ['cargo', '/usr/bin/cargo'].find(newEnough));
}

/** Environment for native cargo commands. */
export function nativeCargoEnv(extra = {}) {
  const env = { ...process.env, CARGO_TARGET_DIR: targetDir, ...extra };
  // Outside rustup, `cargo` must not pick a rustc of another version from PATH.
  if (nativeCargo() === '/usr/bin/cargo') Object.assign(env, { RUSTC: '/usr/bin/rustc', RUSTDOC: '/usr/bin/rustdoc' });
  return env;
}

/**
 * The toolchain for wasm: one that has the standard library's sources and a linker for wasm.
 *
 * On Debian these are the packages made for its browsers (`rustc-web` and others); elsewhere rustup's toolchain with
 * `rust-src` and the target. `undefined` when neither is complete.
 */
export function webToolchain() {
  return once('web', () => {
    if (newEnough('/usr/bin/rustc') && newEnough('/usr/bin/cargo')) {
      const sources = '/usr/lib/rustlib/src';
      const complete =
        existsSync(sources) &&
        readdirSync(sources).some((name) => existsSync(join(sources, name, 'library/Cargo.toml'))) &&
        versionOf('/usr/bin/rust-lld', { argv0: 'wasm-ld' }) !== undefined;
      if (complete) return { kind: 'debian', cargo: '/usr/bin/cargo', rustc: '/usr/bin/rustc' };
    }
    const sysroot = capture('rustc', ['--print', 'sysroot']);
    const complete =
      sysroot !== undefined &&
      newEnough('cargo') &&
      existsSync(join(sysroot, 'lib/rustlib/src/rust/library/Cargo.toml')) &&
      existsSync(join(sysroot, 'lib/rustlib/wasm32-unknown-unknown'));
    return complete ? { kind: 'rustup', cargo: 'cargo', rustc: undefined } : undefined;
  });
}

/** Cargo for wasm. */
export function webCargo() {
  return webToolchain()?.cargo ?? missing('the Rust toolchain for wasm', 'build');
}

/**
 * Environment for wasm cargo commands. It allows `-Z` options, which `-Z build-std` needs: the standard library is
 * built with the crate, so that panics cost no bytes in the release and can be caught in the tests.
 */
export function webCargoEnv(extra = {}) {
  const { rustc } = webToolchain() ?? missing('the Rust toolchain for wasm', 'build');
  const env = { ...process.env, RUSTC_BOOTSTRAP: '1', CARGO_TARGET_DIR: webTargetDir };
  delete env.CARGO_ENCODED_RUSTFLAGS;
  delete env.RUSTFLAGS;
  if (rustc) Object.assign(env, { RUSTC: rustc, RUSTDOC: '/usr/bin/rustdoc' });
  return { ...env, ...extra };
}

/** The arguments of `cargo` that run clippy with the wasm toolchain, as `[program, ...arguments]`. */
export function webClippy() {
  // `cargo clippy` would look in ~/.cargo/bin first and find rustup's.
  return webToolchain()?.kind === 'debian' ? ['/usr/bin/cargo-clippy', 'clippy'] : [webCargo(), 'clippy'];
}

/** The path of the runner of wasm-bindgen tests; it comes with `wasm-bindgen`. */
export const wasmBindgenTestRunner = () =>
  installed(join(cargoTools['wasm-bindgen-cli'].folder, 'bin/wasm-bindgen-test-runner'), 'test');

/** The path of `wasm-opt`, from the npm package binaryen. */
export const wasmOpt = () => bin('wasm-opt');

/** The path of a program that an npm package brings. */
export const bin = (name) => installed(join(root, 'node_modules/.bin', name), 'build');

function onPath(...names) {
  for (const name of names) {
    for (const folder of (process.env.PATH ?? '').split(delimiter)) {
      if (folder && existsSync(join(folder, name))) return join(folder, name);
    }
  }
  return undefined;
}

export const findChromium = () =>
  process.env.CHROMIUM ??
  onPath('chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome') ??
  ['/usr/bin/chromium', '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'].find(existsSync);
export const findChromedriver = () =>
  process.env.CHROMEDRIVER ?? onPath('chromedriver') ?? ['/usr/bin/chromedriver'].find(existsSync);
export const findFirefox = () =>
  process.env.FIREFOX ??
  onPath('firefox-esr', 'firefox') ??
  ['/usr/bin/firefox-esr', '/Applications/Firefox.app/Contents/MacOS/firefox'].find(existsSync);
export const findGeckodriver = () =>
  process.env.GECKODRIVER ?? [cargoTools.geckodriver.path].find(existsSync) ?? onPath('geckodriver');

export const findXvfb = () => process.env.XVFB ?? onPath('Xvfb');
/** WebKit has a WebDriver on Linux only (`webkit2gtk-driver`); the browser it drives lies beside its libraries. */
export const findWebkitDriver = () => process.env.WEBKITDRIVER ?? onPath('WebKitWebDriver');
export const findWebkitBrowser = () =>
  process.env.WEBKITBROWSER ??
  ['x86_64', 'aarch64']
    .flatMap((machine) =>
      ['4.1', '4.0', '6.0'].map((api) => `/usr/lib/${machine}-linux-gnu/webkit2gtk-${api}/MiniBrowser`),
    )
    .find(existsSync);

/** The path of nginx; Debian's lies where only root looks. */
export const findNginx = () => process.env.NGINX ?? onPath('nginx') ?? ['/usr/sbin/nginx'].find(existsSync);

/** The folder of PostgreSQL's programs, the newest version's. Debian keeps them off the PATH. */
export function findPostgres() {
  if (process.env.POSTGRES_BIN) return process.env.POSTGRES_BIN;
  const home = '/usr/lib/postgresql';
  const versions = existsSync(home)
    ? readdirSync(home).filter((name) => existsSync(join(home, name, 'bin/initdb')))
    : [];
  const newest = versions.sort((a, b) => Number(b) - Number(a))[0];
  if (newest) return join(home, newest, 'bin');
  const initdb = onPath('initdb');
  return initdb && join(initdb, '..');
}

/** The path of Chromium, for playwright-core's `executablePath`. */
export const chromium = () => findChromium() ?? missing('Chromium', 'test');
export const chromedriver = () => findChromedriver() ?? missing('chromedriver', 'test');
export const firefox = () => findFirefox() ?? missing('Firefox', 'test');
export const geckodriver = () => findGeckodriver() ?? missing('geckodriver', 'test');
export const xvfb = () => findXvfb() ?? missing('Xvfb', 'test');
export const webkitDriver = () => findWebkitDriver() ?? missing('WebKitWebDriver', 'test');
export const webkitBrowser = () => findWebkitBrowser() ?? missing("WebKit's MiniBrowser", 'test');

/**
 * Arguments for Chromium in tests. Root needs `--no-sandbox`; without the others Chromium calls home, which a machine
 * with a closed network refuses many times a second.
 */
export const chromiumFlags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--disable-dev-shm-usage',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
];

const installed = (path, command) => (existsSync(path) ? path : missing(path, command));

function missing(what, command) {
  throw new Error(`${what} is missing: run \`npm run setup -- ${command}\``);
}
