// The page that everything is measured in: bundled, served by a small server of our own, opened in Chromium.
import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { rolldown } from 'rolldown';
import { chromiumFlags, chromium as chromiumPath, root } from '../scripts/tools.mjs';

const bench = fileURLToPath(new URL('.', import.meta.url));
const out = join(bench, 'dist');

const TYPES = { '.js': 'text/javascript', '.html': 'text/html', '.wasm': 'application/wasm' };

/** Without these two headers the page is not cross-origin isolated, and its clock ticks every 100 µs instead of 5. */
const ISOLATED = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cache-Control': 'no-store',
};

/** The package is loaded as it is shipped; only the peers and the harness are bundled. */
const html = (script) => `<!doctype html>
<meta charset="utf-8">
<title>bench</title>
<link rel="icon" href="data:,">
<script type="importmap">{"imports":{"inorder":"/inorder/index.js"}}</script>
${script ? `<script type="module" src="/${script}.js"></script>` : ''}
<div id="root"></div>`;

/** Bundles pages: names by entry file. */
export async function bundle(entries) {
  const build = await rolldown({
    input: Object.fromEntries(Object.entries(entries).map(([name, file]) => [name, join(bench, file)])),
    external: ['inorder'],
    platform: 'browser',
    transform: { define: { 'process.env.NODE_ENV': '"production"' } },
    checks: { circularDependency: false },
    logLevel: 'silent',
  });
  await build.write({ dir: out, format: 'esm', entryFileNames: '[name].js' });
  await build.close();
}

/** Serves the bundles at `/NAME.js`, a page for each at `/NAME`, and the package at `/inorder/`. */
export async function serve() {
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url, 'http://bench').pathname);
    if (!extname(path)) {
      response.writeHead(200, { ...ISOLATED, 'Content-Type': 'text/html' });
      response.end(html(path.slice(1)));
      return;
    }
    const file = path.startsWith('/inorder/') ? join(root, 'pkg/dist', path.slice(9)) : join(out, path);
    if (!existsSync(file)) {
      response.writeHead(404, ISOLATED).end();
      return;
    }
    response.writeHead(200, { ...ISOLATED, 'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream' });
    createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, address: `http://127.0.0.1:${server.address().port}` };
}

/** Starts a fresh Chromium. */
export const launch = (...flags) =>
  chromium.launch({ executablePath: chromiumPath(), args: [...chromiumFlags, ...flags] });

/** Opens a page and runs `use(page)`; what goes wrong in the page goes wrong here. */
export async function inPage(browser, url, use) {
  const page = await browser.newPage();
  const failed = new Promise((_, reject) => {
    page.on('pageerror', reject);
    page.on('crash', () => reject(new Error('the page crashed')));
  });
  failed.catch(() => {});
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) console.error(`  page: ${message.text()}`);
  });
  try {
    await page.goto(url);
    if (!(await page.evaluate(() => globalThis.crossOriginIsolated))) throw new Error('the page is not isolated');
    return await Promise.race([use(page), failed]);
  } finally {
    await page.close();
  }
}
