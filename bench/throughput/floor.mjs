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

  subscribe(name, listener) {
    let entity = this.entities.get(name);
    if (entity === undefined) this.entities.set(name, (entity = new Entity(name)));
    entity.listeners.push(listener);
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
  listeners = [];

  constructor(name) {
    this.name = name;
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
    const { state, sync, seq, epoch, status, listeners } = this;
    const snapshot = (this.snapshot = Object.freeze({ state, sync, seq, epoch, status }));
    for (let i = 0; i < listeners.length; i++) listeners[i](snapshot);
  }
}

/** The ids remembered per entity, as many as inorder remembers. */
const REMEMBERED = 32;

/** The floor for events with ids: an id seen under another number is no change, another id under one is a fork. */
export class FloorWithIds extends Floor {
  forks = 0;

  event(entity, frame) {
    const { seq, id } = frame;
    const ids = (entity.ids ??= new Map());
    if (seq === entity.seq + 1 && entity.held === undefined && frame.epoch === entity.epoch) {
      if (ids.has(id)) {
        entity.seq = seq;
        return;
      }
      ids.set(id, seq);
      if (ids.size > REMEMBERED) ids.delete(ids.keys().next().value);
      entity.apply(frame);
    } else if (seq <= entity.seq) {
      const known = ids.get(id);
      if (known !== undefined && known !== seq) this.forks++;
    } else super.event(entity, frame);
  }
}
