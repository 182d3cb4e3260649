import { CALM, PRESETS, type FaultAction, type Faults, type Preset } from './faults';
import type { FaultControl } from './source';

/** Settings are sent at most this often while a slider moves, in milliseconds. */
const SEND_MS = 150;

/** What is played now. */
export interface Played {
  readonly faults: Faults;
  /** A preset's name, `calm`, or `custom`. */
  readonly preset: string;
}

/** Directs the faults: sends settings, and plays the script of a preset. */
export class Stage {
  #played: Played;
  #timers: ReturnType<typeof setTimeout>[] = [];
  #sending: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly control: FaultControl,
    seed: number,
    private readonly onChange: (played: Played) => void,
    private readonly onTrouble: (error: unknown) => void,
  ) {
    this.#played = { faults: { ...CALM, seed }, preset: 'calm' };
  }

  get played(): Played {
    return this.#played;
  }

  /** No faults any more. */
  calm(): void {
    this.#play({ faults: { ...CALM, seed: this.#played.faults.seed }, preset: 'calm' });
  }

  /** Plays a preset from its beginning. */
  preset(preset: Preset): void {
    this.#play({ faults: { ...CALM, ...preset.faults, seed: this.#played.faults.seed }, preset: preset.name });
    if (preset.script.length > 0) this.#round(preset);
  }

  /** Sets single faults by hand. A preset's script goes on only if nothing was touched. */
  set(faults: Partial<Faults>): void {
    this.#play({ faults: { ...this.#played.faults, ...faults }, preset: 'custom' });
  }

  /** Begins again with this seed. */
  seed(seed: number): void {
    const { preset, faults } = this.#played;
    this.#played = { preset, faults: { ...faults, seed } };
    const known = PRESETS.find(({ name }) => name === preset);
    if (known) this.preset(known);
    else this.#play(this.#played);
  }

  /** Does something once. */
  act(action: FaultAction): void {
    this.control.act(action).catch(this.onTrouble);
  }

  #play(played: Played): void {
    this.#timers.forEach(clearTimeout);
    this.#timers = [];
    this.#played = played;
    this.onChange(played);
    this.#sending ??= setTimeout(() => {
      this.#sending = undefined;
      this.control.write(this.#played.faults).catch(this.onTrouble);
    }, SEND_MS);
  }

  #round(preset: Preset): void {
    this.#timers = preset.script.map(([second, action]) => setTimeout(() => this.act(action), second * 1_000));
    this.#timers.push(setTimeout(() => this.#round(preset), preset.round * 1_000));
  }
}
