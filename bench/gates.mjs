// What must hold. Throughput is inorder's (`flush: 'sync'`) over the other's, so 1 is parity and more is better.
export const THROUGHPUT = [
  { workload: 'W1 150 B', over: 'floor', gate: 0.92, goal: 1 },
  { workload: 'W1 600 B', over: 'floor', gate: 0.92, goal: 1 },
  { workload: 'W2', over: 'floor', gate: 0.92, goal: 1 },
  { workload: 'W3 30 %', over: 'floor', gate: 0.92, goal: 1.05 },
  { workload: 'W3 70 %', over: 'floor', gate: 1.2, goal: 1.6 },
  { workload: 'W4', over: 'floor', gate: 0.92, goal: 1.05 },
  { workload: 'W5', over: 'floor', gate: 0.92, goal: 1 },
  { workload: 'W1 150 B, ids', over: 'floorWithIds', gate: 0.9, goal: 1 },
  { workload: 'W2, ids', over: 'floorWithIds', gate: 0.9, goal: 1 },
  { workload: 'W3 30 %, ids', over: 'floorWithIds', gate: 0.9, goal: 1 },
  { workload: 'W1 150 B', over: 'centrifuge', gate: 2.3, goal: 2.8 },
  { workload: 'W1 600 B', over: 'centrifuge', gate: 1.6, goal: 1.9 },
  { workload: 'W2', over: 'centrifuge', gate: 2.3, goal: 2.9 },
  { workload: 'W1 150 B', over: 'azure', gate: 1.2, goal: 1.4 },
];

/** Bytes and milliseconds: less is better. */
export const FOOTPRINT = {
  'entity of a topic, 10-character name': { unit: 'B', gate: 100, goal: 65 },
  'entity of a topic, UUID': { unit: 'B', gate: 125, goal: 90 },
  'held event, beside its payload': { unit: 'B', gate: 64 },
  'slope of subscribe and unsubscribe': { unit: 'B', gate: 1, why: '0, as far as it can be seen' },
  'entry, brotli': { unit: 'B', gate: 20_000, goal: 16_000 },
  'wasm and glue, brotli': { unit: 'B', gate: 14_000, goal: 11_000 },
  'import to first event, more than a bare WebSocket': { unit: 'ms', gate: 10 },
};

export const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};
