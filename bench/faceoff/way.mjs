// The way between a server and its client: a proxy for WebSockets that loses, swaps, repeats and cuts as it is told.
import { once } from 'node:events';
import { WebSocket, WebSocketServer } from 'ws';

/** Numbers of the states that a text carries. The payload of every contender has them: {"h":1,"n":42,…}. */
export const numbersIn = (text) => [...text.matchAll(/"h":(\d+),"n":(\d+)/g)].map(([, h, n]) => ({ h: +h, n: +n }));

/**
 * `split(message)` takes a message of the server apart into texts, one per event where the protocol batches;
 * `join(texts)` puts together what goes on; `isEvent(text)` tells events from the rest.
 */
export class Way {
  constructor({ split, join, isEvent }) {
    Object.assign(this, { split, join, isEvent });
    this.pairs = new Set();
    /** What becomes of an event: a list of texts that go on in its place. */
    this.pass = (text) => [text];
    this.isAway = false;
    /** The highest number per history that came from the server, whether or not it went on. */
    this.came = new Map();
    this.bytesAgain = 0;
    this.connections = 0;
  }

  async open(upstream) {
    this.upstream = upstream;
    this.server = new WebSocketServer({
      host: '127.0.0.1',
      port: 0,
      handleProtocols: (offered) => [...offered][0],
      verifyClient: (_, answer) => answer(!this.isAway, 503),
    });
    await once(this.server, 'listening');
    this.server.on('connection', (client, request) => this.connect(client, request));
    const { port } = this.server.address();
    this.port = port;
    this.url = upstream.replace(/^ws:\/\/[^/]+/, `ws://127.0.0.1:${port}`);
  }

  connect(client, { url }) {
    this.connections++;
    const protocols = client.protocol ? [client.protocol] : [];
    const target = new URL(url, this.upstream);
    const server = new WebSocket(target, protocols, { perMessageDeflate: false });
    const pair = { client, server, isMute: false, rest: undefined };
    this.pairs.add(pair);
    const early = [];
    client.on('message', (data, isBinary) => {
      if (pair.isMute) return;
      const message = isBinary ? data : String(data);
      if (server.readyState === WebSocket.OPEN) server.send(message);
      else early.push(message);
    });
    server.on('open', () => early.splice(0).forEach((message) => server.send(message)));
    server.on('message', (data, isBinary) => {
      if (!pair.isMute) this.forward(pair, data, isBinary);
      else this.split(isBinary ? data : String(data), pair).forEach((text) => this.count(text));
    });
    const end = (code, reason) => {
      this.pairs.delete(pair);
      for (const side of [client, server]) {
        // Not every code may be sent.
        if (pair.isMute || code === 1005 || code === 1006) side.terminate();
        else side.close(code, reason);
      }
    };
    client.on('close', end);
    server.on('close', (code, reason) => {
      // Half-open: the client never hears of it.
      if (!pair.isMute) end(code, reason);
    });
    client.on('error', () => {});
    server.on('error', () => {});
  }

  forward(pair, data, isBinary) {
    const texts = [];
    for (const text of this.split(isBinary ? data : String(data), pair)) {
      this.count(text);
      const passed = this.isEvent(text) ? this.pass(text, numbersIn(text), pair) : [text];
      // Cut in the middle of a message: nothing of it arrives.
      if (!this.pairs.has(pair)) return;
      texts.push(...passed);
    }
    this.send(pair, texts, isBinary);
  }

  send(pair, texts, isBinary) {
    if (texts.length === 0 || pair.client.readyState !== WebSocket.OPEN) return;
    for (const message of this.join(texts)) {
      pair.client.send(isBinary ? Buffer.from(message, 'latin1') : message);
    }
  }

  /** Sends a text once more, as a broker does that forgot that it had. */
  sendAgain(text) {
    for (const pair of this.pairs) this.send(pair, [text], pair.rest !== undefined);
  }

  /** Counts what the server had sent before. */
  count(text) {
    const numbers = numbersIn(text);
    if (numbers.length === 0) return;
    const again = numbers.filter(({ h, n }) => n <= (this.came.get(h) ?? 0));
    this.bytesAgain += (text.length * again.length) / numbers.length;
    for (const { h, n } of numbers) this.came.set(h, Math.max(n, this.came.get(h) ?? 0));
  }

  /** Ends every connection, as a network does: without a close frame. Nobody gets through for `ms`. */
  cut(ms) {
    for (const { client, server } of [...this.pairs]) {
      client.terminate();
      server.terminate();
    }
    this.pairs.clear();
    this.isAway = true;
    setTimeout(() => (this.isAway = false), ms);
  }

  /** Half-open: the connections stay, nothing passes any more, in neither direction. New ones work. */
  mute() {
    for (const pair of this.pairs) pair.isMute = true;
  }

  close() {
    for (const { client, server } of this.pairs) {
      client.terminate();
      server.terminate();
    }
    this.server.close();
  }
}
