import { SCALES, type Chance, type Faults } from './faults';

/** What the address of the page says; a story is shared by its address. */
export interface Settings {
  /** Play the gateway in the page. */
  readonly inPage: boolean;
  readonly seed: number;
  /** A preset by its name; `custom` where sliders were moved; `calm` for no faults. */
  readonly preset: string | undefined;
  readonly faults: Partial<Record<Chance, number>>;
  /** The longest wait between two dials, in milliseconds. */
  readonly cap: number | undefined;
}

const number = (text: string | null): number | undefined => {
  const value = text === null || text === '' ? NaN : Number(text);
  return Number.isFinite(value) && value >= 0 ? value : undefined;
};

/** Reads the address. */
export function readSettings(search: string, built: boolean): Settings {
  const query = new URLSearchParams(search);
  const faults: Partial<Record<Chance, number>> = {};
  for (const { name, max } of SCALES) {
    const value = number(query.get(name));
    if (value !== undefined) faults[name] = Math.min(value, max);
  }
  return {
    inPage: built || query.has('static'),
    seed: Math.floor(number(query.get('seed')) ?? 1 + Math.random() * 9_999) >>> 0,
    preset: query.get('preset') ?? undefined,
    faults,
    cap: number(query.get('cap')),
  };
}

/** The address that tells this story. */
export function addressOf(here: URL, seed: number, preset: string | undefined, faults: Partial<Faults>): URL {
  const url = new URL(here);
  const { searchParams: query } = url;
  query.set('seed', String(seed));
  if (preset === undefined) query.delete('preset');
  else query.set('preset', preset);
  for (const { name } of SCALES) {
    const value = faults[name];
    if (preset === 'custom' && value) query.set(name, String(value));
    else query.delete(name);
  }
  return url;
}
