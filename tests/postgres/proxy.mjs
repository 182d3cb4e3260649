// The nginx configuration of docs/deploy.md in front of the gateways: upgrade, timeouts, buffering, what is not for all.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { get, request } from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findNginx, root } from '../../scripts/tools.mjs';
import { freePort } from './cluster.mjs';

const PATIENCE_MS = 20_000;
/** In place of 75 s, and the time that a quiet socket has to outlive it. */
const READ_TIMEOUT_S = 1;
const QUIET_MS = 2_000;

/** Runs demo/server/deploy/nginx.conf for these gateways in a folder; returns its address and how to end it. */
export async function startNginx(folder, gateways) {
  const port = await freePort();
  const subject = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
  const files = { key: join(folder, 'gateway.key'), certificate: join(folder, 'gateway.pem') };
  const made = spawnSync('openssl', [...subject, '-keyout', files.key, '-out', files.certificate]);
  if (made.status !== 0) throw new Error(`openssl: ${made.stderr}`);
  const changes = [
    [/worker_connections \d+/, 'worker_connections 200'],
    [/listen 443/, `listen 127.0.0.1:${port}`],
    [/127\.0\.0\.1:8787/, `127.0.0.1:${gateways[0].port}`],
    [/127\.0\.0\.1:8788/, `127.0.0.1:${gateways[1].port}`],
    [/ssl_certificate \S+/, `ssl_certificate ${files.certificate};`],
    [/ssl_certificate_key \S+/, `ssl_certificate_key ${files.key};`],
    [/proxy_read_timeout \S+/, `proxy_read_timeout ${READ_TIMEOUT_S}s;`],
  ];
  let text = readFileSync(join(root, 'demo/server/deploy/nginx.conf'), 'utf8');
  for (const [from, to] of changes) {
    if (!from.test(text)) throw new Error(`nginx.conf has no ${from}`);
    text = text.replace(from, to);
  }
  const file = join(folder, 'nginx.conf');
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  writeFileSync(file, text.replace('http {', `http {\n  ${paths.join('\n  ')}`));
  const user = process.getuid() === 0 ? 'user root; ' : '';
  const globals = `${user}daemon off; pid ${folder}/nginx.pid; error_log stderr warn;`;
  const child = spawn(findNginx(), ['-p', folder, '-c', file, '-g', globals], { stdio: ['ignore', 'ignore', 'pipe'] });
  process.once('exit', () => child.kill());
  let said = '';
  child.stderr.on('data', (data) => (said += data));
  for (const until = Date.now() + PATIENCE_MS; ; await sleep(50)) {
    if (child.exitCode !== null || Date.now() > until) throw new Error(`nginx did not come up: ${said}`);
    const socket = connect(port, '127.0.0.1');
    const up = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ]).catch(() => false);
    socket.destroy();
    if (up) break;
  }
  return {
    socketUrl: `wss://localhost:${port}/ws`,
    url: `https://localhost:${port}`,
    async end() {
      if (child.exitCode !== null) return;
      const exit = once(child, 'exit');
      child.kill();
      await exit;
    },
  };
}

const LOOSE = { rejectUnauthorized: false };

const status = (url, path) =>
  new Promise((resolve, reject) =>
    get(`${url}${path}`, LOOSE, (answer) => resolve(answer.resume().statusCode)).on('error', reject),
  );

const post = (url, path, body) =>
  new Promise((resolve, reject) => {
    const asked = request(`${url}${path}`, { ...LOOSE, method: 'POST' }, (answer) =>
      resolve(answer.resume().statusCode),
    );
    asked.on('error', reject).end(body);
  });

/** Follows a topic through nginx while gateways are killed behind it; `check` and `expect` tell what was found. */
export async function throughProxy({ Page, readTruth, cluster, gateways, writers, topic, check, expect }) {
  const nginx = await startNginx(cluster.folder, gateways);
  try {
    const page = new Page('a page behind nginx', [nginx], topic);
    const right = async (name, gateway) => check(name, await page.settle(await readTruth(gateway, topic), PATIENCE_MS));
    await right('nginx: a page joins through TLS', gateways[0]);
    const dials = page.dials;
    await sleep(QUIET_MS);
    expect('nginx: a quiet socket outlives the read timeout', page.dials === dials);
    const events = page.events;
    const [entity] = [...page.members()].find(([, { status: of }]) => of === undefined);
    const since = performance.now();
    expect(
      'nginx: a post is stored',
      (await post(nginx.url, `/entities/${entity}/events`, '{"id":"proxied","data":{"id":"proxied"}}')) === 200,
    );
    writers.sent.set('proxied', {});
    while (page.events === events && performance.now() - since < PATIENCE_MS) await sleep(5);
    expect('nginx: an event is not kept back', page.events > events && performance.now() - since < 2_000);
    for (const path of ['/metrics', '/health/ready', '/faults']) {
      expect(`nginx: ${path} is not for all`, (await status(nginx.url, path)) === 403);
    }
    expect(
      'nginx: a body above 256 KiB is refused',
      (await post(nginx.url, `/entities/${entity}/events`, 'x'.repeat(300_000))) === 413,
    );
    for (const [dead, alive] of [gateways, gateways.toReversed()]) {
      await dead.down('SIGKILL');
      await writers.run(2, writers.stored + 20);
      await right('nginx: one gateway is killed, the page goes on at the other', alive);
      await dead.up();
    }
    check('nginx: in order, without a hole', page.violations);
    page.close();
  } finally {
    await nginx.end();
  }
}
