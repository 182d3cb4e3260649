// The programs of examples/javascript against a real gateway.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { Gateway } from '../page/gateway.js';
import { read, root } from '../package/pages.js';

/** Longer than any of them takes. */
const TIMEOUT_MS = 60_000;

let gateway: Gateway;
beforeAll(async () => {
  gateway = await Gateway.start('--workload', 'none');
}, TIMEOUT_MS);
afterAll(() => gateway.stop());

/** One example that runs. */
class Example {
  readonly lines: string[] = [];
  readonly child: ChildProcess;
  private errors = '';

  constructor(name: string) {
    const file = join(root, 'examples/javascript', `${name}.mjs`);
    this.child = spawn(process.execPath, [file, gateway.url], { cwd: root });
    createInterface({ input: this.child.stdout! }).on('line', (line) => this.lines.push(line));
    this.child.stderr!.on('data', (text) => (this.errors += text));
  }

  /** Waits for its end; it must not complain. */
  async ended(): Promise<string[]> {
    const [code] = this.child.exitCode === null ? await once(this.child, 'exit') : [this.child.exitCode];
    expect({ errors: this.errors, code }).toEqual({ errors: '', code: 0 });
    return this.lines;
  }

  /** Waits for a line, from line `from` on. */
  async says(line: RegExp, timeout = TIMEOUT_MS): Promise<void> {
    await vi.waitFor(() => expect(this.lines.at(-1)).toMatch(line), { timeout, interval: 20 });
  }
}

let running: Example | undefined;
const run = (name: string) => (running = new Example(name));
afterEach(() => {
  if (running?.child.exitCode === null) running.child.kill('SIGKILL');
});

test(
  'finished',
  async () => {
    expect(await run('finished').ended()).toEqual(['completed at 100 %, as change 4']);
  },
  TIMEOUT_MS,
);

test(
  'changes',
  async () => {
    expect(await run('changes').ended()).toEqual([
      'snapshot 0 null',
      'event 1 {"step":"fetch"}',
      'event 2 {"step":"build"}',
      'event 3 {"step":"test"}',
      'event 4 {"reason":"two tests failed"}',
    ]);
  },
  TIMEOUT_MS,
);

test(
  'topic',
  async () => {
    const lines = await run('topic').ended();
    expect(lines[0]).toBe('0 jobs: none yet');
    expect(lines.at(-1)).toBe('2 jobs: job/one completed 100, job/two completed 100');
  },
  TIMEOUT_MS,
);

test(
  'status',
  async () => {
    const status = run('status');
    await status.says(/^live$/);
    await gateway.down();
    await status.says(/^offline, next attempt in (1\d|20) s; Enter tries now$/);
    await gateway.start();
    status.child.stdin!.write('\n');
    // The next attempt by itself would be ten seconds away.
    await status.says(/^live$/, 8_000);
    status.child.stdin!.end();
    await status.ended();
  },
  TIMEOUT_MS,
);

test('each is run here and named in the README', () => {
  const examples = readdirSync(join(root, 'examples/javascript')).filter((file) => file !== 'gateway.mjs');
  const page = read('examples/README.md');
  const here = read('tests/examples/examples.test.ts');
  for (const file of examples) {
    expect(page).toContain(`node examples/javascript/${file}`);
    expect(here).toContain(`run('${file.replace('.mjs', '')}')`);
  }
});
