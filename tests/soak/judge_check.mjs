// The judge must notice: histories with one fault each, and one without.
import { FAULTS, Judge } from './judge.mjs';
import { Truth } from './truth.mjs';

const JOB = 'job/1';

/** A job of five changes in epoch A, of which B keeps three and goes on; a topic that it is a member of. */
function makeTruth() {
  const truth = new Truth();
  truth.begin('A', new Map());
  const post = (epoch, seq, status, data) => truth.add(JOB, epoch, { seq, status, data });
  truth.add('topic/jobs', 'A', { seq: 1, data: { add: [JOB] } });
  truth.add('topic/jobs', 'A', { seq: 2, data: { remove: [JOB] } });
  truth.add('topic/jobs', 'A', { seq: 3, data: { add: [JOB] } });
  post('A', 1, 'queued', { progress: 0 });
  post('A', 2, 'running', { progress: 10, worker: 'w' });
  post('A', 3, undefined, { progress: 20, worker: null });
  post('A', 4, undefined, { progress: 30 });
  post('A', 5, 'completed', { progress: 40 });
  truth.begin('B', new Map([[JOB, 3]]));
  post('B', 4, 'failed', { progress: 35 });
  return truth;
}

const truth = makeTruth();

/** The notes of one change, told and shown, as the truth has it. */
function step(kind, epoch, seq, { isReset, skipped } = {}) {
  const { status, state, data } = truth.at(JOB, epoch, seq);
  const isFinal = ['completed', 'failed'].includes(status);
  return [
    ['change', JOB, kind, epoch, seq, status, state, kind === 'event' ? data : null, isReset ?? null, skipped ?? null],
    ...(isFinal ? [['final', JOB, status, seq, state]] : []),
    ['shown', JOB, isFinal ? 'final' : 'live', epoch, seq, status, state],
  ];
}

const snapshot = (seq, more, epoch = 'A') => step('snapshot', epoch, seq, more);
const event = (seq, epoch = 'A') => step('event', epoch, seq);
const topic = (seq, event) => [['change', 'topic/jobs', 'event', 'A', seq, null, null, event, null, null]];
const members = (seq, skipped = null) => [
  ['change', 'topic/jobs', 'snapshot', 'A', seq, null, null, null, null, skipped],
];
const left = [...members(1), ...topic(2, { remove: [JOB] }), ['gone', JOB]];
const back = topic(3, { add: [JOB] });

/** Notes with something in their place. */
const but = (notes, at, value, which = 0) =>
  notes.map((note, index) => (index === which ? note.with(at, value) : note));

/** The end is reported once. */
const once = () => {
  let count = 0;
  return ([kind]) => kind !== 'final' || ++count === 1;
};

/** What is told, what is wrong with it, and the notes. */
const HISTORIES = [
  ['change after change', undefined, [...snapshot(1), ...event(2), ...event(3), ...event(4), ...event(5)]],
  ['a snapshot that says what it skips', undefined, [...snapshot(1), ...snapshot(4, { skipped: [2, 4] })]],
  ['another epoch', undefined, [...snapshot(1), ...event(2), ...snapshot(3, { isReset: true }, 'B'), ...event(4, 'B')]],
  ['who left comes back', undefined, [...snapshot(1), ...left, ...back, ...snapshot(4)]],
  ['who left goes on for a moment', undefined, [...snapshot(1), ...left, ...event(2), ...back, ...snapshot(4)]],
  [
    'who left before it joined comes back',
    undefined,
    [...members(1), ...members(2, [2, 2]), ...snapshot(1), ...back, ...snapshot(4)],
  ],
  [
    'what was final comes back',
    undefined,
    [...snapshot(4), ...event(5), ...left, ...back, ...snapshot(5)].filter(once()),
  ],
  ['a hole while it is left', 'lost', [...snapshot(1), ...left, ...snapshot(4)]],
  ['what was final comes back to life', 'resurrected', [...event(5), ...left, ...back, ...snapshot(4)]],
  ['a hole', 'lost', [...snapshot(1), ...event(3)]],
  ['a snapshot that says nothing', 'lost', [...snapshot(1), ...snapshot(3)]],
  ['a snapshot that says too little', 'lost', [...snapshot(1), ...snapshot(4, { skipped: [3, 4] })]],
  ['an event before the snapshot', 'lost', event(2)],
  ['the last event is not reported', 'lost', [...snapshot(4), ...event(5).filter(([kind]) => kind !== 'final')]],
  ['the same again', 'doubled', [...snapshot(1), ...event(2), ...event(2)]],
  ['final twice', 'doubled', [...snapshot(4), ...event(5), event(5)[1]]],
  ['an older event', 'reordered', [...snapshot(3), ...event(2)]],
  ['an older snapshot', 'reordered', [...snapshot(3), ...snapshot(1, { isReset: true })]],
  ['an epoch that was over', 'reordered', [...snapshot(3, {}, 'B'), ...snapshot(3, { isReset: true })]],
  ['an epoch without a reset', 'reordered', [...snapshot(3), ...event(4, 'B')]],
  ['an older state is shown', 'reordered', [...snapshot(1), ...event(2), snapshot(1)[1]]],
  ['what was final goes on', 'resurrected', [...snapshot(4), ...event(5), ...snapshot(3, { isReset: true }, 'B')]],
  ['what was final is live', 'resurrected', [...snapshot(4), ...event(5), event(5)[2].with(2, 'live')]],
  ['a number that never was', 'untrue', [...snapshot(1), ...but(snapshot(2), 4, 7)]],
  ['an epoch that never was', 'untrue', but(snapshot(2), 3, 'C')],
  ['another state', 'untrue', [...snapshot(1), ...but(event(2), 6, { progress: 11 })]],
  ['another status', 'untrue', [...snapshot(1), ...but(event(2), 5, 'queued')]],
  ['other data', 'untrue', [...snapshot(1), ...but(event(2), 7, { progress: 10 })]],
  ['shown and never told', 'untrue', [...snapshot(1), event(2)[1]]],
  ['another state is shown', 'untrue', [...snapshot(1), ...but(event(2), 6, { progress: 99 }, 1)]],
  ['an error that nothing explains', 'untrue', [['error', 'diverged', JOB, 'two events have one number']]],
  ['a trap', 'trapped', [['error', 'fault', null, 'unreachable']]],
  ['an uncaught error', 'thrown', [['thrown', 'TypeError']]],
];

/** Checks the judge by every history. */
export function checkJudge(expect) {
  for (const [what, fault, notes] of HISTORIES) {
    const judge = new Judge(truth);
    judge.take(notes.map((note, at) => [at, at, ...note]));
    judge.end();
    const found = FAULTS.filter((name) => judge.faults[name] > 0);
    const should = fault === undefined ? found.length === 0 : found.includes(fault);
    expect(`the judge on '${what}'`, should, `${judge.words.join('\n')}; not ${fault ?? 'right'}`);
  }
  const judge = new Judge(truth);
  const [first, second] = snapshot(1);
  judge.take([[2, 2, ...second]]);
  judge.take([[0, 0, ...first]]);
  judge.end();
  expect("the judge on 'a note is missing'", judge.faults.unheard === 1);
}
