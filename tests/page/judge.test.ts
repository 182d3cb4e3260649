// How the page compares a cell with the truth: what is wrong, and what only had no time.
import { describe, expect, test } from 'vitest';
import type { TrueState } from '../../demo/src/source';
import { Judge, type Shown, type Verdict } from '../../demo/src/judge';

const JOB = 'job/1';
const BEAT_MS = 5_000;

/** The job's state after `seq` changes of an epoch. */
const data = (seq: number): { progress: number } => ({ progress: seq * 10 });
const truth = (seq: number, epoch = 'a'): Map<string, TrueState> =>
  new Map([[JOB, { entity: JOB, epoch, seq, status: 'running', data: data(seq) }]]);

const shown = (seq: number, more: Partial<Shown> = {}): Shown => ({
  state: data(seq),
  status: 'running',
  seq,
  epoch: 'a',
  highest: seq,
  since: 0,
  ...more,
});

/** #1 from 0 s on and #2 from 10 s on, each read as soon as it was so; heartbeats at these times. */
function judge(beats: readonly number[] = [11_000, 16_000]): Judge {
  const judge = new Judge();
  judge.patience = BEAT_MS + 2_000;
  judge.learn(truth(1), 0, 0);
  judge.learn(truth(2), 10_000, 10_000);
  for (const at of beats) judge.beat(at);
  return judge;
}

const live = { sync: 'live' } as const;

interface Row {
  readonly what: string;
  readonly cell: Shown;
  readonly at: number;
  readonly verdict: Verdict;
  readonly beats?: readonly number[];
}

const rows: readonly Row[] = [
  { what: 'the truth', cell: shown(2), at: 60_000, verdict: 'right' },
  { what: 'the truth under another number', cell: shown(2, { epoch: 'b' }), at: 60_000, verdict: 'right' },
  { what: 'the truth before, just now', cell: shown(1), at: 16_900, verdict: 'late' },
  { what: 'the truth before, for too long', cell: shown(1), at: 17_000, verdict: 'wrong' },
  { what: 'the truth before, and says so', cell: shown(1, { sync: 'recovering' }), at: 60_000, verdict: 'late' },
  { what: 'the truth before, in silence', cell: shown(1, { ...live, silent: true }), at: 60_000, verdict: 'late' },
  { what: 'the truth before, live, not told', cell: shown(1, live), at: 60_000, verdict: 'late', beats: [9_000] },
  { what: 'the truth before, live, told once', cell: shown(1, live), at: 60_000, verdict: 'late', beats: [10_100] },
  {
    what: 'the truth before, live, told just now',
    cell: shown(1, live),
    at: 21_900,
    verdict: 'late',
    beats: [12_000, 17_000],
  },
  { what: 'the truth before, live, told', cell: shown(1, live), at: 22_000, verdict: 'wrong', beats: [12_000, 17_000] },
  { what: 'what never was at its number', cell: shown(2, { state: data(7) }), at: 10_001, verdict: 'wrong' },
  { what: 'what never was, before', cell: shown(1, { state: data(7) }), at: 10_001, verdict: 'wrong' },
  {
    what: 'what never was, and says that it recovers',
    cell: shown(2, { state: data(7), sync: 'recovering' }),
    at: 10_001,
    verdict: 'wrong',
  },
  { what: 'went back', cell: shown(1, { highest: 2 }), at: 10_001, verdict: 'wrong' },
  { what: 'newer than the reading', cell: shown(3, { ...live, since: 10_000 }), at: 10_001, verdict: 'ahead' },
  { what: 'a number that a later reading lacks', cell: shown(3, { since: 9_999 }), at: 10_001, verdict: 'wrong' },
  {
    // A quiet job's truth is old when a new epoch begins, and the socket may be faster than the reading.
    what: 'an epoch newer than the reading, long after',
    cell: shown(1, { ...live, epoch: 'b', since: 59_000 }),
    at: 60_000,
    verdict: 'ahead',
  },
  { what: 'an epoch that is over, just now', cell: shown(9, { epoch: '0' }), at: 16_900, verdict: 'late' },
  { what: 'an epoch that is over, for too long', cell: shown(9, { epoch: '0' }), at: 17_000, verdict: 'wrong' },
];

describe('a cell that shows', () => {
  test.each(rows)('$what is $verdict', ({ cell, at, verdict, beats }) => {
    const judging = judge(beats);
    expect(judging.verdict(JOB, cell, at)).toBe(verdict);
  });

  test('an unknown epoch is no news any more once the truth was asked for after it', () => {
    const judging = judge();
    const cell = shown(1, { epoch: 'b', since: 59_000 });
    judging.learn(truth(2), 60_000, 60_100);
    expect(judging.verdict(JOB, cell, 60_100)).toBe('wrong');
  });
});

describe('a column that shows nothing', () => {
  const rows: readonly [what: string, since: number, says: Pick<Shown, 'sync' | 'silent'>, at: number, Verdict][] = [
    ['of a new job', 0, {}, 6_900, 'late'],
    ['of a job that was there long ago', 0, {}, 7_000, 'wrong'],
    ['of a job that left since the reading', 59_000, live, 60_000, 'ahead'],
    ['of a job that left, says the socket, but not the reading', 9_999, live, 60_000, 'wrong'],
    ['and says that it joins', 0, { sync: 'joining' }, 60_000, 'late'],
    ['in silence', 0, { sync: 'live', silent: true }, 60_000, 'late'],
  ];
  test.each(rows)('%s', (_, since, says, at, verdict) => {
    expect(judge().absence(JOB, since, says, at)).toBe(verdict);
  });

  test('has no verdict where there is no truth', () => {
    expect(judge().absence('job/2', 0, {}, 1)).toBeUndefined();
    expect(judge().verdict('job/2', shown(1), 1)).toBeUndefined();
  });
});

test('heartbeats in quick succession are one', () => {
  const judging = new Judge();
  judging.patience = BEAT_MS + 2_000;
  judging.learn(truth(1), 0, 0);
  judging.learn(truth(2), 10_000, 10_000);
  for (const at of [11_000, 11_100, 12_000]) judging.beat(at);
  expect(judging.verdict(JOB, shown(1, live), 60_000)).toBe('late');
  judging.beat(16_000);
  expect(judging.verdict(JOB, shown(1, live), 60_000)).toBe('wrong');
});

test('what left is forgotten', () => {
  const judging = judge();
  judging.learn(new Map(), 20_000, 20_000);
  expect(judging.verdict(JOB, shown(2), 20_000)).toBeUndefined();
  expect([...judging.entities()]).toEqual([]);
});
