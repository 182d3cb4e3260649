/** What a contender's callbacks do: count, and sum up so that another order gives another sum. */
export class Sink {
  count = 0;
  sum = 0;
  /** At this count the chunk is delivered. */
  expected = -1;
  done = () => {};

  constructor(entities) {
    /** Per entity the number seen last: a callback that brings no change is no delivery. */
    this.last = new Float64Array(entities);
  }

  see(entity, seq) {
    if (seq === this.last[entity]) return;
    this.last[entity] = seq;
    this.sum = (Math.imul(this.sum, 31) + seq * 8 + entity) | 0;
    if (++this.count === this.expected) this.done();
  }

  /** Begins a chunk. */
  expect(deliveries) {
    this.count = 0;
    this.expected = deliveries;
  }

  /** Resolves when all of the chunk was delivered. */
  delivered() {
    if (this.count >= this.expected) return undefined;
    return new Promise((resolve) => (this.done = resolve));
  }
}
