import { part, setText } from '../dom';

/** Spoken at most this often, in milliseconds: a screen reader is no ticker. */
const SCORE_MS = 15_000;
const CONNECTION_MS = 5_000;

/** A connection is spoken of when it was so for this long, in milliseconds. */
const SETTLED_MS = 1_500;

/** Says now and then, to those who can't see it, how the columns and the connection stand. */
export class Announcer {
  readonly #line = part('announcer');
  #spoken = -Infinity;
  #score = '';
  #connection = '';
  #pending = '';
  #pendingSince = 0;

  /** Takes what could be said; says it when it is new, has lasted, and the last words are some time ago. */
  hear(connection: string, score: string, now: number): void {
    if (connection !== this.#pending) {
      this.#pending = connection;
      this.#pendingSince = now;
    }
    const settled = now - this.#pendingSince >= SETTLED_MS;
    if (connection !== this.#connection && settled && now - this.#spoken >= CONNECTION_MS) {
      this.#connection = connection;
      this.#say(connection, now);
    } else if (score !== this.#score && now - this.#spoken >= SCORE_MS) {
      this.#score = score;
      this.#say(score, now);
    }
  }

  #say(text: string, now: number): void {
    this.#spoken = now;
    setText(this.#line, text);
  }
}
