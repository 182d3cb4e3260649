/** How long something that was not stored waits for the next try, in milliseconds. */
const RETRY_MS = 200;

/** Posts a change as a worker would: tried until it is stored, always under the same id. Returns where it was stored. */
export async function post(url, entity, event) {
  for (;;) {
    const answer = await fetch(`${url}/entities/${entity}/events`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(event),
      signal: AbortSignal.timeout(5_000),
    }).catch(() => undefined);
    const said = await answer?.json().catch(() => undefined);
    if (answer?.ok && said) return said;
    if (answer && answer.status < 500) throw new Error(`${entity}: ${answer.status} ${JSON.stringify(said)}`);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
