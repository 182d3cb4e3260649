// npm run fuzz: frames, choices and options from a fuzzer, each against a naive model (fuzz/).
//
//   npm run fuzz                       60 s over the three targets
//   npm run fuzz -- --seconds 600      longer
//   npm run fuzz -- --asan             with AddressSanitizer, where the toolchain brings its runtime
//   npm run fuzz -- frames options     only these
//
// libFuzzer guides itself by coverage. Its instrumentation is LLVM's and needs no nightly compiler; `cargo fuzz` works on
// the same folder. Every run starts from the corpus in the repository, one of a minute with the same seed each time. What
// breaks something is kept in fuzz/artifacts and printed; once it is fixed it belongs into the corpus.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setup } from './setup.mjs';
import * as tools from './tools.mjs';

const { nativeCargo, nativeCargoEnv, root } = tools;

const TARGETS = ['frames', 'choices', 'options'];
const SECONDS = 60;

/** One input needs milliseconds. */
const HANG_S = 20;
/** One input needs a few MiB; libFuzzer itself about thirty. */
const MEMORY_MIB = 1024;
/** Longer inputs find nothing that shorter ones do not. */
const LONGEST = 4096;

/** What cargo-fuzz passes, too. */
const COVERAGE = [
  '-Cpasses=sancov-module',
  '-Cllvm-args=-sanitizer-coverage-level=4',
  '-Cllvm-args=-sanitizer-coverage-inline-8bit-counters',
  '-Cllvm-args=-sanitizer-coverage-pc-table',
  '-Cllvm-args=-sanitizer-coverage-trace-compares',
  '--cfg=fuzzing',
];

const folder = join(root, 'fuzz');

function options(args) {
  const chosen = { seconds: SECONDS, asan: false, targets: [] };
  for (let i = 0; i < args.length; i++) {
    if (args[i] === '--asan') chosen.asan = true;
    else if (args[i] === '--seconds') chosen.seconds = Number(args[++i]);
    else if (TARGETS.includes(args[i])) chosen.targets.push(args[i]);
    else throw new Error(`unknown argument ${args[i]}; targets: ${TARGETS.join(', ')}`);
  }
  if (!(chosen.seconds > 0)) throw new Error('--seconds needs a number');
  if (chosen.targets.length === 0) chosen.targets = TARGETS;
  return chosen;
}

/** Does the compiler bring the runtime of AddressSanitizer? */
function hasAsan(host) {
  const sysroot = tools.capture(nativeCargoEnv().RUSTC ?? 'rustc', ['--print', 'sysroot']);
  const libraries = join(sysroot ?? '', 'lib/rustlib', host, 'lib');
  return existsSync(libraries) && readdirSync(libraries).some((name) => name.endsWith('_rt.asan.a'));
}

async function build(asan) {
  const host = tools.capture(nativeCargoEnv().RUSTC ?? 'rustc', ['-vV'])?.match(/host: (\S+)/)?.[1];
  if (!host) throw new Error('rustc does not say its host');
  const target = join(tools.targetDir, asan ? 'fuzz-asan' : 'fuzz');
  const flags = asan ? [...COVERAGE, '-Zsanitizer=address'] : COVERAGE;
  await tools.run(
    nativeCargo(),
    ['build', '--release', '--locked', '--quiet', '--manifest-path', join(folder, 'Cargo.toml'), '--target', host],
    {
      cwd: root,
      env: nativeCargoEnv({
        CARGO_TARGET_DIR: target,
        CARGO_ENCODED_RUSTFLAGS: flags.join('\x1f'),
        ...(asan && { RUSTC_BOOTSTRAP: '1' }),
      }),
    },
  );
  return (name) => join(target, host, 'release', name);
}

/** Fuzzes one target; resolves to what it says of itself. */
async function fuzz(name, program, seconds, asan) {
  const fresh = mkdtempSync(join(tmpdir(), `inorder-fuzz-${name}-`));
  const artifacts = join(folder, 'artifacts', name);
  mkdirSync(artifacts, { recursive: true });
  const lines = [];
  const dictionary = join(folder, 'frames.dict');
  try {
    const { code } = await tools.start(
      program,
      [
        fresh,
        join(folder, 'corpus', name),
        `-max_total_time=${Math.ceil(seconds)}`,
        // The short form of `npm test` takes the same way each time; longer ones look elsewhere.
        ...(seconds <= SECONDS ? ['-seed=1'] : []),
        `-max_len=${LONGEST}`,
        `-timeout=${HANG_S}`,
        `-rss_limit_mb=${MEMORY_MIB}`,
        `-artifact_prefix=${artifacts}/`,
        ...(name === 'choices' ? [] : [`-dict=${dictionary}`]),
      ],
      { cwd: root, onLine: (line) => lines.push(line), timeoutMs: (seconds + 120) * 1000 },
    ).done;
    const last = (pattern) => lines.reduce((found, line) => line.match(pattern)?.[1] ?? found, undefined);
    const runs = Number(last(/^Done (\d+) runs/) ?? last(/^#(\d+)/) ?? 0);
    const said = `${name}: ${runs} runs, ${last(/cov: (\d+)/) ?? 0} edges, ${seconds.toFixed(0)} s${asan ? ' with AddressSanitizer' : ''}`;
    const ok = code === 0 && runs > 0;
    if (!ok) console.log(lines.slice(-60).join('\n'));
    console.log(ok ? said : `${said}: BROKEN, see above and fuzz/artifacts/${name}`);
    return ok;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

async function main() {
  const { seconds, asan: wanted, targets } = options(process.argv.slice(2));
  await setup('fuzz');
  const host = tools.capture(nativeCargoEnv().RUSTC ?? 'rustc', ['-vV'])?.match(/host: (\S+)/)?.[1] ?? '';
  const asan = wanted && hasAsan(host);
  if (wanted && !asan) console.log('without AddressSanitizer: this toolchain has no runtime for it');
  const program = await build(asan);
  // So many at a time as there are cores; `seconds` are those of the fuzzers together.
  const waiting = [...targets];
  const results = [];
  const worker = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      results.push(await fuzz(name, program(name), seconds / targets.length, asan));
    }
  };
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), targets.length) }, worker));
  const passed = results.filter(Boolean).length;
  console.log(`${passed} passed, ${results.length - passed} failed`);
  if (passed < targets.length) process.exitCode = 1;
}

tools.stopOnSignals();
main().catch((error) => {
  if (!tools.isStopping()) console.error(`fuzz: ${error.message}`);
  process.exitCode = 1;
});
