// The servers that the contenders talk to, as far as a feed needs them: they confirm, and answer what is asked.
import { BASE, EPOCH, LATENCY, write } from './workloads.mjs';

/** Answers per message while clients subscribe. */
const ANSWERS = 500;

/** Speaks inorder.v1.json; the floor does too. */
export class InorderServer {
  /** Answers to replays: when they are due, in messages from now, and what they say. */
  answers = [];
  replays = 0;

  constructor(feed) {
    this.feed = feed;
  }

  sent(socket, text) {
    const command = JSON.parse(text);
    const { type, request } = command;
    const later = (frame) => setTimeout(() => socket.receive(JSON.stringify(frame)));
    if (type === 'hello') later({ type: 'welcome', heartbeat: 60, can: ['replay', 'snapshot', 'heads'] });
    else if (type === 'ping') later({ type: 'pong', id: command.id });
    else if (type === 'subscribe') this.subscribe(command, later);
    else if (type === 'replay') {
      for (const range of command.ranges) {
        this.replays++;
        this.answers.push({ left: LATENCY, text: this.replay(request, range) });
      }
    } else if (type !== 'unsubscribe') throw new Error(`nobody should ask this here: ${text}`);
  }

  subscribe({ request, entities }, later) {
    for (let at = 0; at < entities.length; at += ANSWERS) {
      later(
        entities.slice(at, at + ANSWERS).flatMap(({ entity }) => [
          { type: 'subscribed', request, entity, epoch: EPOCH, head: BASE },
          { type: 'snapshot', request, entity, epoch: EPOCH, seq: BASE, status: 'running', data: null },
        ]),
      );
    }
  }

  replay(request, { entity, from, to }) {
    const events = [];
    for (let seq = from; seq <= to; seq++) {
      const event = this.feed.log.get(`${entity} ${seq}`);
      if (!event) throw new Error(`${entity} ${seq} was not lost`);
      events.push(write(event).replace(/^\{"type":"event","entity":"[^"]*","epoch":"[^"]*",/, '{'));
    }
    return `{"type":"replay","request":${request},"entity":"${entity}","epoch":"${EPOCH}","events":[${events}],"done":true}`;
  }

  /** A message was delivered: are answers due? */
  tick(socket) {
    const { answers } = this;
    for (let i = 0; i < answers.length; i++) answers[i].left--;
    while (answers.length > 0 && answers[0].left <= 0) socket.receive(answers.shift().text);
  }

  /** The chunk is over: whatever is still on its way arrives. */
  finish(socket) {
    while (this.answers.length > 0) socket.receive(this.answers.shift().text);
  }
}

/** Speaks Centrifugo's JSON protocol. */
export class CentrifugeServer {
  sent(socket, text) {
    const replies = text.split('\n').map((line) => {
      const { id, connect, subscribe } = JSON.parse(line);
      if (connect) return { id, connect: { client: 'bench', version: '6' } };
      if (subscribe) return { id, subscribe: { recoverable: true, positioned: true, epoch: EPOCH, offset: BASE } };
      throw new Error(`nobody should ask this here: ${line}`);
    });
    setTimeout(() => socket.receive(replies.map((reply) => JSON.stringify(reply)).join('\n')));
  }
}

/** Speaks json.reliable.webpubsub.azure.v1. */
export class AzureServer {
  opened(socket) {
    const connected = { type: 'system', event: 'connected', connectionId: 'bench', reconnectionToken: 'bench' };
    socket.receive(JSON.stringify(connected));
  }

  sent(socket, text) {
    const { ackId } = JSON.parse(text);
    if (ackId !== undefined) setTimeout(() => socket.receive(JSON.stringify({ type: 'ack', ackId, success: true })));
  }
}
