import type { Page } from 'playwright-core';
import type { Logged, State, Truth } from './producer';

/** What a cell of the page showed, as it was written there. */
export interface Shown {
  readonly entity: string;
  readonly epoch: string;
  readonly seq: number;
  readonly status: string;
  /** Such as `62 %`; empty where there is none. */
  readonly progress: string;
  readonly sync: string;
  /** When it was written, in milliseconds since 1970. */
  readonly at?: number;
}

/** A cell that was marked wrong, and the server's cell beside it. */
export interface Marked {
  /** In milliseconds since 1970. */
  readonly at: number;
  readonly shown: Shown;
  readonly truth: Shown | undefined;
  /** What the cell says of itself. */
  readonly says: string;
}

declare global {
  interface Window {
    /** Everything that the columns showed, in order. */
    shown: Record<'inorder' | 'naive', Shown[]>;
    /** How many cells of each were marked wrong at most at a time. */
    wrong: Record<'inorder' | 'naive', number>;
    /** Our cells that were marked wrong. */
    marked: Marked[];
    readCell(cell: Element): Shown;
  }
}

/** Runs in the page before its scripts: writes down what the reader sees, from the document itself. */
function watch(): void {
  const columns = ['inorder', 'naive'] as const;
  window.shown = { inorder: [], naive: [] };
  window.wrong = { inorder: 0, naive: 0 };
  window.marked = [];
  window.readCell = (cell) => {
    const written = (name: string): string => cell.querySelector(`.${name}`)?.textContent ?? '';
    return {
      entity: cell.getAttribute('data-entity') ?? '',
      epoch: cell.getAttribute('data-epoch') ?? '',
      seq: Number(written('seq').slice(1)),
      status: written('status'),
      progress: written('progress'),
      sync: cell.getAttribute('data-sync') ?? '',
    };
  };
  const last = { inorder: new Map<string, string>(), naive: new Map<string, string>() };
  new MutationObserver((changes) => {
    const cells = new Set<Element>();
    for (const { target } of changes) {
      const element = target instanceof Element ? target : target.parentElement;
      for (const cell of [element?.closest('.cell'), ...(element?.querySelectorAll('.cell') ?? [])]) {
        if (cell) cells.add(cell);
      }
    }
    for (const cell of cells) {
      const column = columns.find((name) => name === cell.getAttribute('data-column'));
      if (!column) continue;
      const shown = window.readCell(cell);
      const text = JSON.stringify(shown);
      if (shown.seq === 0 || last[column].get(shown.entity) === text) continue;
      last[column].set(shown.entity, text);
      window.shown[column].push({ ...shown, at: Date.now() });
    }
    for (const column of columns) {
      const wrong = document.querySelectorAll(`.cell[data-column="${column}"][data-verdict="wrong"]`).length;
      window.wrong[column] = Math.max(window.wrong[column], wrong);
    }
    for (const cell of document.querySelectorAll('.cell[data-column="inorder"][data-verdict="wrong"]')) {
      const truth = cell.parentElement?.querySelector('.cell[data-column="truth"]');
      window.marked.push({
        at: Date.now(),
        shown: window.readCell(cell),
        truth: truth ? window.readCell(truth) : undefined,
        says: cell.querySelector('.mark')?.textContent ?? '',
      });
    }
  }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
}

/** Begins to write down what a page shows; before it is opened. */
export async function watchPage(page: Page): Promise<void> {
  await page.addInitScript(watch);
}

/** What one column shows now. */
export async function readColumn(page: Page, column: 'inorder' | 'naive' | 'truth'): Promise<Map<string, Shown>> {
  const cells = await page.evaluate(
    (name) => [...document.querySelectorAll(`.cell[data-column="${name}"]`)].map((cell) => window.readCell(cell)),
    column,
  );
  return new Map(cells.map((cell) => [cell.entity, cell]));
}

/**
 * In what a column differs from the truth; nothing when they are the same.
 *
 * What is final is not asked for again in a new epoch, so that its epoch may be an old one.
 */
export function differences(column: ReadonlyMap<string, Shown>, truth: ReadonlyMap<string, Truth>): string[] {
  const wrong: string[] = [];
  for (const [entity, { epoch, seq, status, data }] of truth) {
    const cell = column.get(entity);
    const of = (at: string | undefined): string => (isTerminal(entity, status) ? '' : ` of ${at}`);
    const right = `#${seq} ${status} ${progressOf(data)}${of(epoch)}`;
    const shown = cell && `#${cell.seq} ${cell.status} ${cell.progress}${of(cell.epoch)}`;
    if (shown !== right) wrong.push(`${entity}: shown ${shown ?? 'nothing'} (${cell?.sync}), is ${right}`);
  }
  for (const entity of column.keys()) if (!truth.has(entity)) wrong.push(`${entity}: shown, is no member`);
  return wrong;
}

const progressOf = (data: Record<string, unknown> | null): string =>
  typeof data?.['progress'] === 'number' ? `${data['progress']} %` : '';

const TERMINAL: Record<string, readonly string[]> = { job: ['completed', 'failed', 'cancelled'], deployment: ['live'] };

const isTerminal = (entity: string, status: string | undefined): boolean =>
  (TERMINAL[entity.split('/')[0] ?? ''] ?? []).includes(status ?? '');

/** The changes of all entities by epoch and number, as they were stored. */
export class Log {
  readonly #changes = new Map<string, Map<number, Logged>>();
  /** In the order in which they began. */
  readonly #epochs: string[] = [];

  add(entity: string, epoch: string, change: Logged): void {
    this.began(epoch);
    const key = `${entity} ${epoch}`;
    const changes = this.#changes.get(key) ?? new Map<number, Logged>();
    changes.set(change.seq, change);
    this.#changes.set(key, changes);
  }

  /** An epoch is current from now on. */
  began(epoch: string): void {
    if (!this.#epochs.includes(epoch)) this.#epochs.push(epoch);
  }

  /** A change as an epoch has it: what was not given anew there comes from the epochs before. */
  #change(entity: string, epoch: string, seq: number): Logged | undefined {
    for (let at = this.#epochs.indexOf(epoch); at >= 0; at--) {
      const change = this.#changes.get(`${entity} ${this.#epochs[at]}`)?.get(seq);
      if (change) return change;
    }
    return undefined;
  }

  /** The state after a change, folded from the first on; `undefined` when the log has no such change. */
  state(entity: string, epoch: string, seq: number): State | undefined {
    let state: State = { status: undefined, data: {} };
    for (let number = 1; number <= seq; number++) {
      const change = this.#change(entity, epoch, number);
      if (!change) return undefined;
      const data = { ...state.data };
      for (const [key, value] of Object.entries(change.data ?? {})) {
        if (value === null) delete data[key];
        else data[key] = value;
      }
      state = { status: change.status ?? state.status, data };
    }
    return state;
  }
}

/** Something that was shown and should not have been. */
export interface Fault {
  readonly shown: Shown;
  readonly says: string;
}

/**
 * Checks what was shown against the log: every state existed, in the order in which it existed, and what was final
 * stayed as it was. Returns what is wrong, and how many states were checked.
 */
export function checkShown(shown: readonly Shown[], log: Log): { faults: Fault[]; checked: number } {
  const faults: Fault[] = [];
  const last = new Map<string, Shown>();
  const retired = new Map<string, Set<string>>();
  let checked = 0;
  for (const now of shown) {
    const { entity, epoch, seq, status, progress } = now;
    const before = last.get(entity);
    last.set(entity, now);
    const fault = (says: string): void => void faults.push({ shown: now, says });
    const what = `${entity} ${epoch} #${seq} ${status} ${progress}`;
    const same = before?.epoch === epoch && before.seq === seq;
    if (before) {
      const was = `after #${before.seq} ${before.status} of ${before.epoch}`;
      if (before.epoch === epoch && seq < before.seq) fault(`${what}: went back ${was}`);
      if (same && (before.status !== status || before.progress !== progress)) fault(`${what}: another ${was}`);
      if (isTerminal(entity, before.status) && (before.status !== status || before.progress !== progress)) {
        fault(`${what}: came back to life ${was}`);
      }
      const old = retired.get(entity) ?? new Set<string>();
      if (before.epoch !== epoch) old.add(before.epoch);
      if (old.has(epoch)) fault(`${what}: an epoch that was over ${was}`);
      retired.set(entity, old);
    }
    if (same) continue;
    const state = log.state(entity, epoch, seq);
    checked += 1;
    if (!state) {
      fault(`${what}: the log has no such change`);
      continue;
    }
    if (status !== state.status || progress !== progressOf(state.data)) {
      fault(`${what}: the log has ${state.status} ${progressOf(state.data)}`);
    }
  }
  return { faults, checked };
}
