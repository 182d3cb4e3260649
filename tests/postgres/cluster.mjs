// Debian's PostgreSQL on a free port, in a temporary folder, for as long as a test runs.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findPostgres } from '../../scripts/tools.mjs';

/** No step of PostgreSQL takes longer, or something is wrong. */
const PATIENCE_MS = 60_000;
const USER = 'inorder';

/** PostgreSQL does not run as root; `nobody` is a user that every system has. */
function other() {
  if (process.getuid() !== 0) return undefined;
  const id = (flag) => Number(spawnSync('id', [flag, 'nobody'], { encoding: 'utf8' }).stdout);
  return { uid: id('-u'), gid: id('-g') };
}

/** A port that nothing listens on. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** A PostgreSQL server. It ends with its process. */
export class Cluster {
  #user = other();
  #bin = findPostgres();
  #server;
  folder = mkdtempSync(join(tmpdir(), 'inorder-postgres-'));

  constructor() {
    chmodSync(this.folder, 0o755);
    if (this.#user) chownSync(this.folder, this.#user.uid, this.#user.gid);
    process.once('exit', () => this.#kill());
  }

  static async start() {
    const cluster = new Cluster();
    cluster.port = await freePort();
    cluster.run('initdb', '-D', cluster.data, '-U', USER, '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync');
    await cluster.up();
    return cluster;
  }

  get data() {
    return join(this.folder, 'data');
  }

  /** Where a gateway finds it. Each schema is a log of its own. */
  url(schema) {
    const options = schema ? `?options=-csearch_path%3D${schema}` : '';
    return `postgres://${USER}@127.0.0.1:${this.port}/postgres${options}`;
  }

  /** Where one of PostgreSQL's programs lies. */
  program(name) {
    return join(this.#bin, name);
  }

  /** Runs one of PostgreSQL's programs to its end, as the server's user; returns what it printed. */
  run(program, ...args) {
    const done = spawnSync(this.program(program), args, {
      ...this.#user,
      cwd: this.folder,
      encoding: 'utf8',
      timeout: PATIENCE_MS,
      maxBuffer: 1 << 30,
    });
    if (done.status !== 0) throw new Error(`${program} failed: ${done.stderr || done.error?.message || done.signal}`);
    return done.stdout;
  }

  /** One statement; the answer as text, columns apart by `|`. */
  sql(statement) {
    return this.run('psql', '-X', '-q', '-At', '-v', 'ON_ERROR_STOP=1', '-c', statement, this.url()).trimEnd();
  }

  /** CPU seconds that its processes have used. */
  cpu() {
    const ids = spawnSync('pgrep', ['-P', String(this.#server.pid)], { encoding: 'utf8' })
      .stdout.trim()
      .split('\n');
    const seconds = [String(this.#server.pid), ...ids].map((id) => {
      try {
        const [, fields] = readFileSync(`/proc/${id}/stat`, 'latin1').split(') ');
        // Those of children that ended count too.
        return (
          fields
            .split(' ')
            .slice(11, 15)
            .reduce((sum, ticks) => sum + Number(ticks), 0) / 100
        );
      } catch {
        return 0;
      }
    });
    return seconds.reduce((sum, value) => sum + value, 0);
  }

  /** Gives the files that a test put there to the server's user. */
  own() {
    if (!this.#user) return;
    const { uid, gid } = this.#user;
    for (const name of ['', ...readdirSync(this.data, { recursive: true })]) chownSync(join(this.data, name), uid, gid);
    chmodSync(this.data, 0o700);
  }

  async up() {
    const settings = [
      'shared_buffers=64MB',
      'max_connections=200',
      'recovery_init_sync_method=syncfs',
      'unix_socket_directories=',
      'listen_addresses=127.0.0.1',
      'log_min_messages=fatal',
    ];
    const flags = settings.flatMap((setting) => ['-c', setting]);
    const args = ['-D', this.data, '-p', String(this.port), ...flags];
    this.#server = spawn(join(this.#bin, 'postgres'), args, {
      ...this.#user,
      cwd: this.folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    this.#server.stderr.on('data', (text) => (said = `${said}${text}`.slice(-4_000)));
    for (const since = Date.now(); ; await sleep(50)) {
      if (this.#server.exitCode !== null) throw new Error(`PostgreSQL ended: ${said}`);
      const ready = spawnSync(join(this.#bin, 'pg_isready'), ['-q', '-h', '127.0.0.1', '-p', String(this.port)]);
      if (ready.status === 0) return;
      if (Date.now() - since > PATIENCE_MS) throw new Error(`PostgreSQL did not come up: ${said}`);
    }
  }

  /** Stops it: SIGINT ends its sessions and writes everything, SIGQUIT is a crash. */
  async down(signal = 'SIGINT') {
    const server = this.#server;
    if (!server || server.exitCode !== null || server.signalCode !== null) return;
    const exit = once(server, 'exit');
    server.kill(signal);
    const timer = setTimeout(() => server.kill('SIGQUIT'), PATIENCE_MS);
    await exit;
    clearTimeout(timer);
  }

  /** Ends it and removes its folder. */
  async remove() {
    await this.down('SIGQUIT');
    rmSync(this.folder, { recursive: true, force: true });
  }

  #kill() {
    if (this.#server && this.#server.exitCode === null) this.#server.kill('SIGQUIT');
    rmSync(this.folder, { recursive: true, force: true });
  }
}
