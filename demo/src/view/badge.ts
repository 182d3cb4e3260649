import type { ClientStatus } from 'inorder';
import { el, part, setAttribute, setText } from '../dom';

/** What the badge shows. */
export interface BadgeState {
  readonly status: ClientStatus;
  /** Entities that are connected and not up to date. */
  readonly recovering: number;
  /** Since the last message of the server, in milliseconds, where that is longer than normal. */
  readonly silence: number | undefined;
}

type Look = 'live' | 'recovering' | 'offline' | 'waiting';

function read({ status, recovering, silence }: BadgeState): { look: Look; label: string; detail: string } {
  switch (status.connection) {
    case 'live':
      if (silence !== undefined) {
        return { look: 'recovering', label: 'Silent', detail: `no sign of life for ${(silence / 1_000).toFixed(0)} s` };
      }
      if (recovering > 0) return { look: 'recovering', label: 'Recovering', detail: `${recovering} to go` };
      return { look: 'live', label: 'Live', detail: '' };
    case 'offline': {
      const left = Math.max(0, (status.retryAt ?? Date.now()) - Date.now());
      return { look: 'offline', label: 'Offline', detail: `next try in ${(left / 1_000).toFixed(1)} s` };
    }
    case 'connecting':
      return { look: 'waiting', label: 'Connecting', detail: '' };
    case 'stopped':
      return { look: 'offline', label: 'Stopped', detail: 'by the server' };
    case 'closed':
      return { look: 'offline', label: 'Closed', detail: '' };
    case 'idle':
      return { look: 'waiting', label: 'Starting', detail: '' };
  }
}

/** The badge of the connection: its state, and when the next dial is due. */
export class Badge {
  readonly #root = part('badge');
  // The announcer speaks of what lasts; the badge may change many times a minute.
  readonly #label = el('span', { class: 'label' });
  readonly #detail = el('span', { class: 'detail', 'aria-hidden': 'true' });
  readonly #again = el('button', { type: 'button', hidden: true }, 'Try now');

  constructor(onAgain: () => void) {
    this.#root.append(el('span', { class: 'dot', 'aria-hidden': 'true' }), this.#label, this.#detail, this.#again);
    this.#again.addEventListener('click', onAgain);
  }

  /** Shows it, and returns it in a word. */
  show(state: BadgeState): string {
    const { look, label, detail } = read(state);
    setAttribute(this.#root, 'data-look', look);
    setAttribute(this.#root, 'data-connection', state.status.connection);
    setText(this.#label, label);
    setText(this.#detail, detail);
    setAttribute(this.#again, 'hidden', state.status.connection !== 'offline' && state.status.connection !== 'stopped');
    return label;
  }
}
