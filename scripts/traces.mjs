// The same inputs through the native core and through the shipped wasm in Chromium: both must say the same, in the
// same order. The inputs are those of simulated worlds; docs/trace.md describes what is compared.
//
//   node scripts/traces.mjs [COUNT] [FIRST_SEED] [--debug]
//
// It needs pkg/dist. With --debug the native core is the one that `cargo test` builds.
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import * as tools from './tools.mjs';

const { nativeCargo, nativeCargoEnv, root, targetDir } = tools;

/** Worlds whose traces the page takes at a time. */
const CHUNK = 250;

const isDebug = process.argv.includes('--debug');
const [count = 1_000, first = 1] = process.argv.slice(2).filter(Number).map(Number);

/** Serves the page, the wasm, and traces as the native core gives them. */
function serve(native) {
  const files = {
    '/replay.js': ['text/javascript', join(root, 'tests/traces/replay.js')],
    '/inorder.wasm': ['application/wasm', join(root, 'pkg/dist/inorder.wasm')],
  };
  const server = createServer(async (request, response) => {
    const traces = /^\/traces\/(\d+)\/(\d+)$/.exec(request.url);
    if (traces) {
      const program = spawn(native, ['traces', traces[1], traces[2]], { stdio: ['ignore', 'pipe', 'inherit'] });
      program.on('exit', (code) => code === 0 || response.destroy());
      response.on('close', () => program.kill());
      program.stdout.pipe(response);
      return;
    }
    const [type, path] = files[request.url] ?? [];
    response.setHeader('content-type', type ?? 'text/html');
    response.end(path ? await readFile(path) : '<!doctype html><title>traces</title>');
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

/** Replays a chunk in the page. */
async function replayChunk([first, count]) {
  const { replay } = await import('/replay.js');
  globalThis.wasm ??= WebAssembly.compileStreaming(fetch('/inorder.wasm'));
  const module = await globalThis.wasm;
  const text = await (await fetch(`/traces/${first}/${count}`)).text();
  const sum = { traces: 0, inputs: 0, outputs: 0, differences: [] };
  for (const trace of text.split(/^# /m).slice(1)) {
    const end = trace.indexOf('\n');
    const { inputs, outputs, difference } = replay(module, trace.slice(end + 1));
    sum.traces++;
    sum.inputs += inputs;
    sum.outputs += outputs;
    if (difference) sum.differences.push(`seed ${trace.slice(0, end)}, ${difference}`);
  }
  return sum;
}

async function main() {
  const profile = isDebug ? ['--profile', 'test'] : ['--release'];
  const args = ['build', '--locked', '--quiet', '--example', 'proof', ...profile];
  await tools.run(nativeCargo(), args, { cwd: root, env: nativeCargoEnv() });
  const server = await serve(join(targetDir, isDebug ? 'debug' : 'release', 'examples/proof'));
  const browser = await chromium.launch({ executablePath: tools.findChromium(), args: [...tools.chromiumFlags] });
  const began = performance.now();
  const sum = { traces: 0, inputs: 0, outputs: 0, differences: [] };
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    for (let seed = first; seed < first + count && sum.differences.length === 0; seed += CHUNK) {
      const chunk = await page.evaluate(replayChunk, [seed, Math.min(CHUNK, first + count - seed)]);
      for (const key of ['traces', 'inputs', 'outputs']) sum[key] += chunk[key];
      sum.differences.push(...chunk.differences);
    }
  } finally {
    await browser.close();
    server.close();
  }
  for (const difference of sum.differences.slice(0, 3)) console.log(difference);
  const seconds = ((performance.now() - began) / 1_000).toFixed(0);
  console.log(
    `${sum.traces} traces, ${sum.inputs} inputs, ${sum.outputs} outputs, ${sum.differences.length} differences, ${seconds} s`,
  );
  const holds = sum.differences.length === 0 && sum.traces === count;
  console.log(holds ? '1 passed, 0 failed' : '0 passed, 1 failed');
  process.exitCode = holds ? 0 : 1;
}

tools.stopOnSignals();
main().catch((error) => {
  console.error(`traces: ${error.message}`);
  console.log('0 passed, 1 failed');
  process.exitCode = 1;
});
