// What the examples share: where the gateway is, and how a producer tells it what happened.

/** The address that `npm start` prints. */
const gateway = new URL(process.argv[2] ?? 'http://127.0.0.1:8080/');

export const url = new URL('/ws', gateway.href.replace('http', 'ws'));

/** Node has a WebSocket of its own since version 22. */
export const WebSocket = globalThis.WebSocket ?? (await import('ws')).WebSocket;

/** A name that no other run has. */
export const fresh = (kind) => `${kind}/example-${Date.now()}`;

/** Reports a change of an entity, as a backend would. */
export async function post(entity, event) {
  const response = await fetch(new URL(`/entities/${entity}/events`, gateway), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(event),
  });
  if (!response.ok) throw new Error(`${entity}: ${response.status} ${await response.text()}`);
}
