// Installs what a command needs, says what it does, and does nothing when all is there.
//
//   node scripts/setup.mjs start|build|test|bench|lint ...
//
// Debian packages are installed as root or through sudo; elsewhere rustup's components are used and browsers are
// expected to be installed. Tools from crates.io go to ~/.cache/inorder, each version in its own folder.
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as tools from './tools.mjs';

const { capture, root, versionOf } = tools;
const isRoot = process.getuid?.() === 0;

const say = (text) => console.log(`setup: ${text}`);
const runs = (program) => program !== undefined && versionOf(program) !== undefined;

/** Does `folder/node_modules` have the versions of the folder's lock file, or of another's? */
function nodeModulesAreCurrent(folder, { lockFolder = folder, dev = true } = {}) {
  try {
    const lock = JSON.parse(readFileSync(join(lockFolder, 'package-lock.json'), 'utf8')).packages;
    const installed = JSON.parse(readFileSync(join(folder, 'node_modules/.package-lock.json'), 'utf8')).packages;
    return Object.entries(lock)
      .filter(([path, entry]) => path !== '' && (dev || !entry.dev))
      .every(([path, { version, optional }]) => (installed[path]?.version ?? (optional && version)) === version);
  } catch {
    return false;
  }
}

const npmCi = (cwd, ...more) =>
  tools.run('npm', ['ci', ...more, '--no-audit', '--no-fund', '--loglevel=error'], { cwd });

/** The toolchains live below the build folder, where their apps find them. */
const toolchains = (options) => ({
  present: () => nodeModulesAreCurrent(tools.toolchainsDir, { lockFolder: toolchainsLock, ...options }),
  install: () => installToolchains(options),
});

const toolchainsLock = join(root, 'tests/toolchains');

async function installToolchains({ dev }) {
  const folder = tools.toolchainsDir;
  mkdirSync(folder, { recursive: true });
  for (const file of ['package.json', 'package-lock.json'])
    copyFileSync(join(toolchainsLock, file), join(folder, file));
  await npmCi(folder, '--ignore-scripts', ...(dev ? [] : ['--omit=dev']));
  // Bun's program is put in its place by its own script.
  if (dev) await tools.run('npm', ['rebuild', 'bun', '--ignore-scripts=false', '--loglevel=error'], { cwd: folder });
}

const NEEDS = {
  'node modules': {
    present: () => nodeModulesAreCurrent(root),
    install: () => npmCi(root),
  },
  'node modules of the peers': {
    present: () => nodeModulesAreCurrent(join(root, 'bench')),
    // Their scripts are for those who build them.
    install: () => npmCi(join(root, 'bench'), '--ignore-scripts'),
  },
  'node modules of the frameworks': {
    present: () => nodeModulesAreCurrent(join(root, 'tests/frameworks')),
    install: () => npmCi(join(root, 'tests/frameworks'), '--ignore-scripts'),
  },
  'node modules of the toolchains': toolchains({ dev: false }),
  'node modules of all toolchains': toolchains({ dev: true }),
  'native Rust': {
    present: () => tools.nativeCargo() !== undefined && runs('cc'),
    debian: () => ['gcc', 'libc6-dev', ...(tools.nativeCargo() ? [] : ['rustc-web', 'cargo-web'])],
    otherwise: 'install Rust from https://rustup.rs (see rust-version in Cargo.toml) and a C compiler',
  },
  'C++ compiler': {
    present: () => runs('c++'),
    debian: () => ['g++'],
    otherwise: 'install a C++ compiler, which libFuzzer is built with',
  },
  'Rust for wasm': {
    present: () => tools.webToolchain() !== undefined,
    debian: () => ['rustc-web', 'cargo-web', 'rust-web-src', 'rust-web-llvm', lld()],
    rustup: async () => {
      await tools.run('rustup', ['component', 'add', 'rust-src']);
      await tools.run('rustup', ['target', 'add', 'wasm32-unknown-unknown']);
    },
    otherwise:
      'rustup component add rust-src && rustup target add wasm32-unknown-unknown; ' +
      'on Debian, have the security updates in the sources of apt, for a new enough rustc-web',
  },
  'wasm-bindgen': {
    present: () =>
      versionOf(tools.cargoTools['wasm-bindgen-cli'].path) === tools.cargoTools['wasm-bindgen-cli'].version,
    install: () => cargoInstall('wasm-bindgen-cli', { optimise: 1 }),
  },
  'cargo-deny': {
    present: () => versionOf(tools.cargoTools['cargo-deny'].path) === tools.cargoTools['cargo-deny'].version,
    install: () => cargoInstall('cargo-deny', { features: ['--no-default-features'] }),
  },
  'cargo-mutants': {
    present: () => existsSync(tools.cargoTools['cargo-mutants'].path),
    install: () => cargoInstall('cargo-mutants', { optimise: 1 }),
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
  nginx: {
    present: () => tools.findNginx() !== undefined && capture('openssl', ['version']) !== undefined,
    debian: () => ['nginx-light', 'openssl'],
    otherwise: 'install nginx and openssl, or set NGINX to its path',
  },
  PostgreSQL: {
    present: () => tools.findPostgres() !== undefined,
    debian: () => ['postgresql'],
    otherwise: 'install PostgreSQL, or set POSTGRES_BIN to the folder of its programs (initdb, postgres, psql)',
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
  WebKit: {
    // Only on Linux does it come with a driver. Neither the driver nor Xvfb says its version.
    present: () =>
      process.platform !== 'linux' ||
      [tools.findWebkitDriver(), tools.findWebkitBrowser(), tools.findXvfb()].every((path) => path && existsSync(path)),
    debian: () => ['webkit2gtk-driver', 'xvfb'],
    otherwise:
      'install WebKitGTK with WebKitWebDriver, and Xvfb, or set WEBKITDRIVER, WEBKITBROWSER and XVFB to their paths',
  },
  ps: {
    // Only on Linux does it tell its version, and may it be missing.
    present: () => process.platform !== 'linux' || runs('ps'),
    debian: () => ['procps'],
    otherwise: 'install ps, which finds the processes of a page that are to stand still',
  },
};

const BUILD = ['node modules', 'native Rust', 'Rust for wasm'];
const LINT = ['node modules', 'native Rust', 'Rust for wasm', 'rustfmt', 'clippy', 'clippy for wasm'];
const BROWSERS = ['Chromium', 'Firefox', 'geckodriver', 'WebKit', 'ps'];

/** What each command needs. */
export const COMMANDS = {
  start: BUILD,
  build: BUILD,
  postgres: [...BUILD, 'PostgreSQL', 'nginx'],
  lint: LINT,
  docs: ['node modules'],
  proof: [...BUILD, 'Chromium', 'C++ compiler'],
  soak: [...BUILD, ...BROWSERS],
  fuzz: ['native Rust', 'C++ compiler'],
  mutants: ['native Rust', 'cargo-mutants'],
  audit: ['native Rust', 'cargo-deny'],
  bench: [...BUILD, 'node modules of the peers', 'Chromium'],
  toolchains: [...BUILD, 'node modules of all toolchains', 'Chromium'],
  test: [
    ...new Set([...BUILD, ...LINT, ...BROWSERS, 'wasm-bindgen', 'C++ compiler', 'cargo-deny']),
    'node modules of the toolchains',
    'node modules of the frameworks',
  ],
};

const runsCargo = (subcommand) =>
  tools.nativeCargo() !== undefined &&
  capture(tools.nativeCargo(), [subcommand, '--version'], { env: tools.nativeCargoEnv() }) !== undefined;

/** For output that we read. */
const IN_ENGLISH = { env: { ...process.env, LC_ALL: 'C' } };

/** Debian's linker for wasm is of the same release as the LLVM that its Rust is built with. */
function lld() {
  const llvm = capture('apt-cache', ['depends', 'rust-web-llvm'], IN_ENGLISH)?.match(/\bllvm-(\d+)\b/)?.[1];
  return llvm ? `lld-${llvm}` : 'lld';
}

/** Most tools work for a second each time, so that half the time to build them is the better bargain. */
const quicklyBuilt = (optimise) => ({
  CARGO_PROFILE_RELEASE_OPT_LEVEL: String(optimise),
  CARGO_PROFILE_RELEASE_CODEGEN_UNITS: '16',
  CARGO_PROFILE_RELEASE_LTO: 'off',
  CARGO_PROFILE_RELEASE_DEBUG: '0',
});

async function cargoInstall(crate, { features = [], optimise = 0 } = {}) {
  const { version, folder } = tools.cargoTools[crate];
  mkdirSync(tools.cacheDir, { recursive: true });
  // Built beside its place and renamed, so that an interrupted build is not mistaken for the tool.
  const fresh = `${folder}.${process.pid}`;
  const install = (...how) =>
    tools.run(
      tools.nativeCargo(),
      ['install', ...how, ...features, '--quiet', '--version', version, '--root', fresh, crate],
      {
        env: tools.nativeCargoEnv({ CARGO_TARGET_DIR: join(fresh, 'build'), ...quicklyBuilt(optimise) }),
      },
    );
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

/**
 * Runs a program as root; resolves to whether it succeeded. In our own process group, other than what `tools.start`
 * starts: sudo may ask at the terminal.
 */
function asRoot(command, args) {
  const environment = ['env', 'DEBIAN_FRONTEND=noninteractive'];
  const [program, ...rest] = [...(isRoot ? [] : ['sudo']), ...environment, command, ...args];
  return new Promise((resolve) => {
    const child = spawn(program, rest, { stdio: ['inherit', 'ignore', 'inherit'] });
    child.once('error', () => resolve(false)).once('close', (code) => resolve(code === 0));
  });
}

const hasApt = () => existsSync('/etc/debian_version') && existsSync('/usr/bin/apt-get') && (isRoot || runs('sudo'));

/** Does apt have all of these? Debian's rustup excludes Debian's compilers. */
function aptHas(packages) {
  const candidate = (name) => /Candidate: (?!\(none\))/.test(capture('apt-cache', ['policy', name], IN_ENGLISH) ?? '');
  const rustup = /^Status: install ok installed/m.test(capture('dpkg', ['-s', 'rustup'], IN_ENGLISH) ?? '');
  return packages.every((name) => candidate(name) && !(rustup && /^(rust|cargo)/.test(name)));
}

/** A fresh image has no package lists, and old lists name files that are gone. */
async function updateDebian() {
  say('apt-get update');
  if (!(await asRoot('apt-get', ['update', '-qq'])))
    say('apt-get update failed; going on with the lists that are there');
}

/** Installs Debian's packages for as many of the named needs as Debian has packages for; resolves to the others. */
async function installFromDebian(names) {
  const packagesOf = new Map(names.map((name) => [name, NEEDS[name].debian()]));
  const served = names.filter((name) => aptHas(packagesOf.get(name)));
  const packages = [...new Set(served.flatMap((name) => packagesOf.get(name)))];
  if (packages.length > 0) {
    say(`apt-get install ${packages.join(' ')}`);
    const options = ['-y', '-qq', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=300'];
    if (!(await asRoot('apt-get', ['install', ...options, ...packages]))) throw new Error('apt-get install failed');
  }
  return names.filter((name) => !served.includes(name));
}

/** Installs what is packaged: by apt, or by rustup what apt does not have. */
async function installPackages(names, apt) {
  const rest = apt && names.length > 0 ? await installFromDebian(names) : names;
  for (const name of rest.filter((name) => NEEDS[name].rustup && runs('rustup'))) {
    say(`${name} by rustup`);
    await NEEDS[name].rustup();
  }
  tools.lookAgain();
}

/** Installs what is missing for the commands named; throws with advice when that is not possible. */
export async function setup(...commands) {
  const names = [...new Set(commands.flatMap((command) => COMMANDS[command] ?? unknown(command)))];
  const missing = () => names.filter((name) => !NEEDS[name].present());
  let left = missing();
  if (left.length === 0) return;
  const began = performance.now();
  say(`missing: ${left.join(', ')}`);

  const packaged = left.filter((name) => NEEDS[name].debian);
  const apt = packaged.length > 0 && hasApt();
  if (apt) await updateDebian();
  // What our tools are built with comes first; the browsers come while those are built.
  await installPackages(
    packaged.filter((name) => BUILD.includes(name)),
    apt,
  );
  const ours = left.filter((name) => NEEDS[name].install);
  if (ours.length > 0) say(`installing ${ours.join(', ')}`);
  const results = await Promise.allSettled([
    ...ours.map((name) => NEEDS[name].install()),
    installPackages(
      packaged.filter((name) => !BUILD.includes(name)),
      apt,
    ),
  ]);
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
    if (!tools.isStopping()) console.error(`setup: ${error.message}`);
    process.exitCode = 1;
  });
}
