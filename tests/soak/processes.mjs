// Stops the processes that draw a page, as a machine that sleeps does.
import { capture } from '../../scripts/tools.mjs';

/** The processes below one, each with its command line. */
function below(pid) {
  const all = (capture('ps', ['-A', '-o', 'pid=,ppid=,args=']) ?? '').split('\n').map((line) => {
    const [, own, parent, command] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line) ?? [];
    return { pid: Number(own), parent: Number(parent), command };
  });
  const found = [];
  const add = (parent) => {
    for (const process of all) {
      if (process.parent !== parent) continue;
      found.push(process);
      add(process.pid);
    }
  };
  add(pid);
  return found;
}

/** Stops what `isPage` finds below a process for a while; returns how many there were. */
export async function suspend(pid, isPage, ms) {
  const pages = below(pid).filter(({ command }) => isPage(command));
  const signal = (name) => {
    for (const { pid } of pages) {
      try {
        process.kill(pid, name);
      } catch {
        // It ended meanwhile.
      }
    }
  };
  signal('SIGSTOP');
  try {
    await new Promise((resolve) => setTimeout(resolve, ms));
  } finally {
    signal('SIGCONT');
  }
  return pages.length;
}
