// One contender, one fault: publish a history, watch what is shown, judge.
import { ENOUGH, FAULTS, INTERVAL } from './faults.mjs';
import { Way } from './way.mjs';

/** Milliseconds to recover while the history goes on, and again to show the final state. */
const PATIENCE = 40_000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** What the states are, and which of them were shown in which order. */
class Truth {
  /** 2 after the server lost the end of the first history. */
  h = 1;
  n = 0;
  lostAfter = Infinity;
  shown = [];
  wrong = [];
  duplicates = 0;
  struckAt = undefined;
  recoveredAt = undefined;

  isOver = false;

  get state() {
    return { h: this.h, n: this.n, status: this.isOver ? 'completed' : 'running' };
  }

  next(isFinal) {
    this.n++;
    this.isOver = isFinal;
    return this.state;
  }

  /** The server goes back by three states, and goes on from there with other ones. */
  lose() {
    this.n -= 3;
    this.lostAfter = this.n;
    this.h = 2;
  }

  struck = (more = 0) => {
    this.struckAt ??= performance.now();
    this.due ??= this.n + more;
  };

  show = (state) => {
    if (!state || !state.n) return;
    const { h, n } = state;
    const last = this.shown.at(-1);
    this.shown.push({ h, n });
    const isRestored = this.h === 2 && h === 1 && n <= this.lostAfter && last?.h === 1;
    if (last && last.h === h && last.n === n) this.duplicates++;
    else if (last && !isRestored && (h < last.h || (h === last.h && n < last.n))) {
      this.wrong.push(`${last.h}:${last.n} then ${h}:${n}`);
    }
    // Recovered: it shows a true state that is not older than the newest one when the fault struck.
    if (this.struckAt === undefined || this.recoveredAt !== undefined) return;
    const isTrue = h === this.h || (h === 1 && n <= this.lostAfter);
    if (isTrue && (this.h === 2 ? h === 2 || n === this.lostAfter : n >= this.due))
      this.recoveredAt = performance.now();
  };

  /** States that were published, are part of the truth, and were never shown. */
  get lost() {
    const seen = new Set(this.shown.map(({ h, n }) => `${h}:${n}`));
    let lost = 0;
    for (let n = 1; n <= Math.min(this.lostAfter, this.n); n++) if (!seen.has(`1:${n}`)) lost++;
    if (this.h === 2) for (let n = this.lostAfter + 1; n <= this.n; n++) if (!seen.has(`2:${n}`)) lost++;
    return lost;
  }

  get isDone() {
    const last = this.shown.at(-1);
    return this.isOver && last?.h === this.h && last?.n === this.n;
  }
}

let trials = 0;

export async function trial(contender, faultName) {
  const truth = new Truth();
  const name = `t${process.pid}x${++trials}`;
  const way = new Way(contender);
  const server = await contender.serve(name);
  await way.open(server.url);
  let fetched = 0;
  /** Where an application gets the whole state, when its client says that it must. */
  const fetchState = async () => {
    await sleep(5);
    const { state } = truth;
    fetched += JSON.stringify(state).length;
    return state;
  };
  const fault = { ...FAULTS[faultName] };
  const faulty = {
    loseHistory: async () => {
      truth.lose();
      await server.loseHistory(truth.state);
      faulty.isBack = true;
    },
    forget: () => server.forget(),
  };
  const stop = await contender.follow(way, name, truth.show, fetchState);
  try {
    fault.arm(way, faulty, truth.struck);
    const strikesAtTheEnd = faultName === 'tail' || faultName === 'late';
    const isCalm = () =>
      strikesAtTheEnd || (truth.struckAt && (truth.recoveredAt ?? performance.now() - PATIENCE) > truth.struckAt);
    for (let isFinal = false; !isFinal;) {
      await sleep(INTERVAL);
      // Nothing is published while the server is away.
      if (truth.h === 2 && !faulty.isBack) continue;
      isFinal = truth.n >= ENOUGH && Boolean(isCalm());
      await server.publish(truth.next(isFinal));
    }
    if (fault.finally) {
      await sleep(1_000);
      fault.finally();
    }
    const began = performance.now();
    while (!truth.isDone && performance.now() - began < PATIENCE) await sleep(20);
    // What is late comes now.
    await sleep(1_000);
  } finally {
    await stop();
    way.close();
    await server.stop();
  }
  const { wrong, lost, duplicates, struckAt, recoveredAt, isDone, shown } = truth;
  return {
    wrong: wrong.length,
    lost,
    duplicates,
    seconds: faultName === 'late' ? 0 : recoveredAt === undefined ? undefined : (recoveredAt - struckAt) / 1_000,
    bytes: Math.round(way.bytesAgain) + fetched,
    isDone,
    states: truth.n,
    shown: shown.length,
    detail: wrong.slice(0, 3),
    connections: way.connections,
  };
}
