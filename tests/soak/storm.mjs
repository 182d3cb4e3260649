// What goes wrong: on the wire all the time, in the gateway and in each browser one thing after the other, in an order
// that is drawn anew each time.
import { text } from './truth.mjs';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** On every socket: the chances are of each frame, or per second. A socket lives five seconds on average. */
const ON_THE_WIRE = {
  drop: 0.1,
  duplicate: 0.1,
  reorder: 0.1,
  delay: 150,
  stale_snapshot: 0.03,
  refuse_replay: 0.1,
  cut: 0.2,
  half_open: 0.01,
};

/** A copy comes at most so much later, in milliseconds. */
const LATEST_COPY_MS = 3_200;

/** Between two changes of the log, in milliseconds. */
const CHANGE_MS = 90;

/** A small generator of numbers from 0 to 1, the same for the same seed (mulberry32). */
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export class Storm {
  /** How often what was done, by name. */
  deeds = {};

  /** `pages` are `{ name, engine, random }`; `away` is where they go when they leave theirs. */
  constructor(gateway, truth, producer, pages, away, random) {
    Object.assign(this, { gateway, truth, producer, pages, away, random });
  }

  #done(who, what) {
    const deeds = (this.deeds[who] ??= {});
    deeds[what] = (deeds[what] ?? 0) + 1;
  }

  /** Everything goes wrong for a while, and is mended then. */
  async rage(ms) {
    await this.#onTheWire(ON_THE_WIRE);
    this.producer.run(CHANGE_MS);
    const end = performance.now() + ms;
    const left = () => end - performance.now();
    const turns = (deeds, random, pauseMs) => this.#turns(deeds, random, pauseMs, left);
    await Promise.all([
      turns(this.#gatewayDeeds(), this.random, 3_500),
      ...this.pages.map((page) => turns(this.#pageDeeds(page), page.random, 1_500)),
    ]);
    await this.#onTheWire(undefined);
    await this.producer.rest();
    // Who is never spoken of again would not hear of the last epoch.
    await this.producer.touch();
  }

  /** Every deed once in a random order, again and again until the time is over; all of them at least once. */
  async #turns(deeds, random, pauseMs, left) {
    for (let turn = 0; turn < 1 || left() > pauseMs; turn++) {
      const deck = deeds.map((deed) => ({ deed, at: random() })).sort((a, b) => a.at - b.at);
      for (const { deed } of deck) {
        if (turn > 0 && left() <= pauseMs) return;
        await pause(pauseMs * (0.5 + random()));
        await deed();
      }
    }
  }

  #gatewayDeeds() {
    const { gateway, random } = this;
    const ask = (action) => async () => {
      await gateway.ask('POST', `/faults/${action}`);
      this.#done('gateway', action.split('?')[0]);
    };
    const kill = async () => {
      this.#done('gateway', 'kill');
      await gateway.kill(800 + random() * 1_700);
    };
    return [
      kill,
      kill,
      this.#newEpochUnderOpenSockets,
      this.#newEpoch(2),
      ask('trim?keep=2'),
      ask('stale_snapshot'),
      ask('crash'),
    ];
  }

  /**
   * The epoch changes and nobody's socket breaks. Nothing of the old epoch may come late on them: a pushed snapshot says
   * which epoch counts (R7), so a server must not send an old one behind a new one.
   */
  #newEpochUnderOpenSockets = async () => {
    await this.#onTheWire({ ...ON_THE_WIRE, duplicate: 0, reorder: 0 });
    await pause(LATEST_COPY_MS);
    await this.#newEpoch(0)();
    await this.#onTheWire(ON_THE_WIRE);
  };

  async #onTheWire(faults) {
    for (const { name } of this.pages) {
      await this.gateway.setFaults(name, faults && { ...faults, seed: 1 + Math.floor(this.random() * 1e6) });
    }
  }

  /** The log goes back by some changes, or only changes its epoch. */
  #newEpoch = (events) => async () => {
    const { gateway, truth, producer } = this;
    // Nothing is on its way, so that what the old epoch had is known.
    await producer.rest();
    await gateway.ask('POST', `/faults/new_epoch?events=${events}`);
    const { epoch, entities } = await gateway.entities();
    truth.begin(epoch, new Map(entities.map(({ entity, seq }) => [entity, seq])));
    for (const { entity, seq, status, data } of entities) {
      const kept = truth.at(entity, epoch, seq);
      if (text(kept.state ?? []) !== text(data ?? []) || kept.status !== (status ?? undefined)) {
        throw new Error(`the log has ${entity} #${seq} ${status} ${text(data)}, which was stored as ${text(kept)}`);
      }
    }
    this.#done('gateway', 'new_epoch');
    producer.run(CHANGE_MS);
  };

  #pageDeeds({ name, engine, random }) {
    const { gateway } = this;
    const time = (from, to) => from + random() * (to - from);
    const deed = (what, act) => async () => {
      await act();
      this.#done(name, what);
    };
    return [
      deed('hide', () => engine.hide(time(500, 3_000))),
      deed('freeze', () => engine.freeze(time(2_000, 6_000))),
      deed('leave', async () => {
        // Firefox keeps no page whose socket is open.
        if (engine.needsSilence) await Promise.race([gateway.dies(), pause(10_000)]);
        await engine.leave(this.away, time(300, 2_000));
      }),
      deed('half open', () => gateway.ask('POST', `/faults/half_open?key=${name}`).catch(() => undefined)),
    ];
  }
}
