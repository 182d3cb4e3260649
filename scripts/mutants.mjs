// npm run mutants: changes the core in one place at a time; some test must notice. cargo-mutants says which changes, the
// unit tests of the core and tests/{counters,limits,accept,judge,wire}.rs judge them.
//
//   npm run mutants                      all of them
//   npm run mutants -- --shard 3/20      every twentieth, from the third on
//   npm run mutants -- src/gap.rs        those whose name has this in it; several words: any of them
//
// Building each mutant takes ten times as long as judging it. So all are written into one copy of the source, each as
// another body of its function behind a number that the environment gives, and that copy is built once. The few outside
// of functions, in constants, are built one by one. One that the compiler refuses is left out.
//
// tests/mutants.toml says what is changed and what is skipped. A mutant that is not noticed is printed and fails.
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { setup } from './setup.mjs';
import * as tools from './tools.mjs';

const { nativeCargo, nativeCargoEnv, root, targetDir } = tools;

/** Who judges, the sharpest first. */
const JUDGES = ['lib', 'counters', 'limits', 'accept', 'judge', 'wire'];
const JUDGE_ARGS = JUDGES.map((name) => (name === 'lib' ? '--lib' : `--test=${name}`));

/** Of one judge, in seconds of CPU. Each needs less than one; a mutant that loops takes for ever. */
const CPU_S = 5;
/** The same by the clock, for a mutant that waits. */
const TIMEOUT_S = 60;
/** A mutant that allocates for ever must not take the machine with it. */
const ADDRESS_SPACE_KIB = 2 << 20;

/** Mutants that may be skipped, each with a reason in tests/mutants.toml. */
const SKIPPED_SHARE = 0.03;

const config = join(root, 'tests/mutants.toml');
const folder = join(targetDir, 'mutants');
/** The copy of the source that has all mutants in it. */
const tree = join(folder, 'tree');

const cargoMutants = (...args) => ['mutants', '--dir', root, '--package', 'inorder', '--colors=never', ...args];

/** The mutants that a configuration leaves. */
function list(configuration) {
  const args = cargoMutants('--list', '--json', '--config', configuration);
  const options = { cwd: root, env: nativeCargoEnv({ CARGO: nativeCargo() }), maxBuffer: 64 << 20 };
  return JSON.parse(tools.capture(tools.cargoTools['cargo-mutants'].path, args, options) ?? '[]');
}

/** The configuration without the skip list, which is the last of the file. */
function withoutSkips() {
  const path = join(folder, 'all.toml');
  writeFileSync(path, readFileSync(config, 'utf8').replace(/^exclude_re = [\s\S]*$/m, ''));
  return path;
}

function chosen(mutants, args) {
  const shard = args.indexOf('--shard');
  const [k, n] = shard < 0 ? [0, 1] : args[shard + 1].split('/').map(Number);
  const words = shard < 0 ? args : args.toSpliced(shard, 2);
  if (!(k < n) || words.some((word) => word.startsWith('-'))) throw new Error('--shard k/n, or words of names');
  const named = mutants.filter(({ name }) => words.length === 0 || words.some((word) => name.includes(word)));
  return named.filter((_, at) => at % n === k);
}

/** Where in a text a line and column is. */
function offsets(text) {
  const lines = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines.push(at + 1);
  return ({ line, column }) => lines[line - 1] + column - 1;
}

/** The functions of a file that have mutants, each with where its body is. */
function functions(text, mutants) {
  const offset = offsets(text);
  const found = new Map();
  for (const mutant of mutants) {
    const [start, end] = [offset(mutant.function.span.start), offset(mutant.function.span.end)];
    if (!found.has(start)) {
      // The body begins at the first brace outside of all parentheses.
      let at = start;
      for (let depth = 0; depth > 0 || text[at] !== '{'; at++)
        depth += '(['.includes(text[at]) - ')]'.includes(text[at]);
      found.set(start, { open: at + 1, close: end - 1, mutants: [] });
    }
    found.get(start).mutants.push({ mutant, from: offset(mutant.span.start), to: offset(mutant.span.end) });
  }
  return [...found.values()].toSorted((a, b) => a.open - b.open);
}

/** Writes a file with all its mutants; returns on which lines each is. */
function write(file, mutants, numbers) {
  const text = readFileSync(join(root, file), 'utf8');
  const places = [];
  let [written, line, done] = ['', 1, 0];
  const add = (piece) => {
    written += piece;
    line += piece.split('\n').length - 1;
  };
  for (const { open, close, mutants: bodies } of functions(text, mutants)) {
    add(`${text.slice(done, open)} match crate::mutant() {\n`);
    for (const { mutant, from, to } of bodies) {
      const first = line;
      const body = text.slice(open, from) + mutant.replacement + text.slice(to, close);
      add(`${numbers.get(mutant)} => {${body}\n}\n`);
      places.push({ mutant, file, first, last: line - 1 });
    }
    add(`_ => {${text.slice(open, close)}\n} }`);
    done = close;
  }
  add(text.slice(done));
  if (file === 'src/lib.rs') add(SWITCH);
  const path = join(tree, file);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, written);
  return places;
}

/** Which mutant is on; none is 0. */
const SWITCH = `
#[inline]
fn mutant() -> u32 {
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *ON.get_or_init(|| std::env::var("INORDER_MUTANT").map_or(0, |number| number.parse().unwrap()))
}
`;

/** Cargo's messages about the copy. */
async function cargo(...args) {
  const messages = [];
  const { code } = await tools.start(
    nativeCargo(),
    [...args, '--profile=mutants', '--offline', '--quiet', '--message-format=json'],
    {
      cwd: tree,
      env: nativeCargoEnv({ CARGO_TARGET_DIR: join(folder, 'build'), RUSTFLAGS: '--cap-lints=allow' }),
      onLine: (line, stream) => (stream === 'stdout' ? messages.push(JSON.parse(line)) : undefined),
    },
  ).done;
  return { code, messages };
}

/** What the compiler says that it does not like. */
const complaints = (messages) => messages.map(({ message }) => message?.rendered ?? '').join('');

/** Builds the judges of the copy; nothing, if it does not compile. */
async function compile() {
  const { code, messages } = await cargo('test', '--no-run', ...JUDGE_ARGS);
  if (code !== 0) return undefined;
  const programs = new Map(
    messages.filter(({ executable }) => executable).map(({ target, executable }) => [target.name, executable]),
  );
  programs.set('lib', programs.get('inorder'));
  return JUDGES.map((name) => programs.get(name));
}

/** Writes all mutants into the copy, without those that do not compile. */
async function weave(files, mutants) {
  const numbers = new Map(mutants.map((mutant, at) => [mutant, at + 1]));
  const unviable = new Set();
  for (;;) {
    const left = mutants.filter((mutant) => !unviable.has(mutant));
    const places = files.flatMap((file) =>
      write(
        file,
        left.filter((mutant) => mutant.file === file),
        numbers,
      ),
    );
    const { code, messages } = await cargo('check', '--lib');
    if (code === 0) return { numbers, unviable };
    const before = unviable.size;
    for (const { message } of messages) {
      for (const { file_name, line_start, is_primary } of message?.level === 'error' ? message.spans : []) {
        const at = places.find(
          ({ file, first, last }) => is_primary && file === file_name && first <= line_start && line_start <= last,
        );
        if (at) unviable.add(at.mutant);
      }
    }
    if (unviable.size === before) throw new Error(complaints(messages).slice(-4000));
  }
}

/** Judges one: 'Caught', 'Timeout' or 'Missed'. */
async function judge(programs, number) {
  const limits = `ulimit -v ${ADDRESS_SPACE_KIB}; ulimit -t ${CPU_S}; exec "$0"`;
  const env = { ...process.env, INORDER_MUTANT: `${number}`, RUST_TEST_THREADS: '1', RUST_BACKTRACE: '0' };
  for (const program of programs) {
    const { code, signal, timedOut } = await tools.start('sh', ['-c', limits, program], {
      cwd: root,
      env,
      onLine: () => {},
      timeoutMs: TIMEOUT_S * 1000,
    }).done;
    if (timedOut || ['SIGKILL', 'SIGXCPU'].includes(signal)) return 'Timeout';
    if (code !== 0) return 'Caught';
  }
  return 'Missed';
}

/** Judges one that is outside of functions: it is built by itself. */
async function alone({ file, span, replacement }) {
  const text = readFileSync(join(root, file), 'utf8');
  const offset = offsets(text);
  writeFileSync(join(tree, file), text.slice(0, offset(span.start)) + replacement + text.slice(offset(span.end)));
  const programs = await compile();
  writeFileSync(join(tree, file), text);
  return programs ? judge(programs, 0) : 'Unviable';
}

async function main() {
  await setup('mutants');
  mkdirSync(folder, { recursive: true });
  const [all, left] = [list(withoutSkips()), list(config)];
  const share = all.length > 0 ? (all.length - left.length) / all.length : 1;
  console.log(
    `${all.length} mutants, ${all.length - left.length} skipped with a reason (${(share * 100).toFixed(1)} %)`,
  );
  const mutants = chosen(left, process.argv.slice(2));
  if (mutants.length < left.length) console.log(`${mutants.length} of them now`);

  const constant = ({ file, function: inside }) =>
    !inside || /\bconst fn\b/.test(readFileSync(join(root, file), 'utf8').split('\n')[inside.span.start.line - 1]);
  const inside = mutants.filter((mutant) => !constant(mutant));
  const outside = mutants.filter(constant);
  const count = { Caught: 0, Timeout: 0, Unviable: 0, Missed: 0 };
  const tell = ({ name }, outcome) => {
    if (!(outcome in count)) throw new Error(`nobody judged ${name}`);
    count[outcome]++;
    if (outcome === 'Missed' || outcome === 'Timeout') console.log(`${outcome.toLowerCase()} ${name}`);
  };
  rmSync(tree, { recursive: true, force: true });
  mkdirSync(tree, { recursive: true });
  for (const name of ['Cargo.toml', 'Cargo.lock', 'tests', 'examples', 'demo']) {
    symlinkSync(join(root, name), join(tree, name));
  }
  const files = tools.capture('git', ['ls-files', 'src'], { cwd: root }).split('\n');
  const { numbers, unviable } = await weave(files, inside);
  const programs = await compile();
  if (!programs || (await judge(programs, 0)) !== 'Missed')
    throw new Error('the tests fail before anything is changed');
  for (const mutant of unviable) tell(mutant, 'Unviable');
  const waiting = inside.filter((mutant) => !unviable.has(mutant));
  const worker = async () => {
    for (let mutant = waiting.shift(); mutant && !tools.isStopping(); mutant = waiting.shift()) {
      tell(mutant, await judge(programs, numbers.get(mutant)));
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  await weave(files, []);
  for (const mutant of outside) tell(mutant, await alone(mutant));
  const { Caught, Timeout, Unviable, Missed } = count;
  console.log(`${Caught} caught, ${Timeout} ran into the time limit, ${Unviable} do not compile, ${Missed} missed`);
  const tooMany = share > SKIPPED_SHARE;
  if (tooMany) console.log(`more than ${SKIPPED_SHARE * 100} % are skipped`);
  console.log(`${Caught + Timeout} passed, ${Missed + tooMany} failed`);
  if (Missed > 0 || tooMany || Caught + Timeout === 0) process.exitCode = 1;
}

tools.stopOnSignals();
main().catch((error) => {
  if (!tools.isStopping()) console.error(`mutants: ${error.message}`);
  process.exitCode = 1;
});
