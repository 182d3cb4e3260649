import '@fontsource-variable/inter/wght.css';
import './style.css';
import { CALM, PRESETS } from './faults';
import { fakeSource } from './fake/gateway';
import { follow } from './following';
import { isTopic, modelOf, type Frame } from './frames';
import { Journal } from './journal';
import { Judge } from './judge';
import { NaiveClient } from './naive';
import { addressOf, readSettings, type Settings } from './settings';
import { gatewaySource, type Source } from './source';
import { Stage } from './stage';
import { part, setText } from './dom';
import { Announcer } from './view/announcer';
import { Badge } from './view/badge';
import { Board } from './view/board';
import { Controls } from './view/controls';
import { Counters } from './view/counters';
import { Plots } from './view/plots';
import { Story } from './view/story';
import { mountTheme } from './view/theme';
import { Timeline } from './view/timeline';

/** How often the truth is read, in milliseconds, and how long one reading may take. */
const TRUTH_MS = 300;
const TRUTH_TIMEOUT_MS = 4_000;

/** The page is drawn at least this often, so that times and countdowns go on. */
const DRAW_MS = 100;

/** Said by a silent socket: one heartbeat is late by this much, in milliseconds. */
const HEARTBEAT_SLACK_MS = 1_000;

const now = (): number => performance.now();

function notice(text: string): void {
  const line = part('notice');
  setText(line, text);
  line.hidden = text === '';
}

function run(settings: Settings, source: Source): void {
  const journal = new Journal();
  const judge = new Judge();
  let prevented = 0;
  const naive = new NaiveClient((entity) => {
    const topic = modelOf(entity) === 'job' ? jobs : deployments;
    if (topic.getSnapshot().get(entity)?.sync === 'final') prevented += 1;
  });
  let heardAt = now();
  let beat = 15_000;

  const before = (frames: readonly Frame[]): void => {
    const at = now();
    heardAt = at;
    journal.before(frames, at);
    for (const frame of frames) {
      naive.receive(frame, at);
      if (frame.type === 'heartbeat') judge.beat(at);
      if (frame.type === 'welcome' && typeof frame['heartbeat'] === 'number') beat = frame['heartbeat'] * 1_000;
    }
    judge.patience = beat + 2 * HEARTBEAT_SLACK_MS;
  };
  const client = follow(source, { before, after: (frames) => journal.after(frames, now()) }, settings.cap);
  const jobs = client.topic<'job'>('jobs');
  const deployments = client.topic<'deployment'>('deployments');

  const badge = new Badge(() => {
    if (client.status.getSnapshot().connection === 'stopped') client.connect();
    else client.reconnect();
  });
  const counters = new Counters();
  const announcer = new Announcer();
  const plots = new Plots();
  const timeline = new Timeline(() => draw());
  const board = new Board((entity) => {
    timeline.open(entity);
    draw();
  });
  mountTheme(() => plots.paint());
  new Story();

  let drawing = false;
  let drawn = 0;

  function draw(): void {
    drawing = false;
    const at = now();
    drawn = at;
    const inorder = new Map([...jobs.getSnapshot(), ...deployments.getSnapshot()]);
    const silence = at - heardAt > beat + HEARTBEAT_SLACK_MS ? at - heardAt : undefined;
    const silent = silence !== undefined && client.status.getSnapshot().connection === 'live';
    const { resurrections } = naive;
    const sets = { job: jobs.sync, deployment: deployments.sync };
    const open = timeline.entity;
    const score = board.show({ inorder, naive: naive.cells, judge, resurrections, sets, silent, open }, at);
    let recovering = 0;
    let held = 0;
    for (const [entity, { sync }] of inorder) {
      if (sync !== 'live' && sync !== 'final') recovering += 1;
      const waiting = client.held(entity);
      held += waiting;
      if (waiting === 0) journal.released(entity, at);
    }
    const connection = badge.show({ status: client.status.getSnapshot(), recovering, silence });
    counters.show(client.stats(), prevented);
    plots.held(held);
    plots.sample(at, journal.recoveries, held);
    const { entity } = timeline;
    if (entity !== undefined) {
      const { state } = inorder.get(entity) ?? {};
      const title = state && ('name' in state ? state.name : 'service' in state ? state.service : undefined);
      timeline.show(journal.of(entity), `${String(title ?? modelOf(entity))}, ${entity}`, at);
    }
    const text = `Naive client: ${score.naive.wrong} wrong, ${naive.resurrections} back from the dead. inorder: ${score.inorder.wrong} wrong, ${score.inorder.late} catching up.`;
    announcer.hear(`Connection: ${connection}.`, text, at);
  }
  function drawSoon(): void {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(draw);
  }

  client.on('change', (change) => journal.change(change, now()));
  client.on('sync', ({ entity, sync }) => journal.sync(entity, sync, now()));
  // Faults are what this page is about; they are shown, not logged.
  client.on('error', ({ code, message }) => {
    if (code === 'load' || code === 'url' || code === 'stopped') notice(message);
  });
  jobs.subscribe(drawSoon);
  deployments.subscribe(drawSoon);
  client.status.subscribe(drawSoon);
  setInterval(() => {
    if (now() - drawn >= DRAW_MS) draw();
  }, DRAW_MS);

  async function readTruth(): Promise<void> {
    try {
      const asked = now();
      judge.learn(await source.truth(AbortSignal.timeout(TRUTH_TIMEOUT_MS)), asked, now());
      const here = new Set([...judge.entities(), ...jobs.getSnapshot().keys(), ...deployments.getSnapshot().keys()]);
      journal.keep(here);
      for (const entity of naive.cells.keys()) if (!here.has(entity) && !isTopic(entity)) naive.cells.delete(entity);
      drawSoon();
    } catch {
      // The server is away; the next reading tells more.
    }
    setTimeout(() => void readTruth(), TRUTH_MS);
  }
  void readTruth();

  direct(settings, source);
}

/** Sets up the faults as the address says. */
function direct(settings: Settings, source: Source): void {
  const { faults: control } = source;
  if (!control) {
    notice('This gateway makes no faults. Start it with --faults to break the wire.');
    return;
  }
  let controls: Controls | undefined;
  const stage = new Stage(
    control,
    settings.seed,
    (played) => {
      controls?.show(played);
      const { faults, preset } = played;
      history.replaceState(null, '', addressOf(new URL(location.href), faults.seed, preset, faults));
    },
    () => notice('The gateway did not take the faults.'),
  );
  controls = new Controls(stage);
  const preset = PRESETS.find(({ name }) => name === settings.preset);
  if (preset) stage.preset(preset);
  else if (Object.keys(settings.faults).length > 0) stage.set({ ...CALM, ...settings.faults });
  // These faults are this page's own and disturb nobody, so it begins with some.
  else if (settings.preset === undefined && PRESETS[1]) stage.preset(PRESETS[1]);
}

const settings = readSettings(location.search, import.meta.env.MODE === 'static');
const gateway = settings.inPage ? undefined : await gatewaySource();
if (!gateway && !settings.inPage) notice('There is no gateway here, so this page plays one itself.');
run(settings, gateway ?? fakeSource(settings.seed));
