import type { Stats } from 'inorder';
import { el, part, setAttribute, setText } from '../dom';

interface Counter {
  readonly name: string;
  readonly label: string;
  readonly hint: string;
  readonly of: (stats: Stats, prevented: number) => number;
}

const COUNTERS: readonly Counter[] = [
  { name: 'applied', label: 'Applied', hint: 'changes shown, in order', of: ({ applied }) => applied },
  { name: 'duplicates', label: 'Duplicates', hint: 'dropped, covered already', of: ({ duplicates }) => duplicates },
  { name: 'held', label: 'Held', hint: 'came early and waited', of: ({ held }) => held },
  { name: 'replays', label: 'Replays', hint: 'missing changes asked for', of: ({ replays }) => replays },
  {
    name: 'snapshots',
    label: 'Snapshots',
    hint: 'asked for where replay was not enough',
    of: ({ snapshots }) => snapshots,
  },
  { name: 'prevented', label: 'Revivals prevented', hint: 'what is finished stays finished', of: (_, n) => n },
];

/** The counters, which only grow. */
export class Counters {
  readonly #values = new Map<string, HTMLElement>();

  constructor() {
    const list = part('counters').querySelector('dl');
    for (const { name, label, hint } of COUNTERS) {
      const value = el('dd', { 'data-counter': name }, '0');
      this.#values.set(name, value);
      list?.append(el('div', { title: hint }, el('dt', {}, label), value));
    }
  }

  /** `prevented`: what came back to life in the other column and stayed as it was in ours. */
  show(stats: Stats | undefined, prevented: number): void {
    if (!stats) return;
    for (const { name, of } of COUNTERS) {
      const value = this.#values.get(name);
      if (!value) continue;
      const count = of(stats, prevented);
      setText(value, count.toLocaleString('en'));
      setAttribute(value, 'data-some', count > 0);
    }
  }
}
