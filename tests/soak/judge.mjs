// Judges what a page noted against the truth. By code of its own: nothing of the package is used here.
import { FINAL, modelOf, text } from './truth.mjs';

/** What may be wrong. */
export const FAULTS = [
  'lost', // a change that the page was not given, and was not told that it was passed over
  'doubled', // a change that it was given twice
  'reordered', // a change or a state behind one that it had before
  'resurrected', // a change of something that was final
  'untrue', // a state that never was
  'trapped', // a trap in the wasm
  'thrown', // an uncaught error in the page
  'unheard', // notes that did not come in
];

/** Errors that the faults bring about. Any other that a page is told of is a fault of the client. */
const EXPECTED = [
  'after_final', // a new epoch, whose topic brings the finished jobs again
  'server', // a replay that was refused
  'failed', // five snapshots in a row that were refused, too old or cut off
  'epoch_flapping', // two epochs in quick succession
  'socket', // a page that loads while the gateway is down
];

/** Notes that are kept, and those that are said with a fault. */
const KEPT = 500;
const SAID = 30;

/** One load of a page: judges its notes in their order. */
export class Judge {
  /** Position by entity: epoch, seq, status, state as text, whether it is final. */
  #places = new Map();
  /** Who is in the topic, who left it, and who came back: the next snapshot of those is a join. */
  #members = new Set();
  #left = new Set();
  #joining = new Set();
  /** Was seen when it was not final yet. */
  #open = new Set();
  /** Was reported as final. */
  #finals = new Set();
  /** The last notes, to say with a fault those that concern its entity. */
  #trail = [];
  #entity = '';
  /** It is made to trap. */
  #mayTrap = false;
  /** The counters of the client. */
  stats = {};
  #next = 0;
  #early = new Map();
  faults = Object.fromEntries(FAULTS.map((name) => [name, 0]));
  /** What was wrong, in words. */
  words = [];
  counts = { sockets: 0, changes: 0, shown: 0, hidden: 0, frozen: 0, restored: 0, skips: 0, resets: 0, traps: 0 };
  errors = {};

  constructor(truth) {
    this.truth = truth;
  }

  /** Takes a batch; notes that came twice or in the wrong order are sorted out by their numbers. */
  take(notes) {
    for (const [number, ...note] of notes) if (number >= this.#next) this.#early.set(number, note);
    for (let note; (note = this.#early.get(this.#next));) {
      this.#early.delete(this.#next++);
      this.#note(note);
    }
  }

  /** Had the page noted as much, and did all of it come in? */
  isWhole(count) {
    return this.#next >= count;
  }

  /** The last notes of the page and its connection. */
  get story() {
    return this.#trail
      .filter(({ about }) => about === undefined)
      .map(({ words }) => words)
      .slice(-SAID);
  }

  /** No more will come. */
  end() {
    if (this.#early.size > 0) this.#fault('unheard', `notes from ${this.#next} on`);
    for (const [entity, { isFinal, what }] of this.#places) {
      if (isFinal && this.#open.has(entity) && !this.#finals.has(entity))
        this.#fault('lost', `the final event of ${what}`);
    }
  }

  #fault(name, what) {
    this.faults[name] += 1;
    const concerns = ({ about }) => about === undefined || about === this.#entity || modelOf(about) === 'topic';
    const before = this.#trail.filter(concerns).map(({ words }) => `    ${words}`);
    this.words.push([`${name}: ${what}`, ...before.slice(-SAID)].join('\n'));
  }

  #note([at, kind, ...note]) {
    const [first, second] = note;
    this.#entity = (kind === 'error' ? second : first) ?? '';
    const about = /^\w+\/\w+$/.test(this.#entity) ? this.#entity : undefined;
    if (kind !== 'stats')
      this.#trail.push({ about, words: `${(at / 1_000).toFixed(2)} s ${kind} ${JSON.stringify(note)}` });
    if (this.#trail.length > 2 * KEPT) this.#trail.splice(0, KEPT);
    switch (kind) {
      case 'change':
        return this.#change(...note);
      case 'shown':
        return this.#shown(...note);
      case 'final':
        return this.#final(...note);
      case 'gone':
        return;
      case 'traps':
        this.#mayTrap = true;
        return;
      case 'stats':
        this.stats = note[0];
        return;
      case 'page':
        if (note[0] === 'hidden') this.counts.hidden += 1;
        if (note[0] === 'freeze') this.counts.frozen += 1;
        if (note[0] === 'restored') this.counts.restored += 1;
        return;
      case 'error':
        this.errors[note[0]] = (this.errors[note[0]] ?? 0) + 1;
        if (note[0] === 'fault' && this.#mayTrap) this.counts.traps += 1;
        else if (note[0] === 'fault') this.#fault('trapped', note[2]);
        else if (!EXPECTED.includes(note[0])) this.#fault('untrue', `error ${note.join(' ')}`);
        return;
      case 'thrown':
        return this.#fault('thrown', note[0]);
      case 'connection':
        if (note[0] === 'connecting') this.counts.sockets += 1;
        return;
      default:
        this.#fault('unheard', `a note of kind ${kind}`);
    }
  }

  /** The state must be the one that follows from the log at this position. */
  #compare(what, entity, epoch, seq, status, state) {
    const stored = this.truth.at(entity, epoch, seq) ?? (seq === 0 ? { state: null } : undefined);
    if (!stored) return this.#fault('untrue', `${what}: the log has no such change`);
    // A topic has members instead of a state.
    const should = modelOf(entity) === 'topic' ? 'null' : text(stored.state);
    if (text(state) !== should || (status ?? undefined) !== stored.status) {
      this.#fault('untrue', `${what}: is ${status} ${text(state)}, should be ${stored.status} ${should}`);
    }
  }

  #change(entity, kind, epoch, seq, status, state, event, reset, skipped) {
    this.counts.changes += 1;
    if (skipped) this.counts.skips += 1;
    if (reset) this.counts.resets += 1;
    const what = `${entity} ${kind} #${seq} ${status ?? ''} of ${epoch}${reset ? ' reset' : ''}${skipped ? ` skipped ${skipped}` : ''}`;
    const last = this.#places.get(entity);
    const mayJoin = last === undefined || this.#joining.has(entity);
    const model = modelOf(entity);
    this.#compare(what, entity, epoch, seq, status, state);
    if (kind === 'event') {
      const stored = this.truth.at(entity, epoch, seq)?.data;
      if (text(event) !== text(stored))
        this.#fault('untrue', `${what}: brought ${text(event)}, should be ${text(stored)}`);
    }

    const isSame = kind === 'snapshot' && status === last?.status && text(state) === last?.state;
    if (last?.isFinal && !(mayJoin && isSame)) this.#fault('resurrected', `${what} after ${last.what}`);
    else if (!mayJoin || kind === 'event') this.#step(what, last, model, kind, epoch, seq, reset, skipped);

    this.#joining.delete(entity);
    const isFinal = model === 'job' && FINAL.includes(status);
    if (!isFinal) this.#open.add(entity);
    this.#places.set(entity, { epoch, seq, status: status ?? undefined, state: text(state), isFinal, what });
    if (model === 'topic') this.#topic(epoch, seq);
  }

  /** Does a change follow the last one? */
  #step(what, last, model, kind, epoch, seq, reset, skipped) {
    if (!last) return this.#fault('lost', `${what}: comes first`);
    const after = `${what} after ${last.what}`;
    if (epoch !== last.epoch) {
      if (this.truth.age(epoch) < this.truth.age(last.epoch))
        this.#fault('reordered', `${after}: an epoch that was over`);
      else if (!reset || kind !== 'snapshot') this.#fault('reordered', `${after}: another epoch without a reset`);
      return;
    }
    if (seq === last.seq) this.#fault('doubled', after);
    else if (seq < last.seq) this.#fault('reordered', after);
    else if (kind === 'event') {
      // Of a price only the newest counts.
      if (seq > last.seq + 1 && model !== 'price') this.#fault('lost', after);
    } else if (skipped?.[0] !== last.seq + 1 || skipped[1] !== seq)
      this.#fault('lost', `${after}: not all was said to be skipped`);
  }

  /**
   * Who leaves a topic is forgotten after a while, even if its first snapshot came after that, and joins anew if it comes
   * back. What was final stays so.
   */
  #topic(epoch, seq) {
    const members = new Set(this.truth.at('topic/jobs', epoch, seq)?.state);
    for (const entity of this.#members) if (!members.has(entity)) this.#left.add(entity);
    for (const entity of members) if (this.#left.delete(entity)) this.#joining.add(entity);
    this.#members = members;
  }

  #shown(entity, sync, epoch, seq, status, state) {
    const what = `${entity} shown #${seq} ${status ?? ''} of ${epoch} ${sync}`;
    this.counts.shown += 1;
    const last = this.#places.get(entity);
    if (sync === 'joining' || epoch === undefined || epoch === null) {
      if (last && !this.#joining.has(entity)) this.#fault('lost', `${what} after ${last.what}`);
      return;
    }
    this.#compare(what, entity, epoch, seq, status, state);
    // Nothing is shown before the change that brings it about was told.
    if (!last) return this.#fault('untrue', `${what}: no change said so`);
    if (
      epoch !== last.epoch ||
      seq !== last.seq ||
      (status ?? undefined) !== last.status ||
      text(state) !== last.state
    ) {
      this.#fault(seq < last.seq ? 'reordered' : 'untrue', `${what} after ${last.what}`);
    }
    if ((sync === 'final') !== last.isFinal) {
      this.#fault(last.isFinal ? 'resurrected' : 'untrue', `${what} after ${last.what}`);
    }
  }

  #final(entity, status, seq, state) {
    const last = this.#places.get(entity);
    const what = `${entity} final at #${seq} ${status}`;
    if (this.#finals.has(entity)) this.#fault('doubled', what);
    this.#finals.add(entity);
    if (!last?.isFinal || last.seq !== seq || last.status !== status || last.state !== text(state)) {
      this.#fault('untrue', `${what} after ${last?.what}`);
    }
  }
}

/** In what a page differs from the truth; nothing when they are the same. What is final keeps its epoch. */
export function differences({ topic, entities }, truth, others) {
  const wrong = [];
  const members = truth.at('topic/jobs', truth.epoch, truth.head('topic/jobs'))?.state ?? [];
  const shown = new Map(entities.map((entity) => [entity.entity, entity]));
  for (const entity of [...members, ...others]) {
    const seq = truth.head(entity);
    const { status, state } = truth.at(entity, truth.epoch, seq) ?? { state: null };
    const isFinal = modelOf(entity) === 'job' && FINAL.includes(status);
    const say = (of) => of && `#${of.seq} ${of.status} ${text(of.state)} ${of.sync} ${isFinal ? '' : of.epoch}`;
    const right = say({ seq, status, state, sync: isFinal ? 'final' : 'live', epoch: truth.epoch });
    const is = say(shown.get(entity));
    if (is !== right) wrong.push(`${entity}: shown ${is ?? 'nothing'}, is ${right}`);
    shown.delete(entity);
  }
  for (const entity of shown.keys()) wrong.push(`${entity}: shown, is no member`);
  if (topic !== 'live') wrong.push(`the topic is ${topic}`);
  return wrong;
}
