// Reads the cases of `tests/cases/*.case`; `tests/cases/script.rs` explains the format and reads it for the native client.

/** Any JSON object. */
export type Fields = Record<string, any>;

/** A case as it was read. */
export interface Case {
  readonly id: string;
  readonly title: string;
  readonly config: Fields;
  readonly input: Fields[];
  readonly expect: Fields[];
}

/**
 * Reads all cases of one file.
 *
 * @throws Error that names the line.
 */
export function readCases(text: string): Case[] {
  const cases: Case[] = [];
  text.split('\n').forEach((line, index) => {
    try {
      readLine(cases, line.trim());
    } catch (cause) {
      throw new Error(`line ${index + 1}: ${line}`, { cause });
    }
  });
  return cases;
}

function readLine(cases: Case[], line: string): void {
  if (line === '' || line.startsWith('//') || line.startsWith('because ')) return;
  if (line.startsWith('case ')) {
    const [, id = '', title = ''] = /^case +(\S+) *(.*)$/.exec(line) ?? [];
    cases.push({ id, title, config: {}, input: [], expect: [] });
    return;
  }
  const known = cases.at(-1);
  if (!known) throw new Error('no case yet');
  const words = split(line);
  const [head = '', ...rest] = words;
  if (head === 'with') Object.assign(known.config, pairs(rest));
  else if (/^\d+$/.test(head)) {
    if (Number(head) !== known.input.length) throw new Error(`step ${known.input.length} comes next`);
    known.input.push(step(rest));
  } else known.expect.push({ at: known.input.length - 1, ...expectation(words) });
}

/** Splits at blanks, except inside brackets and quotes. */
function split(line: string): string[] {
  const words: string[] = [];
  let word = '';
  let depth = 0;
  let quoted = false;
  let escaped = false;
  for (const letter of line) {
    if (quoted) {
      word += letter;
      if (letter === '"' && !escaped) quoted = false;
      escaped = letter === '\\' && !escaped;
      continue;
    }
    if (letter === ' ' && depth === 0) {
      if (word !== '') words.push(word);
      word = '';
      continue;
    }
    if (letter === '"') quoted = true;
    if (letter === '[' || letter === '{') depth++;
    if (letter === ']' || letter === '}') depth--;
    word += letter;
  }
  if (quoted || depth !== 0) throw new Error('a quote or bracket is open');
  if (word !== '') words.push(word);
  return words;
}

/** JSON, or a bare word. */
function value(word: string): unknown {
  const isJson = /^[[{"\-\d]/.test(word) || word === 'true' || word === 'false' || word === 'null';
  return isJson && word !== '-' ? JSON.parse(word) : word;
}

function pair(word: string): [key: string, value: unknown] | undefined {
  const [, key, text] = /^([\p{L}\p{N}._]+)=(.*)$/su.exec(word) ?? [];
  return key === undefined ? undefined : [key, value(text!)];
}

function pairs(words: readonly string[]): Fields {
  return Object.fromEntries(
    words.map((word) => {
      const found = pair(word);
      if (!found) throw new Error(`${word}: name=value is expected`);
      return found;
    }),
  );
}

function number(word: string | undefined): number {
  if (word === undefined || !/^\d+$/.test(word)) throw new Error(`${word} is no number`);
  return Number(word);
}

function step(words: readonly string[]): Fields {
  const [verb = '', ...rest] = words;
  if (verb.startsWith('{')) return JSON.parse(verb);
  if (verb.endsWith('<')) return { op: 'frame', conn: number(verb.slice(0, -1)), ...frame(rest) };
  const op = { op: verb };
  switch (verb) {
    case 'open':
    case 'fail':
      return rest.length === 0 ? op : { ...op, conn: number(rest[0]) };
    case 'close':
      return { ...op, conn: number(rest[0]), code: number(rest[1]) };
    case 'raw': {
      const found = pair(rest[1] ?? '');
      return {
        ...op,
        conn: number(rest[0]),
        ...(found ? { [found[0]]: found[1] } : { text: rest.slice(1).join(' ') }),
      };
    }
    case 'burst': {
      const [conn, entity, epoch, from, to, ...more] = rest;
      return { ...op, conn: number(conn), entity, epoch, from: number(from), to: number(to), ...pairs(more) };
    }
    case 'ready': {
      const [conn, entity, epoch, last, ...more] = rest;
      return {
        ...op,
        conn: number(conn),
        entity,
        epoch: epoch === '-' ? '' : epoch,
        last: number(last),
        ...pairs(more),
      };
    }
    case 'ready_many':
      return { ...op, conn: number(rest[0]), count: number(rest[1]), last: number(rest[2]) };
    case 'advance':
    case 'wake':
      return { ...op, ms: number(rest[0]), ...Object.fromEntries(rest.slice(1).map((flag) => [flag, true])) };
    case 'hidden':
    case 'visible':
    case 'online':
    case 'offline':
      return op;
    case 'pongs':
      return { ...op, conn: number(rest[0]), on: rest[1] === 'on' };
    case 'token':
      return rest[0] === 'refused' ? { ...op, error: 'refused' } : { ...op, value: rest[0] };
    case 'app':
      return { ...op, ...call(rest) };
    case 'plan': {
      const calls: string[][] = [[]];
      for (const word of rest.slice(2)) {
        if (word === ';') calls.push([]);
        else calls.at(-1)!.push(word);
      }
      return { ...op, on: { entity: rest[0], seq: number(rest[1]) }, do: calls.map(call) };
    }
    default:
      throw new Error(`${verb} is no step`);
  }
}

/** `CALL [entity] name=value …` */
function call(words: readonly string[]): Fields {
  const call: Fields = { call: words[0] };
  for (const word of words.slice(1)) {
    const found = pair(word);
    if (found) call[found[0]] = found[1];
    else call['entity'] = word;
  }
  return call;
}

function frame(words: readonly string[]): Fields {
  const frame: Fields = {};
  let place = 0;
  for (const word of words) {
    const found = pair(word);
    if (found) {
      frame[found[0] === 're' ? 'answers' : found[0]] = found[1];
      continue;
    }
    if (place < 3) {
      if (word !== '-') frame[['type', 'entity', 'epoch'][place]!] = word;
      place++;
      continue;
    }
    const [, first, last] = /^(\d+)\.\.(\d+)$/.exec(word) ?? [];
    if (word.startsWith('#')) frame['id'] = word.slice(1);
    else if (word.startsWith('!')) frame['status'] = word.slice(1);
    else if (first !== undefined) Object.assign(frame, { first: Number(first), seq: Number(last) });
    else if (/^\d+$/.test(word)) frame['seq'] = Number(word);
    else if (word === 'done' || word === 'binary') frame[word] = true;
    else frame['data'] = value(word);
  }
  return frame;
}

function expectation(words: readonly string[]): Fields {
  const [, until] = /^\.\.(\d+)$/.exec(words.at(-1)!) ?? [];
  const all = until === undefined ? words : words.slice(0, -1);
  const [head, ...rest] = all;
  return { ...expected(head!, rest), ...(until !== undefined && { until: Number(until) }) };
}

function expected(head: string, rest: readonly string[]): Fields {
  switch (head) {
    case '=':
      return { deliver: delivery(rest) };
    case '>': {
      const { times, ...send } = named(rest, 'type');
      return { send, ...(times !== undefined && { times }) };
    }
    case 'not':
      switch (rest[0]) {
        case '=':
          return { never: { deliver: delivery(rest.slice(1)) } };
        case '>':
          return { never: { send: named(rest.slice(1), 'type') } };
        case 'close':
          return { never: { close: pairs(rest.slice(1)) } };
        case 'flag':
          return { never: { flag: named(rest.slice(1), 'name') } };
      }
      throw new Error('not =, >, close or flag');
    case 'flag':
      return { flag: named(rest, 'name') };
    case 'drop':
      return { drop: delivery(rest) };
    case 'hold':
      return { hold: { entity: rest[0], count: number(rest[1]) } };
    case 'is':
      return { state: { ...pairs(rest.slice(1)), entity: rest[0] } };
    case 'client':
      return { state: pairs(rest) };
  }
  throw new Error(`${head} is no expectation`);
}

/** `[first] [entity] name=value …`; `any` as the first word leaves it open. */
function named(words: readonly string[], first: string): Fields {
  const fields: Fields = {};
  words.forEach((word, index) => {
    const found = pair(word);
    if (found) fields[found[0]] = found[1];
    else if (index > 0) fields['entity'] = word;
    else if (word !== 'any') fields[first] = word;
  });
  return fields;
}

function delivery(words: readonly string[]): Fields {
  const deliver: Fields = {};
  words.forEach((word, index) => {
    const found = pair(word);
    const [, from, to] = /^(\d+)\.\.(\d+)$/.exec(word) ?? [];
    if (found) deliver[found[0]] = found[1];
    else if (index === 0) deliver['entity'] = word;
    else if (word.startsWith('#')) deliver['id'] = word.slice(1);
    else if (word.startsWith('!')) deliver['status'] = word.slice(1);
    else if (from !== undefined) Object.assign(deliver, { from: Number(from), to: Number(to) });
    else if (/^\d+$/.test(word)) deliver['seq'] = Number(word);
    else if (word === 'snapshot' || word === 'event') deliver['kind'] = word;
    else if (word === 'reset') deliver['reset'] = true;
    else if (word === 'maybe') deliver['optional'] = true;
    else deliver['data'] = value(word);
  });
  return deliver;
}
