import { el, part, setAttribute, setText, svg } from '../dom';
import type { Course, Lane, Mark } from '../journal';

/** How much time is drawn, in milliseconds, and how often it is drawn anew; rarely for those who want less motion. */
const WINDOW_MS = 20_000;
const PAINT_MS = 100;
const CALM_PAINT_MS = 1_000;

/** So long after the panel opened its row is kept in sight, unless somebody scrolls, in milliseconds. */
const SETTLING_MS = 2_500;

const LANES: readonly Lane[] = ['received', 'held', 'applied', 'dropped', 'replayed'];
const LANE_HEIGHT = 34;
const LEFT = 76;
const RIGHT = 30;
const TOP = 22;
const BOTTOM = 20;
const HEIGHT = TOP + LANES.length * LANE_HEIGHT + BOTTOM;

/** The least distance of two marks, and how far a crowd may push one aside, in pixels. */
const STEP = 14;
const CROWD = 80;

/** Bars in the lane of what is held, and the width of a letter, in pixels. */
const HELD_ROWS = 4;
const CHARACTER = 6.4;

/** The last happenings that are listed as text. */
const LISTED = 7;

const y = (lane: Lane): number => TOP + (LANES.indexOf(lane) + 0.62) * LANE_HEIGHT;

const span = (from: number, to: number): string => (from === to ? `#${from}` : `#${from}–${to}`);

/** What a mark says, in words. */
function words({ lane, kind, seq, status, note }: Mark): string {
  const what = `${kind === 'snapshot' ? 'snapshot ' : ''}#${seq}${status ? ` ${status}` : ''}`;
  return `${lane} ${what}${note ? ` (${note})` : ''}`;
}

/** The lanes of one entity: what came, what waited, what was shown. */
export class Timeline {
  readonly #root = part('timeline');
  readonly #title = el('h2', { id: 'timeline-title' });
  readonly #state = el('p', { class: 'state' });
  readonly #drawing = svg('svg', { role: 'img', 'aria-labelledby': 'timeline-title', height: HEIGHT, width: '100%' });
  readonly #list = el('ol', { class: 'log', 'aria-label': 'The last happenings, newest first' });
  readonly #pause = el('button', { type: 'button' }, 'Pause');
  readonly #calm = matchMedia('(prefers-reduced-motion: reduce)');
  #painted = 0;
  #settled = 0;
  #pausedAt: number | undefined;
  #opener: Element | null = null;
  entity: string | undefined;

  constructor(private readonly onClose: () => void) {
    const close = el('button', { type: 'button', class: 'icon', 'aria-label': 'Close the timeline' }, '✕');
    close.addEventListener('click', () => this.close());
    this.#pause.addEventListener('click', () => {
      this.#pausedAt = this.#pausedAt === undefined ? performance.now() : undefined;
      setText(this.#pause, this.#pausedAt === undefined ? 'Pause' : 'Go on');
    });
    for (const type of ['wheel', 'touchmove']) addEventListener(type, () => (this.#settled = 0), { passive: true });
    document.addEventListener('keydown', ({ key }) => {
      if (key === 'Escape' && this.entity !== undefined) this.close();
    });
    this.#root.append(
      el('header', {}, this.#title, this.#state, this.#pause, close),
      el('div', { class: 'body' }, el('div', { class: 'lanes' }, this.#drawing as unknown as HTMLElement), this.#list),
    );
  }

  open(entity: string): void {
    if (this.entity === entity) return this.close();
    this.#opener = document.activeElement;
    this.entity = entity;
    this.#pausedAt = undefined;
    setText(this.#pause, 'Pause');
    this.#painted = 0;
    this.#root.hidden = false;
    document.body.dataset['timeline'] = 'open';
    this.#root.setAttribute('tabindex', '-1');
    this.#root.focus({ preventScroll: true });
  }

  /** Scrolls the row from under the panel. */
  #uncover(): void {
    const row = this.#opener?.closest('tr')?.getBoundingClientRect();
    const over = row ? row.bottom - this.#root.getBoundingClientRect().top : 0;
    if (over > 0) scrollBy({ top: over + 8 });
  }

  close(): void {
    const entity = this.entity ?? '';
    const inside = this.#root.contains(document.activeElement);
    this.entity = undefined;
    this.#root.hidden = true;
    delete document.body.dataset['timeline'];
    if (inside) this.#goBack(entity);
    this.#opener = null;
    this.onClose();
  }

  /** Gives the focus back to the row; rows change places, and a row may be gone by now. */
  #goBack(entity: string): void {
    const row = document.querySelector<HTMLElement>(`#board tr[data-entity="${CSS.escape(entity)}"] .name`);
    const opener = this.#opener instanceof HTMLElement && this.#opener.isConnected ? this.#opener : undefined;
    (row ?? opener ?? part('board')).focus({ preventScroll: true });
  }

  show(course: Course, title: string, now: number): void {
    if (!this.entity || now - this.#painted < (this.#calm.matches ? CALM_PAINT_MS : PAINT_MS)) return;
    if (this.#painted === 0) this.#settled = now + SETTLING_MS;
    this.#painted = now;
    const at = this.#pausedAt ?? now;
    setText(this.#title, title);
    const { gap } = course;
    setText(
      this.#state,
      gap
        ? `${course.sync}: ${span(gap.from, gap.to)} missing for ${((at - gap.at) / 1_000).toFixed(1)} s, ${course.held.size} held`
        : `${course.sync} at #${Math.max(0, course.seq)}`,
    );
    setAttribute(this.#state, 'data-gap', gap !== undefined);
    if (this.#pausedAt === undefined || this.#list.childElementCount === 0) this.#write(course, at);
    this.#draw(course, at);
    // Only now the panel is as high as it is; it may grow for a moment, and rows above may come and go.
    if (now < this.#settled) this.#uncover();
  }

  #write(course: Course, now: number): void {
    const recent = course.marks.slice(-LISTED).reverse();
    while (this.#list.childElementCount > recent.length) this.#list.lastElementChild?.remove();
    recent.forEach((mark, index) => {
      let line = this.#list.children[index];
      if (!line) {
        line = el('li', {}, el('time'), el('span'));
        this.#list.append(line);
      }
      setAttribute(line, 'data-lane', mark.lane);
      const [time, text] = line.children;
      if (time) setText(time, `−${((now - mark.at) / 1_000).toFixed(1)} s`);
      if (text) setText(text, words(mark));
    });
  }

  #draw(course: Course, now: number): void {
    const width = this.#drawing.clientWidth || 600;
    const x = (at: number): number => LEFT + ((at - now + WINDOW_MS) / WINDOW_MS) * (width - LEFT - RIGHT);
    const from = now - WINDOW_MS;
    const nodes: Node[] = [];
    for (const lane of LANES) {
      nodes.push(
        svg('line', { class: 'lane', x1: LEFT, x2: width - RIGHT, y1: y(lane), y2: y(lane) }),
        svg('text', { class: 'lane-name', x: LEFT - 10, y: y(lane) + 4, 'text-anchor': 'end' }, lane),
      );
    }
    for (let ago = 0; ago <= WINDOW_MS; ago += 5_000) {
      const at = x(now - ago);
      nodes.push(
        svg('line', { class: 'tick', x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }),
        svg(
          'text',
          { class: 'time', x: at, y: HEIGHT - 5, 'text-anchor': ago === 0 ? 'end' : 'middle' },
          ago ? `−${ago / 1_000} s` : 'now',
        ),
      );
    }
    // The newest gap's words come first; older ones are written where there is room left.
    let free = width;
    for (const gap of [...course.gaps].reverse()) {
      const end = gap.healed ?? now;
      if (end < from) continue;
      const left = Math.max(LEFT, x(gap.at));
      const height = HEIGHT - TOP - BOTTOM;
      const className = gap.healed ? 'gap healed' : 'gap';
      nodes.push(svg('rect', { class: className, x: left, y: TOP, width: Math.max(2, x(end) - left), height }));
      const took = ((end - gap.at) / 1_000).toFixed(2);
      const says = `${span(gap.from, gap.to)} ${gap.healed ? `healed in ${took} s` : 'missing'}`;
      const wide = says.length * CHARACTER;
      const start = Math.min(left, width - wide);
      if (start + wide > free) continue;
      free = start - CHARACTER;
      nodes.push(svg('text', { class: 'gap-name', x: start, y: TOP - 7 }, says));
    }
    const taken: Partial<Record<Lane, number>> = {};
    const rows: number[] = [];
    for (const mark of course.marks) {
      if ((mark.until ?? (mark.lane === 'held' ? now : mark.at)) < from) continue;
      nodes.push(...this.#mark(mark, x, now, taken, rows));
    }
    this.#drawing.replaceChildren(...nodes);
  }

  #mark(
    mark: Mark,
    x: (at: number) => number,
    now: number,
    taken: Partial<Record<Lane, number>>,
    rows: number[],
  ): Node[] {
    const { lane, kind, seq, at, until } = mark;
    const middle = y(lane);
    const title = svg('title', {}, words(mark));
    const before = taken[lane] ?? -99;
    const start = Math.max(LEFT, x(at));
    // What happened in one instant stands side by side.
    const left = lane !== 'held' && before - start < CROWD && start - before < STEP ? before + STEP : start;
    const end = Math.max(start + 3, x(until ?? now));
    // What is held at the same time lies in rows of its own, as far as there are rows.
    const row =
      lane === 'held'
        ? Math.max(
            0,
            Array.from({ length: HELD_ROWS }, (_, i) => rows[i] ?? 0).findIndex((busy) => busy <= start),
          )
        : 0;
    if (lane === 'held') rows[row] = end;
    const shape =
      lane === 'held'
        ? svg('rect', { x: start, y: middle - 6 + row * 4, width: end - start, height: 3, rx: 1.5 }, title)
        : kind === 'snapshot'
          ? svg('path', { d: `M${left} ${middle - 7}l7 7-7 7-7-7z` }, title)
          : svg('circle', { cx: left, cy: middle, r: 5 }, title);
    setAttribute(shape, 'class', `mark ${lane}`);
    const nodes: Node[] = [shape];
    // A number only where there is room for it.
    if (left - before >= STEP) {
      taken[lane] = left;
      nodes.push(svg('text', { class: 'number', x: left, y: middle - 9, 'text-anchor': 'middle' }, String(seq)));
    }
    return nodes;
  }
}
