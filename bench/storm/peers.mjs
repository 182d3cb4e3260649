// When other clients dial after their sockets broke, by their own code and their published defaults.
import { Centrifuge } from 'centrifuge';
import ReconnectingWebSocket from 'reconnecting-websocket';
// The class that its Manager waits by.
import { Backoff } from '../node_modules/socket.io-client/build/esm/contrib/backo2.js';

/** A socket that never opens. */
class Nowhere {
  close() {}
}

const centrifuge = new Centrifuge('ws://nowhere', { websocket: Nowhere });
const { _getNextDelay } = ReconnectingWebSocket.prototype;

/** Each gives a function that says, again and again, how long one client waits before its next dial, in milliseconds. */
export const PEERS = {
  centrifuge: () => {
    let tries = 0;
    return () => {
      centrifuge._reconnectAttempts = tries++;
      return centrifuge._getReconnectDelay();
    };
  },
  'socket.io-client': () => {
    const backoff = new Backoff({ min: 1_000, max: 5_000, jitter: 0.5 });
    return () => backoff.duration();
  },
  'reconnecting-websocket': () => {
    // The module draws this once per page.
    const minReconnectionDelay = 1_000 + Math.random() * 4_000;
    const client = { _options: { minReconnectionDelay }, _retryCount: 0, _debug() {} };
    return () => {
      client._retryCount += 1;
      return _getNextDelay.call(client);
    };
  },
};

/** A dial is refused within this time while nobody listens, as in examples/storm.rs. */
const REFUSED_MS = 1;

/** Dials of `clients` clients per piece of time, from the moment when all sockets broke; refused for `away`. */
export function dialsOf(makeClient, { clients, away, piece }) {
  const dials = [];
  for (let i = 0; i < clients; i++) {
    const wait = makeClient();
    let at = 0;
    do {
      at += wait() + (at > 0 ? REFUSED_MS : 0);
      const index = Math.floor(at / piece);
      while (dials.length <= index) dials.push(0);
      dials[index] += 1;
    } while (at < away);
  }
  return dials;
}
