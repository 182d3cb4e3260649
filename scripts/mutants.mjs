// npm run mutants: changes the core in one place at a time; some test must notice. cargo-mutants makes the changes, the
// unit tests of the core and tests/{counters,limits,accept,judge,wire}.rs judge them.
//
//   npm run mutants                          all of them: hours
//   npm run mutants -- --shard 3/20          every twentieth, from the third on
//   npm run mutants -- --file 'src/gap.rs'   those of a file
//
// tests/mutants.toml says what is changed and what is skipped. A mutant that is not noticed is printed and fails.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setup } from './setup.mjs';
import * as tools from './tools.mjs';

const { nativeCargoEnv, root, targetDir } = tools;

/** Who judges, the sharpest first. */
const JUDGES = ['--lib', '--test=counters', '--test=limits', '--test=accept', '--test=judge', '--test=wire'];

/** The judge takes a second or two; a mutant that loops takes for ever. */
const TIMEOUT_S = 40;

/** A mutant that allocates for ever must not take the machine with it. Compilers want some address space. */
const ADDRESS_SPACE_KIB = 8 << 20;

/** Mutants that may be skipped, each with a reason in tests/mutants.toml. */
const SKIPPED_SHARE = 0.03;

const config = join(root, 'tests/mutants.toml');
const output = join(targetDir, 'mutants');

const tool = (...args) => ['mutants', '--dir', root, '--package', 'inorder', '--colors=never', ...args];

/** How many mutants there are with and without the skip list. */
function count(more) {
  const list = (...args) =>
    tools
      .capture(tools.cargoTools['cargo-mutants'].path, tool('--list', ...args, ...more), {
        cwd: root,
        env: environment(),
        maxBuffer: 64 << 20,
      })
      ?.split('\n')
      .filter(Boolean).length ?? 0;
  const all = join(output, 'all.toml');
  mkdirSync(output, { recursive: true });
  // The same without the skip list, which is the last of the file.
  writeWithout(all);
  return { left: list('--config', config), all: list('--config', all) };
}

function writeWithout(path) {
  writeFileSync(path, readFileSync(config, 'utf8').replace(/^exclude_re = [\s\S]*$/m, ''));
}

const environment = () => nativeCargoEnv({ CARGO: tools.nativeCargo(), CARGO_TARGET_DIR: undefined });

async function main() {
  const more = process.argv.slice(2);
  await setup('mutants');
  const { left, all } = count(more.filter((_, i) => !['--shard'].includes(more[i]) && more[i - 1] !== '--shard'));
  const share = all > 0 ? (all - left) / all : 0;
  console.log(`${all} mutants, ${all - left} of them skipped with a reason (${(share * 100).toFixed(1)} %)`);

  rmSync(join(output, 'mutants.out'), { recursive: true, force: true });
  const args = tool('--config', config, '--profile', 'mutants', '--output', output, '--timeout', `${TIMEOUT_S}`);
  args.push('--baseline=run', '--sharding=round-robin', '--no-shuffle', ...more);
  // For the build as well as for the run: a mutant is built for its judges alone.
  for (const judge of JUDGES) args.push(`--cargo-arg=${judge}`);
  const limited = `ulimit -v ${ADDRESS_SPACE_KIB}; exec "$@"`;
  await tools.start('sh', ['-c', limited, 'sh', tools.cargoTools['cargo-mutants'].path, ...args], {
    cwd: root,
    env: environment(),
  }).done;
  if (tools.isStopping()) return;

  const { outcomes } = JSON.parse(readFileSync(join(output, 'mutants.out/outcomes.json'), 'utf8'));
  const sum = {};
  const missed = [];
  for (const { scenario, summary } of outcomes) {
    if (scenario === 'Baseline') {
      if (summary !== 'Success') throw new Error('the tests fail before anything is changed');
      continue;
    }
    sum[summary] = (sum[summary] ?? 0) + 1;
    if (summary === 'MissedMutant') missed.push(scenario.Mutant.name);
  }
  for (const name of missed) console.log(`missed ${name}`);
  const { CaughtMutant = 0, Timeout = 0, Unviable = 0 } = sum;
  console.log(
    `${CaughtMutant} caught, ${Timeout} ran into the time limit, ${Unviable} do not compile, ${missed.length} missed`,
  );
  if (share > SKIPPED_SHARE) console.log(`more than ${SKIPPED_SHARE * 100} % are skipped`);
  console.log(`${CaughtMutant + Timeout} passed, ${missed.length + (share > SKIPPED_SHARE ? 1 : 0)} failed`);
  if (missed.length > 0 || share > SKIPPED_SHARE || CaughtMutant + Timeout === 0) process.exitCode = 1;
}

tools.stopOnSignals();
main().catch((error) => {
  if (!tools.isStopping()) console.error(`mutants: ${error.message}`);
  process.exitCode = 1;
});
