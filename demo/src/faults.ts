// The faults that a gateway can be told to make, by the names of its HTTP interface.

/** Settings; probabilities are from 0 to 1. */
export interface Faults {
  /** For everything that is left to chance. */
  seed: number;
  /** An event is lost. */
  drop: number;
  /** An event comes again, later. */
  duplicate: number;
  /** An event is overtaken by later ones. */
  reorder: number;
  /** A frame waits up to this long, in milliseconds. */
  delay: number;
  /** A snapshot is older than it should be. */
  stale_snapshot: number;
  /** A replay is refused. */
  refuse_replay: number;
  /** A socket breaks, per second. */
  cut: number;
  /** A socket falls silent without breaking, per second. */
  half_open: number;
}

/** Things that happen once, on demand. */
export type FaultAction = 'cut' | 'half_open' | 'crash' | 'new_epoch' | 'trim';

/** No faults. */
export const CALM: Readonly<Omit<Faults, 'seed'>> = {
  drop: 0,
  duplicate: 0,
  reorder: 0,
  delay: 0,
  stale_snapshot: 0,
  refuse_replay: 0,
  cut: 0,
  half_open: 0,
};

/** One slider. */
export interface FaultScale {
  readonly name: keyof Omit<Faults, 'seed'>;
  readonly label: string;
  readonly hint: string;
  readonly max: number;
  readonly step: number;
  readonly unit: '%' | 'ms';
}

export const SCALES: readonly FaultScale[] = [
  { name: 'drop', label: 'Drop', hint: 'an event is lost', max: 0.5, step: 0.01, unit: '%' },
  { name: 'duplicate', label: 'Duplicate', hint: 'an event comes again, later', max: 0.5, step: 0.01, unit: '%' },
  { name: 'reorder', label: 'Reorder', hint: 'an event is overtaken', max: 0.5, step: 0.01, unit: '%' },
  { name: 'delay', label: 'Delay', hint: 'frames wait up to', max: 2000, step: 50, unit: 'ms' },
  { name: 'stale_snapshot', label: 'Stale snapshot', hint: 'a lagging replica answers', max: 1, step: 0.05, unit: '%' },
  { name: 'refuse_replay', label: 'Refuse replay', hint: 'the log says no', max: 1, step: 0.05, unit: '%' },
  { name: 'cut', label: 'Cut', hint: 'per second, a socket breaks', max: 0.5, step: 0.01, unit: '%' },
  { name: 'half_open', label: 'Half-open', hint: 'per second, a socket falls silent', max: 0.5, step: 0.01, unit: '%' },
];

/** One button. */
export interface FaultButton {
  readonly action: FaultAction;
  readonly label: string;
  readonly hint: string;
}

export const BUTTONS: readonly FaultButton[] = [
  { action: 'cut', label: 'Cut the socket', hint: 'the connection breaks now' },
  { action: 'half_open', label: 'Go silent', hint: 'half-open: accepted, then nothing more' },
  { action: 'crash', label: 'Crash the server', hint: 'between commit and push' },
  { action: 'new_epoch', label: 'Restore a backup', hint: 'the log goes back, a new epoch begins' },
  { action: 'trim', label: 'Trim the log', hint: 'old changes can no longer be replayed' },
];

/** A story of faults that repeats itself. */
export interface Preset {
  readonly name: string;
  readonly label: string;
  readonly says: string;
  readonly faults: Partial<Omit<Faults, 'seed'>>;
  /** What happens when, in seconds from the start of each round. */
  readonly script: readonly (readonly [second: number, action: FaultAction])[];
  /** Length of a round in seconds. */
  readonly round: number;
}

export const PRESETS: readonly Preset[] = [
  {
    name: 'tunnel',
    label: 'Train tunnel',
    says: 'The signal weakens, the line goes silent, then breaks. Again and again.',
    faults: { drop: 0.06, delay: 600, reorder: 0.1 },
    script: [
      [2, 'half_open'],
      [9, 'cut'],
    ],
    round: 18,
  },
  {
    name: 'broker',
    label: 'Broker redelivers',
    says: 'At-least-once delivery: old events come again, seconds later.',
    faults: { duplicate: 0.3, reorder: 0.2, delay: 100 },
    script: [],
    round: 60,
  },
  {
    name: 'worker',
    label: 'Worker dies after commit',
    says: 'The change is in the log, but the process dies before it tells anyone.',
    faults: { drop: 0.04 },
    script: [[2, 'crash']],
    round: 12,
  },
  {
    name: 'backup',
    label: 'Server restarts from a backup',
    says: 'The log goes back some seconds and numbers are given a second time.',
    faults: { stale_snapshot: 0.3, reorder: 0.1 },
    script: [[2, 'new_epoch']],
    round: 20,
  },
];
