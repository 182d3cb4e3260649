// Installs what a command needs, says what it does, and does nothing when all is there.
//
//   node scripts/setup.mjs start|build|test|bench|lint ...
//
// Debian packages are installed as root or through sudo; elsewhere rustup's components are used and browsers are
// expected to be installed. Tools from crates.io go to ~/.cache/inorder, each version in its own folder.
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as tools from './tools.mjs';

const { capture, root, versionOf } = tools;
const isRoot = process.getuid?.() === 0;

const say = (text) => console.log(`setup: ${text}`);
const runs = (program) => program !== undefined && versionOf(program) !== undefined;

/** The names of `folder/node_modules` packages that are missing or of another version than the lock file's. */
function nodeModulesAreCurrent() {
  try {
    const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages;
    const installed = JSON.parse(readFileSync(join(root, 'node_modules/.package-lock.json'), 'utf8')).packages;
    return Object.entries(lock).every(
      ([path, { version, optional }]) => path === '' || (installed[path]?.version ?? (optional && version)) === version,
    );
  } catch {
    return false;
  }
}

const NEEDS = {
  'node modules': {
    present: nodeModulesAreCurrent,
    install: () => tools.run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: root }),
  },
  'native Rust': {
    present: () => tools.nativeCargo() !== undefined && runs('cc'),
    debian: () => ['gcc', 'libc6-dev', ...(tools.nativeCargo() ? [] : ['rustc-web', 'cargo-web'])],
    otherwise: 'install Rust from https://rustup.rs (see rust-version in Cargo.toml) and a C compiler',
  },
  'Rust for wasm': {
    present: () => tools.webToolchain() !== undefined,
    debian: () => ['rustc-web', 'cargo-web', 'rust-web-src', 'rust-web-llvm', lld()],
    rustup: async () => {
      await tools.run('rustup', ['component', 'add', 'rust-src']);
      await tools.run('rustup', ['target', 'add', 'wasm32-unknown-unknown']);
    },
    otherwise: 'rustup component add rust-src && rustup target add wasm32-unknown-unknown',
  },
  'wasm-bindgen': {
    present: () =>
      versionOf(tools.cargoTools['wasm-bindgen-cli'].path) === tools.cargoTools['wasm-bindgen-cli'].version,
    install: () => cargoInstall('wasm-bindgen-cli'),
  },
  rustfmt: {
    present: () => runsCargo('fmt'),
    debian: () => ['rustfmt-web'],
    rustup: () => tools.run('rustup', ['component', 'add', 'rustfmt']),
    otherwise: 'rustup component add rustfmt',
  },
  clippy: {
    present: () => runsCargo('clippy'),
    debian: () => ['rust-web-clippy'],
    rustup: () => tools.run('rustup', ['component', 'add', 'clippy']),
    otherwise: 'rustup component add clippy',
  },
  'clippy for wasm': {
    present: () =>
      tools.webToolchain() !== undefined &&
      capture(tools.webClippy()[0], [...tools.webClippy().slice(1), '--version'], { env: tools.webCargoEnv() }) !==
        undefined,
    debian: () => ['rust-web-clippy'],
    rustup: () => tools.run('rustup', ['component', 'add', 'clippy']),
    otherwise: 'rustup component add clippy',
  },
  Chromium: {
    present: () => runs(tools.findChromium()) && runs(tools.findChromedriver()),
    debian: () => ['chromium', 'chromium-driver'],
    otherwise: 'install Chromium and chromedriver, or set CHROMIUM and CHROMEDRIVER to their paths',
  },
  Firefox: {
    present: () => runs(tools.findFirefox()),
    debian: () => ['firefox-esr'],
    otherwise: 'install Firefox, or set FIREFOX to its path',
  },
  geckodriver: {
    present: () => runs(tools.findGeckodriver()),
    install: () => cargoInstall('geckodriver'),
  },
};

const BUILD = ['node modules', 'native Rust', 'Rust for wasm', 'wasm-bindgen'];
const LINT = ['node modules', 'native Rust', 'Rust for wasm', 'rustfmt', 'clippy', 'clippy for wasm'];
const BROWSERS = ['Chromium', 'Firefox', 'geckodriver'];

/** What each command needs. */
export const COMMANDS = {
  start: BUILD,
  build: BUILD,
  lint: LINT,
  bench: [...BUILD, 'Chromium'],
  test: [...new Set([...BUILD, ...LINT, ...BROWSERS])],
};

const runsCargo = (subcommand) =>
  tools.nativeCargo() !== undefined &&
  capture(tools.nativeCargo(), [subcommand, '--version'], { env: tools.nativeCargoEnv() }) !== undefined;

/** Debian's linker for wasm is of the same release as the LLVM that its Rust is built with. */
function lld() {
  const llvm = capture('apt-cache', ['depends', 'rust-web-llvm'])?.match(/\bllvm-(\d+)\b/)?.[1];
  if (!llvm) throw new Error('apt knows no package rust-web-llvm with an LLVM: is bookworm-security in its sources?');
  return `lld-${llvm}`;
}

async function cargoInstall(crate) {
  const { version, folder } = tools.cargoTools[crate];
  mkdirSync(tools.cacheDir, { recursive: true });
  // Built beside its place and renamed, so that an interrupted build is not mistaken for the tool.
  const fresh = `${folder}.${process.pid}`;
  const install = (...how) =>
    tools.run(tools.nativeCargo(), ['install', ...how, '--quiet', '--version', version, '--root', fresh, crate], {
      env: tools.nativeCargoEnv({ CARGO_TARGET_DIR: join(fresh, 'build') }),
    });
  try {
    try {
      await install('--locked');
    } catch {
      say(`${crate} does not install with its own lock file here; trying with the newest compatible dependencies`);
      await install();
    }
    rmSync(join(fresh, 'build'), { recursive: true, force: true });
    rmSync(folder, { recursive: true, force: true });
    renameSync(fresh, folder);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

/** Runs a program as root; returns whether it succeeded. */
function asRoot(command, args) {
  const [program, ...rest] = isRoot ? [command, ...args] : ['sudo', command, ...args];
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  return spawnSync(program, rest, { stdio: ['inherit', 'ignore', 'inherit'], env }).status === 0;
}

const canUseApt = () => existsSync('/etc/debian_version') && existsSync('/usr/bin/apt-get') && (isRoot || runs('sudo'));

function apt(packagesOf) {
  // A fresh image has no package lists, and old lists name files that are gone.
  say('apt-get update');
  if (!asRoot('apt-get', ['update', '-qq'])) say('apt-get update failed; trying with the lists that are there');
  const packages = packagesOf();
  say(`apt-get install ${packages.join(' ')}`);
  const options = ['-y', '-qq', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=300'];
  if (!asRoot('apt-get', ['install', ...options, ...packages])) throw new Error('apt-get install failed');
}

/** Installs what is missing for the commands named; throws with advice when that is not possible. */
export async function setup(...commands) {
  const names = [...new Set(commands.flatMap((command) => COMMANDS[command] ?? unknown(command)))];
  const missing = () => names.filter((name) => !NEEDS[name].present());
  let left = missing();
  if (left.length === 0) return;
  const began = performance.now();
  say(`missing: ${left.join(', ')}`);

  const fromDebian = left.filter((name) => NEEDS[name].debian);
  if (fromDebian.length > 0 && canUseApt()) {
    apt(() => [...new Set(fromDebian.flatMap((name) => NEEDS[name].debian()))]);
  } else {
    for (const name of fromDebian.filter((name) => NEEDS[name].rustup && runs('rustup'))) {
      say(`${name} by rustup`);
      await NEEDS[name].rustup();
    }
  }
  tools.lookAgain();

  const ours = left.filter((name) => NEEDS[name].install);
  if (ours.length > 0) say(`installing ${ours.join(', ')}`);
  const results = await Promise.allSettled(ours.map((name) => NEEDS[name].install()));
  const failure = results.find(({ status }) => status === 'rejected');
  if (failure) throw failure.reason;
  tools.lookAgain();

  left = missing();
  if (left.length > 0) {
    const advice = left.map((name) => `  ${name}: ${NEEDS[name].otherwise ?? 'was installed but does not run'}`);
    throw new Error(`still missing:\n${advice.join('\n')}`);
  }
  say(`done in ${((performance.now() - began) / 1000).toFixed(0)} s`);
}

function unknown(command) {
  throw new Error(`unknown command ${command}; known: ${Object.keys(COMMANDS).join(', ')}`);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  tools.stopOnSignals();
  const commands = process.argv.slice(2);
  setup(...(commands.length ? commands : ['start'])).catch((error) => {
    console.error(`setup: ${error.message}`);
    process.exitCode = 1;
  });
}
