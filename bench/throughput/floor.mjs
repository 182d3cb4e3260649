// The floor: what one would write by hand for exactly this, as fast as we could make it.
//
// Parse, look the entity up, compare, test for a gap, make the frozen snapshot, call back. Missing numbers are asked for
// and held events wait. It has no timers, no retries, no epochs to change, no lock, no resume: it is a floor, not a client.

export class Floor {
  entities = new Map();
  request = 1;

  constructor(url, WebSocket) {
    const socket = (this.socket = new WebSocket(url, 'inorder.v1.json'));
    socket.onmessage = (event) => this.receive(event.data);
    socket.onopen = () => {
      socket.send('{"type":"hello","client":"floor/1"}');
      const entities = [...this.entities.keys()].map((entity) => ({ entity }));
      for (let at = 0; at < entities.length; at += 1_000) {
        const some = entities.slice(at, at + 1_000);
        socket.send(JSON.stringify({ type: 'subscribe', request: this.request++, entities: some }));
      }
    };
  }

  /** One listener per entity: a list would cost another line of the cache each. */
  subscribe(name, listener) {
    this.entities.set(name, new Entity(name, listener));
  }

  receive(text) {
    const frame = JSON.parse(text);
    if (Array.isArray(frame)) for (let i = 0; i < frame.length; i++) this.frame(frame[i]);
    else this.frame(frame);
  }

  frame(frame) {
    const entity = this.entities.get(frame.entity);
    if (entity === undefined) return;
    if (frame.type === 'event') this.event(entity, frame);
    else this.other(entity, frame);
  }

  event(entity, frame) {
    const { seq } = frame;
    if (frame.epoch !== entity.epoch || seq <= entity.seq) return;
    if (seq === entity.seq + 1 && entity.held === undefined) entity.apply(frame);
    else this.hold(entity, frame);
  }

  hold(entity, frame) {
    const { seq } = frame;
    if (entity.held === undefined) {
      entity.held = new Map();
      entity.sync = 'recovering';
      this.ask(entity, seq - 1);
      entity.show();
    }
    entity.held.set(seq, frame);
  }

  ask({ name, epoch, seq }, to) {
    const ranges = [{ entity: name, epoch, from: seq + 1, to }];
    this.socket.send(JSON.stringify({ type: 'replay', request: this.request++, ranges }));
  }

  other(entity, frame) {
    if (frame.type === 'snapshot') entity.adopt(frame);
    else if (frame.type === 'replay') this.replay(entity, frame.events);
  }

  replay(entity, events) {
    for (let i = 0; i < events.length; i++) {
      if (events[i].seq === entity.seq + 1) entity.apply(events[i]);
    }
    const { held } = entity;
    if (held === undefined) return;
    for (let next; (next = held.get(entity.seq + 1)) !== undefined;) {
      held.delete(next.seq);
      entity.apply(next);
    }
    if (held.size > 0) {
      let first = Infinity;
      for (const seq of held.keys()) first = Math.min(first, seq);
      this.ask(entity, first - 1);
      return;
    }
    entity.held = undefined;
    entity.sync = 'live';
    entity.show();
  }
}

class Entity {
  seq = 0;
  epoch = '';
  state = undefined;
  status = undefined;
  sync = 'joining';
  held = undefined;
  snapshot = undefined;
  ids = undefined;

  constructor(name, listener) {
    this.name = name;
    this.listener = listener;
  }

  apply(frame) {
    this.seq = frame.seq;
    if (frame.data !== undefined) this.state = frame.data;
    if (frame.status !== undefined) this.status = frame.status;
    this.show();
  }

  adopt(frame) {
    this.epoch = frame.epoch;
    this.seq = frame.seq;
    this.state = frame.data;
    this.status = frame.status;
    this.sync = 'live';
    this.show();
  }

  show() {
    const { state, sync, seq, epoch, status, listener } = this;
    listener((this.snapshot = Object.freeze({ state, sync, seq, epoch, status })));
  }
}

/** The ids remembered per entity, as many as inorder remembers. */
const REMEMBERED = 32;

const SEED = (Math.random() * 0x1_0000_0000) >>> 0;

/**
 * The floor for events with ids: an id seen under another number is no change, another id under one number is a fork.
 * Ids are compared by 64-bit fingerprints in a ring; a Map or Set of the strings took twice as long.
 */
export class FloorWithIds extends Floor {
  forks = 0;
  high = 0;
  low = 0;

  fingerprint(id) {
    let high = SEED;
    let low = ~SEED;
    for (let i = 0; i < id.length; i += 2) {
      const word = id.charCodeAt(i) | (i + 1 < id.length ? id.charCodeAt(i + 1) << 16 : 0);
      high = Math.imul(high ^ word, 0x9e3779b1);
      low = Math.imul(low ^ word, 0x85ebca6b);
      high ^= low >>> 15;
      low ^= high >>> 13;
    }
    this.high = high | 0;
    this.low = low | 0;
  }

  event(entity, frame) {
    const { seq, id } = frame;
    const ring = (entity.ids ??= new Int32Array(REMEMBERED * 2));
    if (seq === entity.seq + 1 && entity.held === undefined && frame.epoch === entity.epoch) {
      this.fingerprint(id);
      const { high, low } = this;
      for (let i = 0; i < ring.length; i += 2) {
        if (ring[i] === low && ring[i + 1] === high) {
          entity.seq = seq;
          return;
        }
      }
      // The place says the number: the ring is as long as the memory.
      const at = (seq % REMEMBERED) * 2;
      ring[at] = low;
      ring[at + 1] = high;
      entity.apply(frame);
    } else if (seq <= entity.seq) {
      if (seq <= entity.seq - REMEMBERED) return;
      this.fingerprint(id);
      const at = (seq % REMEMBERED) * 2;
      if (ring[at] !== this.low || ring[at + 1] !== this.high) this.forks++;
    } else super.event(entity, frame);
  }
}
