// Runs programs, each in a process group of its own, so that whatever a program started ends with it:
// when it exits, when it takes too long, and when we are told to stop.
import { spawn, spawnSync } from 'node:child_process';

const posix = process.platform !== 'win32';
const running = new Set();
let stopping = false;

/** Were we told to stop? Then a program's end is no failure to report. */
export const isStopping = () => stopping;

/** How long a stopped program has to clean up before it is killed. */
const STOP_GRACE_MS = 5_000;

function signalGroup(child, signal) {
  try {
    if (posix) process.kill(-child.pid, signal);
    else child.kill(signal);
    return true;
  } catch {
    return false; // nothing of the group is left
  }
}

/**
 * Starts a program without waiting for it.
 *
 * `onLine(line, stream)` receives its output line by line; without it, the output goes to ours.
 * `child.done` resolves to `{ code, signal, timedOut }` when it has exited and its output is read. It never rejects:
 * a program that could not be started ends with the code 127.
 */
export function start(command, args = [], { cwd, env = process.env, onLine, timeoutMs } = {}) {
  if (stopping) throw new Error('told to stop');
  const child = spawn(command, args, {
    cwd,
    env,
    detached: posix,
    stdio: ['ignore', onLine ? 'pipe' : 'inherit', onLine ? 'pipe' : 'inherit'],
  });
  running.add(child);
  let timedOut = false;
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          timedOut = true;
          signalGroup(child, 'SIGKILL');
        }, timeoutMs);

  const rests = { stdout: '', stderr: '' };
  for (const stream of onLine ? ['stdout', 'stderr'] : []) {
    child[stream].setEncoding('utf8');
    child[stream].on('data', (text) => {
      const lines = (rests[stream] + text).split('\n');
      rests[stream] = lines.pop();
      for (const line of lines) onLine(line.replace(/\r$/, ''), stream);
    });
  }

  child.done = new Promise((resolve) => {
    const end = (code, signal) => {
      clearTimeout(timer);
      running.delete(child);
      for (const stream of ['stdout', 'stderr']) {
        if (rests[stream]) onLine(rests[stream], stream);
        rests[stream] = '';
      }
      resolve({ code, signal, timedOut });
    };
    child.on('error', (error) => {
      rests.stderr += onLine ? `${command}: ${error.message}` : '';
      if (!onLine) console.error(`${command}: ${error.message}`);
      end(127, null);
    });
    // What the program left behind would hold its output open, and `close` would never come.
    child.on('exit', () => signalGroup(child, 'SIGKILL'));
    child.on('close', (code, signal) => end(code, signal));
  });
  return child;
}

/** Stops a program and all that it started: SIGTERM, then SIGKILL after a grace. */
export async function stop(child) {
  if (!running.has(child)) return;
  signalGroup(child, 'SIGTERM');
  const timer = setTimeout(() => signalGroup(child, 'SIGKILL'), STOP_GRACE_MS);
  await child.done;
  clearTimeout(timer);
}

/** Stops every program that is still running. */
export async function stopAll() {
  await Promise.all([...running].map(stop));
}

/** Runs a program to its end; throws when it fails. Options as for `start`. */
export async function run(command, args = [], options = {}) {
  const { code, signal, timedOut } = await start(command, args, options).done;
  if (code === 0) return;
  const why = timedOut ? `took more than ${options.timeoutMs / 1000} s` : (signal ?? `exit code ${code}`);
  throw new Error(`failed (${why}): ${[command, ...args].join(' ')}`);
}

/** Runs a short program and returns what it printed, or `undefined` when it is missing or fails. */
export function capture(command, args = [], options = {}) {
  const { status, stdout } = spawnSync(command, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
    ...options,
  });
  return status === 0 ? stdout.trim() : undefined;
}

/** How often we look whether the shell that started us is still there. */
const PARENT_CHECK_MS = 250;

/**
 * On SIGINT, SIGTERM and SIGHUP: stops every program, then exits with the shell's code for that signal. The same when
 * npm dies that started us: it passes signals to its shell, which may die of them without a word to us.
 */
export function stopOnSignals() {
  const codes = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 };
  const end = async (code) => {
    if (stopping) return;
    stopping = true;
    await stopAll();
    // Whoever waited for a program tidies up now.
    await new Promise((resolve) => setTimeout(resolve, 50));
    process.exit(code);
  };
  for (const [signal, code] of Object.entries(codes)) process.on(signal, () => end(code));
  if (posix && process.env.npm_lifecycle_event) {
    const parent = process.ppid;
    setInterval(() => process.ppid !== parent && end(codes.SIGTERM), PARENT_CHECK_MS).unref();
  }
  // A crash of ours must not leave servers behind either. Nothing asynchronous runs here.
  process.on('exit', () => {
    for (const child of running) signalGroup(child, 'SIGKILL');
  });
}
