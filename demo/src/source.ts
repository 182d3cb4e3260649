import type { WebSocketClass } from 'inorder';
import type { FaultAction, Faults } from './faults';

/** The true state of an entity, as its owner has it. */
export interface TrueState {
  readonly entity: string;
  readonly epoch: string;
  readonly seq: number;
  readonly status?: string | undefined;
  readonly data: unknown;
}

/** How faults are made. */
export interface FaultControl {
  write(faults: Faults): Promise<void>;
  act(action: FaultAction): Promise<void>;
}

/** Where the page's data comes from. */
export interface Source {
  /** For the sockets. */
  readonly url: string;
  readonly WebSocket: WebSocketClass;
  /** The members of both topics as they truly are now, past all faults. */
  truth(signal: AbortSignal): Promise<ReadonlyMap<string, TrueState>>;
  /** `undefined`: this source makes no faults. */
  readonly faults: FaultControl | undefined;
}

async function json(path: string, init?: RequestInit): Promise<unknown> {
  const response = await fetch(path, init);
  if (!response.ok) throw new Error(`${init?.method ?? 'GET'} ${path}: ${response.status}`);
  return response.status === 204 ? undefined : await response.json();
}

/** Whether a GET of this path is answered with JSON; a host of plain files may answer everything with a page. */
const answers = (path: string): Promise<boolean> =>
  json(path).then(
    () => true,
    () => false,
  );

/** The gateway that this page came from; `undefined` when it came from plain files. */
export async function gatewaySource(): Promise<Source | undefined> {
  if (!(await answers('/health'))) return undefined;
  const { protocol, host } = location;
  // Each page breaks its own wire only.
  const key = `page-${crypto.getRandomValues(new Uint32Array(2)).join('')}`;
  const write = (path: string, method: string, body?: unknown): Promise<unknown> =>
    json(path, {
      method,
      ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
  const hasFaults = await answers('/faults');
  return {
    url: `${protocol === 'https:' ? 'wss:' : 'ws:'}//${host}/ws?faults=${key}`,
    WebSocket,
    async truth(signal) {
      const members = async (topic: string): Promise<TrueState[]> => {
        const path = `/entities?topic=${encodeURIComponent(topic)}`;
        return ((await json(path, { signal, cache: 'no-store' })) as { entities: TrueState[] }).entities;
      };
      const [jobs, deployments] = await Promise.all(['topic/jobs', 'topic/deployments'].map(members));
      return new Map([...(jobs ?? []), ...(deployments ?? [])].map((state) => [state.entity, state]));
    },
    faults: hasFaults
      ? {
          write: async (faults) => void (await write(`/faults?key=${key}`, 'PUT', faults)),
          act: async (action) => void (await write(`/faults/${action}?key=${key}`, 'POST')),
        }
      : undefined,
  };
}
