// The faults that a gateway can be told to make, by the names of its HTTP interface.

/** Settings, by the names of the gateway. Chances are from 0 to 1. */
export interface Faults {
  /** For everything that is left to chance. */
  seed: number;
  /** An event is lost. */
  drop: number;
  /** An event comes again, later. */
  duplicate: number;
  /** An event is overtaken by later ones. */
  reorder: number;
  /** A frame waits up to this long, in milliseconds; nothing overtakes. */
  delay: number;
  /** An answer is older than it should be, or an old state follows an event. */
  stale_snapshot: number;
  /** A replay is refused. */
  refuse_replay: number;
  /** A socket breaks, per second. */
  cut: number;
  /** A socket says nothing any more: at its opening and per second. */
  half_open: number;
  /** The server dies between commit and push, per second. */
  crash: number;
}

/** Things that happen once, on demand. */
export type FaultAction = 'cut' | 'half_open' | 'crash' | 'stale_snapshot' | 'new_epoch' | 'trim';

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
  crash: 0,
};

/** What a slider sets. */
export type Chance = Exclude<keyof Faults, 'seed'>;

/** One slider. */
export interface FaultScale {
  readonly name: Chance;
  readonly label: string;
  readonly hint: string;
  readonly max: number;
  readonly step: number;
}

export const SCALES: readonly FaultScale[] = [
  { name: 'drop', label: 'Drop', hint: 'an event is lost', max: 0.5, step: 0.01 },
  { name: 'duplicate', label: 'Duplicate', hint: 'an event comes again, later', max: 0.5, step: 0.01 },
  { name: 'reorder', label: 'Reorder', hint: 'an event is overtaken', max: 0.5, step: 0.01 },
  { name: 'delay', label: 'Delay', hint: 'a frame waits up to', max: 2_000, step: 50 },
  { name: 'stale_snapshot', label: 'Stale snapshot', hint: 'a lagging replica answers', max: 0.5, step: 0.01 },
  { name: 'refuse_replay', label: 'Refuse replay', hint: 'the log says no', max: 1, step: 0.05 },
  { name: 'cut', label: 'Cut', hint: 'the socket breaks, per second', max: 0.5, step: 0.01 },
  { name: 'half_open', label: 'Half-open', hint: 'the socket falls silent, per second', max: 0.5, step: 0.01 },
  { name: 'crash', label: 'Crash', hint: 'the server dies between commit and push, per second', max: 0.5, step: 0.01 },
];

/** One button. */
export interface FaultButton {
  readonly action: FaultAction;
  readonly label: string;
  readonly hint: string;
}

export const BUTTONS: readonly FaultButton[] = [
  { action: 'cut', label: 'Cut the socket', hint: 'the connection breaks now' },
  { action: 'half_open', label: 'Go silent', hint: 'half-open: the socket stays, and nothing comes any more' },
  { action: 'crash', label: 'Crash the server', hint: 'between commit and push' },
  { action: 'stale_snapshot', label: 'Send old states', hint: 'an old snapshot of everything' },
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
    says: 'The signal weakens, the line falls silent, then breaks.',
    faults: { drop: 0.06, delay: 700, reorder: 0.1 },
    script: [
      [3, 'half_open'],
      [9, 'cut'],
    ],
    round: 18,
  },
  {
    name: 'broker',
    label: 'Broker redelivers',
    says: 'At-least-once delivery: what is old comes again, later.',
    faults: { duplicate: 0.35, reorder: 0.2, stale_snapshot: 0.08 },
    script: [],
    round: 60,
  },
  {
    name: 'worker',
    label: 'Worker dies after commit',
    says: 'The log has the change, but nobody was told of it.',
    faults: { drop: 0.08, reorder: 0.05 },
    script: [[4, 'crash']],
    round: 12,
  },
  {
    name: 'backup',
    label: 'Restored from a backup',
    says: 'The log goes back, numbers come again, a replica lags.',
    faults: { stale_snapshot: 0.15, reorder: 0.15, duplicate: 0.1 },
    script: [[4, 'new_epoch']],
    round: 20,
  },
];
