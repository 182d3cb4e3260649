// npm start: sets up what is missing, builds, starts the gateway with the demo's page, and prints the address.
//
//   npm start -- --port 9000 ...    the other arguments go to the gateway
import { createServer } from 'node:net';
import { join } from 'node:path';
import { buildGateway, buildPackage, buildPage } from './build.mjs';
import { setup } from './setup.mjs';
import { isStopping, root, start, stop, stopOnSignals } from './tools.mjs';

const HOST = '127.0.0.1';
/** Where the search for a free port begins, and how many are tried before the system chooses one. */
const FIRST_PORT = 8080;
const PORTS_TRIED = 20;
/** Heartbeats of the demo, in seconds: a lost last event is missed within this time, and a visitor sees it. */
const HEARTBEAT_S = 5;
/** The gateway says that it listens within this time, or something is wrong. */
const READY_MS = 30_000;

const say = (text) => console.log(`start: ${text}`);

const isFree = (port) =>
  new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, HOST, () => server.close(() => resolve(true)));
  });

async function freePort() {
  for (let port = FIRST_PORT; port < FIRST_PORT + PORTS_TRIED; port++) {
    if (await isFree(port)) return port;
  }
  return 0;
}

/** Waits for both even if one fails, so that no build is left running; then throws the first failure. */
async function both(a, b) {
  for (const result of await Promise.allSettled([a, b])) {
    if (result.status === 'rejected') throw result.reason;
  }
  return Promise.all([a, b]);
}

async function main() {
  await setup('start');
  const began = performance.now();
  say('building the package, the page and the gateway');
  const [, gateway] = await both(
    buildPackage({ debug: false }).then(() => buildPage()),
    // Unoptimised: it builds in half the time, and is fast enough for one person's page.
    buildGateway({ profile: 'debug' }),
  );
  say(`built in ${((performance.now() - began) / 1000).toFixed(0)} s`);

  const extra = process.argv.slice(2);
  const gives = (flag) => extra.some((arg) => arg === flag || arg.startsWith(`${flag}=`));
  const args = [...(gives('--heartbeat') ? [] : ['--heartbeat', String(HEARTBEAT_S)]), ...extra];
  if (gives('--port')) return serve(gateway, args);
  // Another program may take the port between our look and the gateway's.
  for (let tries = 1; ; tries++) {
    const outcome = await serve(gateway, ['--port', String(await freePort()), ...args]);
    if (outcome !== 'taken' || tries === PORTS_TRIED) return outcome;
  }
}

/** Runs the gateway to its end; returns its exit code, or `taken` when another program has the port. */
async function serve(gateway, args) {
  let ready = false;
  let taken = false;
  const child = start(gateway, ['--open', '--faults', '--page', join(root, 'demo/dist'), ...args], {
    cwd: root,
    onLine(line, stream) {
      const address = stream === 'stdout' && !ready && line.match(/listening on (http:\/\/\S+)/)?.[1];
      if (address) {
        ready = true;
        console.log(`\n  inorder is at ${address}\n  Ctrl-C stops it\n`);
      } else {
        taken ||= !ready && /address already in use/i.test(line);
        (stream === 'stdout' ? console.log : console.error)(line);
      }
    },
  });
  const timer = setTimeout(() => {
    if (ready) return;
    console.error(`start: the gateway did not listen within ${READY_MS / 1000} s`);
    stop(child);
  }, READY_MS);
  const { code, signal } = await child.done;
  clearTimeout(timer);
  if (taken) return 'taken';
  if (!isStopping()) console.error(`start: the gateway ended (${signal ?? `exit code ${code}`})`);
  return code || 1;
}

stopOnSignals();
main()
  .then((outcome) => (process.exitCode = typeof outcome === 'number' ? outcome : 1))
  .catch((error) => {
    if (!isStopping()) console.error(`start: ${error.message}`);
    process.exitCode = 1;
  });
