import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { part, setText } from '../dom';
import type { Recovery } from '../journal';
import { colour } from './theme';

/** A sample this often, for this long, in seconds. */
const EVERY_S = 0.5;
const WINDOW_S = 90;
const HEIGHT = 124;

/** The two plots: how much waits, and how long it takes to be right again. */
export class Plots {
  #times: number[] = [];
  #held: number[] = [];
  #recovery: (number | null)[] = [];
  #peak = 0;
  #heldPlot: uPlot | undefined;
  #recoveryPlot: uPlot | undefined;
  #seen = 0;

  constructor() {
    this.paint();
    new ResizeObserver(() => this.#resize()).observe(part('held-plot'));
  }

  /** How much is held now; the peak of each sample is drawn. */
  held(count: number): void {
    this.#peak = Math.max(this.#peak, count);
  }

  /** Adds a sample. `recoveries` are in order of time. */
  sample(now: number, recoveries: readonly Recovery[], held: number): void {
    const at = now / 1_000;
    if (at - (this.#times.at(-1) ?? -1) < EVERY_S) return;
    const fresh = recoveries.filter((recovery) => recovery.at > this.#seen);
    this.#seen = now;
    this.#times.push(at);
    this.#held.push(Math.max(this.#peak, held));
    this.#peak = 0;
    this.#recovery.push(fresh.length ? Math.max(...fresh.map(({ took }) => took)) / 1_000 : null);
    while ((this.#times[0] ?? at) < at - WINDOW_S) {
      this.#times.shift();
      this.#held.shift();
      this.#recovery.shift();
    }
    this.#heldPlot?.setData([this.#times, this.#held], false);
    this.#recoveryPlot?.setData([this.#times, this.#recovery], false);
    this.#scale(at);
    setText(part('held-now'), `${held} now`);
    const recent = recoveries.filter((recovery) => recovery.at > now - WINDOW_S * 1_000).map(({ took }) => took);
    recent.sort((a, b) => a - b);
    const median = recent[Math.floor(recent.length / 2)];
    const longest = recent.at(-1);
    setText(
      part('recovery-now'),
      median === undefined || longest === undefined
        ? 'nothing to recover from'
        : `median ${(median / 1_000).toFixed(2)} s, longest ${(longest / 1_000).toFixed(2)} s`,
    );
  }

  #scale(at: number): void {
    // Tops whose halves are round, too.
    const top = (values: readonly (number | null)[], least: number): number => {
      const highest = Math.max(least, ...values.map((value) => value ?? 0));
      const unit = 10 ** Math.floor(Math.log10(highest));
      return ([1, 2, 4, 6, 8].find((steps) => steps * unit >= highest) ?? 10) * unit;
    };
    for (const [plot, max] of [
      [this.#heldPlot, top(this.#held, 4)],
      [this.#recoveryPlot, top(this.#recovery, 1)],
    ] as const) {
      plot?.setScale('x', { min: at - WINDOW_S, max: at });
      plot?.setScale('y', { min: 0, max });
    }
  }

  /** Draws both anew, in the colours of now. */
  paint(): void {
    this.#heldPlot?.destroy();
    this.#recoveryPlot?.destroy();
    const steps = uPlot.paths.stepped?.({ align: 1 });
    const bars = uPlot.paths.bars?.({ size: [0.9, 4] });
    const accent = colour('accent');
    const warn = colour('warn');
    this.#heldPlot = this.#make('held-plot', accent, `${accent}26`, steps, [this.#times, this.#held], String);
    const seconds = (value: number): string => `${value} s`;
    this.#recoveryPlot = this.#make('recovery-plot', warn, warn, bars, [this.#times, this.#recovery], seconds);
    const at = this.#times.at(-1);
    if (at !== undefined) this.#scale(at);
  }

  #make(
    id: string,
    stroke: string,
    fill: string,
    paths: uPlot.Series.PathBuilder | undefined,
    data: uPlot.AlignedData,
    label: (value: number) => string,
  ): uPlot {
    const root = part(id);
    const grid = { stroke: colour('line'), width: 1 };
    const axis = { stroke: colour('faint'), font: '11px "Inter Variable", sans-serif', ticks: { show: false } };
    const values = (_: uPlot, splits: number[]): string[] => splits.map(label);
    const ago = (plot: uPlot, splits: number[]): string[] => {
      const newest = plot.scales['x']?.max ?? 0;
      return splits.map((at) => (newest - at < 1 ? 'now' : `−${Math.round(newest - at)} s`));
    };
    return new uPlot(
      {
        width: Math.max(120, root.clientWidth),
        height: HEIGHT,
        padding: [8, 16, 0, 0],
        cursor: { show: false },
        legend: { show: false },
        scales: { x: { time: false, auto: false, min: 0, max: WINDOW_S }, y: { auto: false, min: 0, max: 4 } },
        axes: [
          {
            ...axis,
            grid: { show: false },
            size: 22,
            gap: 3,
            values: ago,
            splits: (plot) => {
              const newest = plot.scales['x']?.max ?? WINDOW_S;
              return [newest - 60, newest - 30, newest];
            },
          },
          { ...axis, grid, size: 34, gap: 4, values, splits: (_, __, min, max) => [min, max / 2, max] },
        ],
        series: [{}, { stroke, fill, width: 1.5, points: { show: false }, ...(paths ? { paths } : {}) }],
      },
      data,
      root,
    );
  }

  #resize(): void {
    for (const [id, plot] of [
      ['held-plot', this.#heldPlot],
      ['recovery-plot', this.#recoveryPlot],
    ] as const) {
      const width = part(id).clientWidth;
      if (plot && width > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }
}
