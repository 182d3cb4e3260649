// Gives the shipped wasm the inputs of a trace, through its own exports, and compares what it answers and puts out.
// docs/trace.md describes the format. This runs in a page.

/** Inputs by their numbers, and where each of their numbers goes. */
const INPUTS = [
  ['connect', []],
  ['close', []],
  ['subscribe', [0]],
  ['unsubscribe', [0]],
  ['release', [0]],
  ['add_member', [0, 1]],
  ['remove_member', [0, 1]],
  ['opened', [0]],
  ['ended', [0, 1]],
  ['heard', []],
  ['welcome', [0, 1, 2, 3]],
  ['event', [0, 2, 6, 3, 7, 8, 4, 9, 10, 5]],
  ['vacant', [0, 2, 3, 4]],
  ['snapshot', [0, 1, 2, 3, 4, 5]],
  ['part', [0, 1]],
  ['subscribed', [0, 1, 2, 3]],
  ['begin_replay', [0, 1]],
  ['end_replay', [0, 1, 3]],
  ['gone', [0, 1]],
  ['ahead', [0, 1, 2, 3]],
  ['final', [0, 1, 2, 4, 5]],
  ['head', [0, 2, 3, 1]],
  ['end_heads', [1]],
  ['cursor', [0]],
  ['discontinuity', [0]],
  ['error', [2, 1, 0, 3]],
  ['goodbye', [0]],
  ['pong', [0]],
  ['count', [0]],
  ['bad_frame', []],
  ['unknown', []],
  ['token', [0, 1]],
  ['wake', []],
  ['visible', []],
  ['online', []],
  ['offline', []],
  ['pagehide', []],
  ['pageshow', []],
  ['timeout', []],
  ['lock', [0]],
  ['rollback', [0, 2, 6, 3, 7, 8, 4, 9, 10, 5]],
  ['restore', [0, 2, 3, 4, 5]],
];

/** Outputs by their numbers, and where each of their numbers comes from. */
const OUTPUTS = [
  ['change', [0, 1, 2, 6, 3, 4, 11, 12, 13, 14, 5, 7, 8, 10]],
  ['discard', [5]],
  ['sync', [0, 1]],
  ['gap', [0, 12, 13]],
  ['final', [0]],
  ['fault', [0, 1]],
  ['forgotten', [0]],
  ['connection', [1, 12]],
  ['dial', [0]],
  ['close', [0, 1]],
  ['get_token', [0, 1]],
  ['cancel_token', [0]],
];
const SEND = 13;

/** Commands by their numbers, and where the numbers of an item come from. */
const COMMANDS = [
  ['send_hello', []],
  ['send_auth', []],
  ['send_subscribe', [0, 2, 3, 11]],
  ['send_unsubscribe', [0]],
  ['send_replay', [0, 2, 12, 13]],
  ['send_snapshot', [0]],
  ['send_heads', [0]],
  ['send_ping', []],
  ['send_subscribe', [0, 2, 3]],
];
const BEHIND = 8;

/** "Nobody" where an entity stands. */
const NOBODY = 2 ** 32 - 1;

const byName = new Map(INPUTS.map(([name, places], at) => [name, { number: at + 1, places }]));

/** A number as a trace writes it. */
const written = (number) => (number < 0 || number === NOBODY ? '-' : String(number));

class Core {
  constructor(module) {
    this.wasm = new WebAssembly.Instance(module, {}).exports;
  }

  get registers() {
    // The memory may have grown.
    return new Float64Array(this.wasm.memory.buffer, this.wasm.registers(), 64);
  }

  /** Does what an input says; the answer as a trace writes it. */
  input(now, name, numbers) {
    const { wasm } = this;
    switch (name) {
      case 'create':
        this.registers.set(numbers.slice(2));
        wasm.create(numbers[0], numbers[1]);
        return undefined;
      case 'model':
        this.registers.set(numbers);
        return String(wasm.add_model());
      case 'entity':
        return String(wasm.add_entity(numbers[0]));
      case 'accept': {
        const [entity, prev, seq, epoch, status, visible, high, low] = numbers;
        return String(
          high === 0 && low === 0
            ? wasm.accept(entity, prev, seq, epoch, status, visible)
            : wasm.accept_with_id(entity, prev, seq, epoch, status, visible, high, low),
        );
      }
      case 'read': {
        wasm.read(numbers[0]);
        const [sync, held, epoch, seq, status] = this.registers;
        const isPlaced = epoch >= 0;
        return [sync, held, Number(isPlaced), isPlaced ? epoch : -1, isPlaced ? seq : -1, status]
          .map(written)
          .join(' ');
      }
      case 'stats':
        wasm.stats();
        return [...this.registers.slice(0, 19)].join(' ');
      default: {
        const { number, places } = byName.get(name);
        const { registers } = this;
        places.forEach((place, at) => (registers[place] = numbers[at]));
        return String(wasm.handle(number, now));
      }
    }
  }
}

/** What came out until the core rested: lines, of which those of one command are one. */
class Drain {
  lines = [];
  #commands = new Map();

  add(line) {
    this.lines.push([line]);
  }

  /** Items of a command join those before them. */
  send(name, request, items) {
    const key = `${name} ${request}`;
    const line = this.#commands.get(key);
    if (line) line.push(...items);
    else {
      const begun = [key, ...items];
      this.#commands.set(key, begun);
      this.lines.push(begun);
    }
  }

  text() {
    return this.lines.map((line) => line.join(' ')).join('\n');
  }
}

/** Reads a command of a trace, item by item. */
function readCommand(drain, name, numbers) {
  const width = name === 'send_subscribe' ? 5 : name === 'send_replay' ? 4 : 1;
  const [request = '-', ...rest] = numbers;
  if (name === 'send_hello' || name === 'send_auth') return drain.send(name, '-', []);
  const items = [];
  for (let at = 0; at < rest.length;) {
    if (name !== 'send_subscribe') items.push(rest.slice(at, (at += width)).join(' '));
    else {
      items.push(rest.slice(at, at + 4).join(' '));
      const behind = Number(rest[at + 4]);
      at += width;
      for (let i = 0; i < behind; i++) items.push(`behind ${rest.slice(at, (at += 3)).join(' ')}`);
    }
  }
  drain.send(name, request, items);
}

/** Takes the next output; false if there is none. */
function poll(core, now, drain) {
  const kind = core.wasm.poll(now);
  if (kind === 0) return false;
  const { registers } = core;
  const numbers = (places) => places.map((place) => written(registers[place]));
  if (kind === SEND) {
    const code = registers[1];
    const [name, places] = COMMANDS[code];
    const list = numbers(places);
    // Without an epoch there is no position.
    if (name === 'send_subscribe' && list[1] === '-') list[2] = '-';
    const item = list.join(' ');
    const isNumbered = name !== 'send_hello' && name !== 'send_auth' && name !== 'send_unsubscribe';
    const items = item === '' ? [] : [code === BEHIND ? `behind ${item}` : item];
    drain.send(name, isNumbered ? written(registers[15]) : '-', items);
    return true;
  }
  const [name, places] = OUTPUTS[kind - 1];
  drain.add([name, ...numbers(places)].join(' '));
  return true;
}

/** Replays one trace; returns how long it was, and the first difference if there is one. */
export function replay(module, text) {
  let core;
  let answer;
  let inputs = 0;
  let outputs = 0;
  let expected = new Drain();
  let got = new Drain();
  const lines = text.split('\n');
  for (let at = 0; at < lines.length; at++) {
    const [time, sign, name, ...numbers] = lines[at].split(' ');
    if (name === undefined) continue;
    const now = Number(time);
    if (sign === '>') {
      inputs++;
      if (name === 'create') core = new Core(module);
      answer = core.input(
        now,
        name,
        numbers.map((number) => (number === '-' ? -1 : Number(number))),
      );
    } else if (sign === '=') {
      if (answer !== numbers.join(' '))
        return { inputs, outputs, difference: `line ${at + 1}: ${lines[at]}, not ${answer}` };
    } else if (name === 'rest') {
      while (poll(core, now, got)) outputs++;
      expected.add(`rest ${numbers[0]}`);
      got.add(`rest ${written(core.wasm.timeout())}`);
      if (expected.text() !== got.text()) {
        return { inputs, outputs, difference: `before line ${at + 1}:\n${expected.text()}\nnot\n${got.text()}` };
      }
      expected = new Drain();
      got = new Drain();
    } else {
      if (name.startsWith('send_')) readCommand(expected, name, numbers);
      else expected.add([name, ...numbers].join(' '));
      // The core gives a command item by item, a trace has it in one line.
      while (got.lines.length < expected.lines.length && poll(core, now, got)) outputs++;
    }
  }
  return { inputs, outputs };
}
