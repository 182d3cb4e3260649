import { el, part, setAttribute, setText } from '../dom';
import { BUTTONS, PRESETS, SCALES, type FaultScale, type Faults } from '../faults';
import type { Played, Stage } from '../stage';

const shown = ({ name }: FaultScale, value: number): string =>
  name === 'delay' ? `${value} ms` : `${Math.round(value * 100)} %`;

const CALM_SAYS = 'No faults. Both columns agree.';

/** The presets, sliders, buttons and the seed. */
export class Controls {
  readonly #presets = new Map<string, HTMLButtonElement>();
  readonly #sliders = new Map<keyof Faults, { input: HTMLInputElement; output: HTMLElement; scale: FaultScale }>();
  readonly #seed = el('input', {
    id: 'seed',
    type: 'number',
    min: 0,
    max: 4_294_967_295,
    step: 1,
    inputmode: 'numeric',
  });

  constructor(private readonly stage: Stage) {
    this.#mountPresets();
    this.#mountSliders();
    this.#mountButtons();
    this.#mountSeed();
    for (const id of ['faults', 'lead', 'played']) part(id).hidden = false;
    this.show(stage.played);
  }

  #mountPresets(): void {
    const add = (name: string, label: string, says: string, play: () => void): void => {
      const button = el(
        'button',
        { type: 'button', 'aria-pressed': 'false' },
        el('b', {}, label),
        el('span', {}, says),
      );
      button.addEventListener('click', play);
      this.#presets.set(name, button);
      part('presets').append(button);
    };
    add('calm', 'Calm', CALM_SAYS, () => this.stage.calm());
    for (const preset of PRESETS) add(preset.name, preset.label, preset.says, () => this.stage.preset(preset));
  }

  #mountSliders(): void {
    const list = part('faults').querySelector('.sliders');
    for (const scale of SCALES) {
      const { name, label, hint, max, step } = scale;
      const id = `fault-${name}`;
      const input = el('input', { id, type: 'range', min: 0, max, step, value: 0, 'aria-describedby': `${id}-hint` });
      // What changes is read out with the slider; an output element would read out all of them with each preset.
      const output = el('span', { class: 'value', 'aria-hidden': 'true' });
      input.addEventListener('input', () => this.stage.set({ [name]: input.valueAsNumber }));
      this.#sliders.set(name, { input, output, scale });
      list?.append(
        el(
          'div',
          { class: 'slider', title: hint },
          el('label', { for: id }, label),
          input,
          output,
          el('small', { id: `${id}-hint` }, hint),
        ),
      );
    }
  }

  #mountButtons(): void {
    const list = part('faults').querySelector('.buttons');
    for (const { action, label, hint } of BUTTONS) {
      const button = el('button', { type: 'button', title: hint, 'data-action': action }, label);
      button.addEventListener('click', () => this.stage.act(action));
      list?.append(button);
    }
  }

  #mountSeed(): void {
    const copy = el('button', { type: 'button', title: 'The address has the seed and all settings' }, 'Copy link');
    copy.addEventListener('click', () => {
      void navigator.clipboard.writeText(location.href).then(
        () => setText(copy, 'Copied'),
        () => setText(copy, 'Copy it from the address bar'),
      );
      setTimeout(() => setText(copy, 'Copy link'), 2_000);
    });
    this.#seed.addEventListener('change', () => {
      if (this.#seed.checkValidity() && this.#seed.value !== '') this.stage.seed(this.#seed.valueAsNumber);
    });
    part('faults')
      .querySelector('.seed')
      ?.append(el('label', { for: 'seed' }, 'Seed'), this.#seed, copy);
  }

  /** Shows what is played. */
  show({ faults, preset }: Played): void {
    for (const [name, button] of this.#presets) setAttribute(button, 'aria-pressed', String(name === preset));
    // Where there is no room for it on the buttons.
    const says = PRESETS.find(({ name }) => name === preset)?.says;
    setText(part('played'), says ?? (preset === 'calm' ? CALM_SAYS : 'Faults as set below.'));
    for (const [name, { input, output, scale }] of this.#sliders) {
      const value = faults[name];
      if (input.valueAsNumber !== value) input.value = String(value);
      input.style.setProperty('--part', String(value / scale.max));
      setAttribute(input, 'aria-valuetext', shown(scale, value));
      setText(output, shown(scale, value));
      setAttribute(output, 'data-some', value > 0);
    }
    if (document.activeElement !== this.#seed) this.#seed.value = String(faults.seed);
  }
}
