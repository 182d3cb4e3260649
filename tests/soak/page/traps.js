// Makes the wasm trap every now and then: some call of an export runs a small module that does what a panic does.

/** Between two traps, in milliseconds. */
const PEACE_MS = 900;

/** At most so many calls later. */
const CALLS = 30;

/** `(func (export "a") unreachable)` */
const source = [
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
  ...[0x01, 0x04, 0x01, 0x60, 0x00, 0x00],
  ...[0x03, 0x02, 0x01, 0x00],
  ...[0x07, 0x05, 0x01, 0x01, 0x61, 0x00, 0x00],
  ...[0x0a, 0x05, 0x01, 0x03, 0x00, 0x00, 0x0b],
];

const { Instance } = WebAssembly;
const panic = new Instance(new WebAssembly.Module(new Uint8Array(source))).exports.a;

/** Calls left until the next trap. */
let left = Infinity;
let isOver = false;

WebAssembly.Instance = function (module, imports) {
  const exports = {};
  for (const [name, value] of Object.entries(new Instance(module, imports).exports)) {
    exports[name] = typeof value === 'function' ? trapping(value) : value;
  }
  return Object.create(Instance.prototype, { exports: { value: exports } });
};

const trapping =
  (call) =>
  (...args) => {
    const isDue = --left === 0;
    if (isDue) setTimeout(arm, PEACE_MS);
    const isAfter = isDue && Math.random() < 0.5;
    if (isDue && !isAfter) panic();
    const result = call(...args);
    if (isAfter) panic();
    return result;
  };

function arm() {
  if (!isOver) left = 1 + Math.floor(Math.random() * CALLS);
}

setTimeout(arm, PEACE_MS);

/** From now on there is peace. */
globalThis.endTraps = () => {
  isOver = true;
  left = Infinity;
  return true;
};
