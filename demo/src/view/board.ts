import type { EntitySnapshot, Sync } from 'inorder';
import { el, part, setAttribute, setText } from '../dom';
import { modelOf } from '../frames';
import type { Judge, Shown, Verdict } from '../judge';
import type { NaiveCell } from '../naive';
import type { TrueState } from '../source';

/** How long a resurrection stays marked, in milliseconds. */
const RESURRECTED_MS = 6_000;

type Column = 'truth' | 'naive' | 'inorder';

const COLUMNS: readonly Column[] = ['truth', 'naive', 'inorder'];
const TITLES: Record<Column, string> = { truth: 'Server', naive: 'Naive client', inorder: 'inorder' };
const SUBTITLES: Record<Column, string> = {
  truth: 'the truth',
  naive: 'last message wins',
  inorder: 'next change wins',
};

/** Everything that a cell says. */
interface Content {
  readonly status: string | undefined;
  readonly data: Record<string, unknown>;
  readonly seq: number | undefined;
  readonly epoch: string | undefined;
  readonly sync?: Sync | undefined;
  readonly verdict?: Verdict | undefined;
  readonly resurrected?: boolean;
  readonly silent?: boolean;
}

const object = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};

const text = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');

/** What stands under the status: who works on it, why it failed. */
function detailOf(data: Record<string, unknown>): string {
  const attempt = data['attempt'];
  const parts = [
    data['error'] ?? data['note'] ?? data['worker'],
    data['commit'],
    typeof attempt === 'number' && attempt > 1 ? `attempt ${attempt}` : undefined,
  ];
  return parts.map(text).filter(Boolean).join(' · ');
}

/** In what a wrong cell differs from the truth, for people. */
function differenceOf(content: Content, truth: TrueState): string {
  const data = object(truth.data);
  if (content.status !== truth.status) return `is really ${truth.status ?? 'unknown'}`;
  if (content.data['progress'] !== data['progress']) return `is really ${text(data['progress'])} %`;
  const lacking = Object.keys(data).find((name) => content.data[name] !== data[name]);
  if (lacking !== undefined) return content.data[lacking] === undefined ? `lacks its ${lacking}` : `${lacking} differs`;
  const over = Object.keys(content.data).find((name) => !(name in data));
  return over === undefined ? 'is of another time' : `${over} is over`;
}

class Cell {
  readonly root: HTMLTableCellElement;
  readonly #status = el('span', { class: 'status' });
  readonly #fill = el('i');
  readonly #bar = el('span', { class: 'bar', 'aria-hidden': 'true' }, this.#fill);
  readonly #progress = el('span', { class: 'progress' });
  readonly #seq = el('span', { class: 'seq' });
  readonly #mark = el('span', { class: 'mark' });
  readonly #detail = el('span', { class: 'detail' });

  constructor(readonly column: Column) {
    this.root = el(
      'td',
      { role: 'cell', class: 'cell', 'data-column': column },
      el('div', { class: 'line' }, this.#status, this.#bar, this.#progress, this.#seq),
      el('div', { class: 'line second' }, this.#mark, this.#detail),
    );
  }

  show(entity: string, content: Content | undefined, truth: TrueState | undefined): void {
    const { root } = this;
    const status = content?.status;
    const progress = content?.data['progress'];
    const percent = typeof progress === 'number' ? `${progress} %` : '';
    setAttribute(root, 'data-entity', entity);
    setAttribute(root, 'data-seq', content?.seq);
    setAttribute(root, 'data-epoch', content?.epoch);
    setAttribute(root, 'data-status', status);
    setAttribute(root, 'data-progress', typeof progress === 'number' ? progress : undefined);
    setAttribute(root, 'data-sync', content?.sync);
    setAttribute(root, 'data-silent', content?.silent ?? false);
    setAttribute(root, 'data-verdict', content?.verdict);
    setAttribute(root, 'data-resurrected', content?.resurrected ?? false);
    setText(this.#status, status ?? '—');
    setText(this.#progress, percent);
    setText(this.#seq, content?.seq === undefined ? '' : `#${content.seq}`);
    setAttribute(this.#bar, 'hidden', percent === '');
    const width = percent === '' ? '' : `${Math.max(0, Math.min(100, progress as number))}%`;
    if (this.#fill.style.width !== width) this.#fill.style.width = width;
    setText(this.#mark, this.#markOf(content, truth));
    setText(this.#detail, content ? detailOf(content.data) : '');
  }

  #markOf(content: Content | undefined, truth: TrueState | undefined): string {
    if (!content) return '';
    if (content.seq === undefined && content.sync === undefined) {
      // Newer than the truth: it has left, or is about to come.
      return content.verdict === 'ahead' ? '' : 'not heard of';
    }
    if (content.resurrected) return 'back from the dead';
    if (content.verdict === 'wrong' && truth) return differenceOf(content, truth);
    if (content.silent && content.sync === 'live') return 'silent';
    if (content.sync !== undefined && content.sync !== 'live') return content.sync;
    if (content.verdict === 'late') return this.column === 'naive' ? 'behind' : 'catching up';
    return content.sync ?? '';
  }
}

class Row {
  readonly root = el('tr', { role: 'row' });
  readonly #name = el('button', { type: 'button', class: 'name' });
  readonly #title = el('span', { class: 'title' });
  readonly #id = el('span', { class: 'id' });
  readonly #cells: Record<Column, Cell> = {
    truth: new Cell('truth'),
    naive: new Cell('naive'),
    inorder: new Cell('inorder'),
  };
  entity = '';

  constructor(onOpen: (entity: string) => void) {
    this.#name.append(this.#title, this.#id);
    this.#name.addEventListener('click', () => onOpen(this.entity));
    this.root.append(
      el('th', { role: 'rowheader', scope: 'row' }, this.#name),
      ...COLUMNS.map((column) => this.#cells[column].root),
    );
  }

  show(
    entity: string,
    contents: Record<Column, Content | undefined>,
    truth: TrueState | undefined,
    open: boolean,
  ): void {
    this.entity = entity;
    const data = contents.truth?.data ?? contents.inorder?.data ?? {};
    setText(this.#title, text(data['name'] ?? data['service']) || entity);
    setText(this.#id, entity);
    setAttribute(this.root, 'data-entity', entity);
    setAttribute(this.root, 'data-open', open);
    setAttribute(this.#name, 'aria-expanded', open ? 'true' : 'false');
    setAttribute(this.#name, 'aria-controls', 'timeline');
    for (const column of COLUMNS) this.#cells[column].show(entity, contents[column], truth);
  }
}

/** Rows keep their place as long as their entity is there; a new one takes the place of one that left. */
class Group {
  readonly root = el('tbody', { role: 'rowgroup' });
  readonly #rows: Row[] = [];
  readonly #onOpen: (entity: string) => void;

  constructor(title: string, onOpen: (entity: string) => void) {
    this.#onOpen = onOpen;
    this.root.append(
      el(
        'tr',
        { role: 'row', class: 'group' },
        el('th', { role: 'rowheader', scope: 'rowgroup', colspan: COLUMNS.length + 1 }, title),
      ),
    );
  }

  /** The rows of these entities. */
  rows(entities: ReadonlySet<string>): readonly Row[] {
    const here = new Set(this.#rows.map(({ entity }) => entity));
    const free = this.#rows.filter(({ entity }) => !entities.has(entity));
    for (const entity of entities) {
      if (here.has(entity)) continue;
      let row = free.shift();
      if (!row) {
        row = new Row(this.#onOpen);
        this.#rows.push(row);
        this.root.append(row.root);
      }
      row.entity = entity;
    }
    for (const row of free) {
      row.root.remove();
      this.#rows.splice(this.#rows.indexOf(row), 1);
    }
    return this.#rows;
  }
}

/** How a column stands. */
export type Score = Readonly<Record<Verdict, number>>;

/** What the board compares. */
export interface Compared {
  readonly inorder: ReadonlyMap<string, EntitySnapshot>;
  readonly naive: ReadonlyMap<string, NaiveCell>;
  readonly judge: Judge;
  readonly resurrections: number;
  /** How far the set of entities of a model can be trusted. */
  readonly sets: Readonly<Record<string, Sync>>;
  /** Nothing was heard from the server for longer than is normal. */
  readonly silent: boolean;
  readonly open: string | undefined;
}

class Head {
  readonly root: HTMLTableCellElement;
  readonly #count = el('span', { class: 'count' });
  readonly #word = el('span', { class: 'word' });
  readonly #more = el('span');
  readonly #aside = el('span', { class: 'aside' });

  constructor(column: Column) {
    this.root = el(
      'th',
      { role: 'columnheader', scope: 'col', 'data-column': column },
      el('span', { class: 'heading' }, TITLES[column], el('small', {}, SUBTITLES[column])),
      el('span', { class: 'score' }, this.#count, this.#word),
      el('span', { class: 'more' }, this.#more, this.#aside),
    );
  }

  show(count: number, word: string, more: string, bad: boolean, aside = ''): void {
    setAttribute(this.root, 'data-bad', bad);
    setText(this.#count, String(count));
    setText(this.#word, ` ${word}`);
    setText(this.#more, more);
    setText(this.#aside, aside);
  }
}

/** The table of jobs and deployments. */
export class Board {
  readonly #heads: Record<Column, Head> = {
    truth: new Head('truth'),
    naive: new Head('naive'),
    inorder: new Head('inorder'),
  };
  readonly #groups: Record<string, Group>;
  /** When a snapshot was drawn first; it keeps its identity until something changes. */
  readonly #drawn = new WeakMap<EntitySnapshot, number>();
  /** Entities that a column shows nothing of, and since when. */
  readonly #absent: Record<'naive' | 'inorder', Map<string, number>> = { naive: new Map(), inorder: new Map() };

  constructor(onOpen: (entity: string) => void) {
    this.#groups = { job: new Group('Jobs', onOpen), deployment: new Group('Deployments', onOpen) };
    const heads = COLUMNS.map((column) => this.#heads[column].root);
    part('board').append(
      // On a narrow screen the table is laid out as a grid; the roles keep it a table.
      el(
        'table',
        { role: 'table' },
        el(
          'thead',
          { role: 'rowgroup' },
          el(
            'tr',
            { role: 'row' },
            el('th', { role: 'columnheader', scope: 'col', class: 'corner' }, el('span', {}, 'Job')),
            ...heads,
          ),
        ),
        ...Object.values(this.#groups).map(({ root }) => root),
      ),
    );
  }

  /** Shows both columns beside the truth and returns how they stand. */
  show(
    { inorder, naive, judge, resurrections, sets, silent, open }: Compared,
    now: number,
  ): { naive: Score; inorder: Score } {
    const tally = {
      naive: { right: 0, late: 0, wrong: 0, ahead: 0 },
      inorder: { right: 0, late: 0, wrong: 0, ahead: 0 },
    };
    const names = new Set([...judge.entities(), ...inorder.keys()]);
    const absent = (column: 'naive' | 'inorder', entity: string, says: Pick<Shown, 'sync' | 'silent'>): Content => {
      const since = this.#absent[column].get(entity) ?? now;
      this.#absent[column].set(entity, since);
      const verdict = judge.absence(entity, since, says, now);
      return { status: undefined, data: {}, seq: undefined, epoch: undefined, verdict };
    };
    for (const [column, has] of [
      ['naive', naive],
      ['inorder', inorder],
    ] as const) {
      const gone = this.#absent[column];
      for (const entity of gone.keys()) if (has.has(entity) || !names.has(entity)) gone.delete(entity);
    }
    for (const [model, group] of Object.entries(this.#groups)) {
      const entities = new Set([...names].filter((name) => modelOf(name) === model));
      for (const row of group.rows(entities)) {
        const { entity } = row;
        const truth = judge.truth(entity);
        const cell = naive.get(entity);
        const naiveContent = cell ? contentOfNaive(entity, cell, judge, now) : absent('naive', entity, {});
        const snapshot = inorder.get(entity);
        if (snapshot && !this.#drawn.has(snapshot)) this.#drawn.set(snapshot, now);
        const since = (snapshot && this.#drawn.get(snapshot)) ?? now;
        const sync = sets[model];
        const inorderContent = snapshot
          ? contentOfInorder(entity, snapshot, since, silent, judge, now)
          : absent('inorder', entity, { silent, ...(sync ? { sync } : {}) });
        if (naiveContent.verdict) tally.naive[naiveContent.verdict] += 1;
        if (inorderContent.verdict) tally.inorder[inorderContent.verdict] += 1;
        const contents = { truth: contentOfTruth(truth), naive: naiveContent, inorder: inorderContent };
        row.show(entity, contents, truth, entity === open);
      }
    }
    const all = [...judge.entities()].length;
    this.#heads.truth.show(all, 'entities', 'GET /entities', false);
    const dead = `${resurrections} came back from the dead`;
    const unaware = tally.naive.wrong ? 'and does not know it' : 'so far';
    this.#heads.naive.show(tally.naive.wrong, 'wrong', resurrections ? dead : unaware, tally.naive.wrong > 0);
    const late = tally.inorder.late ? `${tally.inorder.late} catching up` : 'all up to date';
    const says = tally.inorder.late ? ', and it says so' : '';
    this.#heads.inorder.show(tally.inorder.wrong, 'wrong', late, tally.inorder.wrong > 0, says);
    return tally;
  }
}

function contentOfTruth(truth: TrueState | undefined): Content | undefined {
  return truth && { ...truth, status: truth.status, data: object(truth.data) };
}

function contentOfNaive(entity: string, cell: NaiveCell, judge: Judge, now: number): Content {
  const verdict = judge.verdict(entity, cell, now);
  const resurrected = cell.resurrectedAt !== undefined && now - cell.resurrectedAt < RESURRECTED_MS;
  return { ...cell, data: object(cell.state), verdict, resurrected: resurrected && verdict !== 'right' };
}

function contentOfInorder(
  entity: string,
  snapshot: EntitySnapshot,
  since: number,
  silent: boolean,
  judge: Judge,
  now: number,
): Content {
  const { state, status, seq, epoch = '', sync } = snapshot;
  if (seq === undefined) {
    return {
      status,
      data: {},
      seq,
      epoch: undefined,
      sync,
      verdict: judge.absence(entity, since, { sync, silent }, now),
    };
  }
  const shown: Shown = { state, status, seq, epoch, highest: seq, since, sync, silent };
  return { status, data: object(state), seq, epoch, sync, silent, verdict: judge.verdict(entity, shown, now) };
}
