// The script of faults. Each strikes once, in the middle of a history or at its end.

/** Milliseconds between two states. */
export const INTERVAL = 25;

/** Where the faults strike that do not wait for the end. */
const AT = 30;

/** States before the end may come. */
export const ENOUGH = 60;

/** How long nobody gets through after a cut. */
const AWAY = 600;

/** Does `act` at the event with a number, or at the final one, the first time that it passes. */
function when(way, table) {
  const before = way.pass;
  way.pass = (text, numbers, pair) => {
    const key = text.includes('"completed"') ? 'final' : numbers[0]?.n;
    const act = numbers.length === 1 && table[key];
    if (!act) return before(text, numbers, pair);
    delete table[key];
    return act(text);
  };
}

/** Lets the event pass, then does `act`. */
const after = (act) => (text) => {
  setTimeout(act);
  return [text];
};

/**
 * `arm(way, server, struck)` prepares the way. `struck()` starts the clock: it stops at the state that is struck, or,
 * with `struck(1)`, at the one after it. `finally` runs when the final state had a second to arrive.
 */
export const FAULTS = {
  drop: {
    what: 'an event is lost on the way',
    arm: (way, _, struck) => when(way, { [AT]: () => (struck(), []) }),
  },
  tail: {
    what: 'the final event is lost on the way, and nothing follows it',
    arm: (way, _, struck) => when(way, { final: () => (struck(), []) }),
  },
  swap: {
    what: 'two events arrive in the wrong order',
    arm(way, _, struck) {
      let first;
      when(way, {
        [AT]: (text) => ((first = text), struck(), []),
        [AT + 1]: (text) => [text, first],
      });
    },
  },
  duplicate: {
    what: 'an event arrives twice',
    arm: (way, _, struck) => when(way, { [AT]: (text) => (struck(), [text, text]) }),
  },
  stale: {
    what: 'an event arrives again, ten later',
    arm(way, _, struck) {
      let first;
      when(way, {
        [AT]: (text) => [(first = text)],
        [AT + 10]: (text) => (struck(), [text, first]),
      });
    },
  },
  late: {
    what: 'an event arrives again after the final one',
    arm(way, _, struck) {
      let last;
      when(way, { [AT]: (text) => [(last = text)] });
      this.finally = () => (struck(), way.sendAgain(last));
    },
  },
  epoch: {
    what: 'the server comes back from a backup that lacks the last three changes',
    arm: (way, server, struck) => when(way, { [AT]: after(() => (struck(), server.loseHistory())) }),
  },
  'half-open': {
    what: 'the connection dies and nobody is told',
    arm: (way, _, struck) => when(way, { [AT]: after(() => (struck(1), way.mute())) }),
  },
  cut: {
    what: 'the connection is cut, and cut again while what was missed arrives',
    arm(way, _, struck) {
      when(way, {
        [AT]: after(() => {
          struck(1);
          way.cut(AWAY);
          const before = way.pass;
          way.pass = () => {
            way.pass = before;
            way.cut(AWAY / 2);
            return [];
          };
        }),
      });
    },
  },
  forgotten: {
    what: 'the server forgets the subscription (its consumer is deleted)',
    arm: (way, server, struck) => when(way, { [AT]: after(() => (struck(1), server.forget())) }),
  },
};
