import { createClient, model, type Client, type Model } from 'inorder';
import { terminalOf } from './frames';
import type { Source } from './source';
import { tapped, type Listener } from './tap';

/** What is known of a job. */
export interface Job {
  readonly name?: string;
  /** From 0 to 100. */
  readonly progress?: number;
  readonly worker?: string;
  readonly error?: string;
  readonly note?: string;
}

/** What is known of a deployment. */
export interface Deployment {
  readonly service?: string;
  readonly commit?: string;
  readonly attempt?: number;
  readonly error?: string;
}

/** The models that the page declares. */
export interface PageModels extends Record<string, Model<any, any>> {
  readonly job: Model<Job, Partial<Job>>;
  readonly deployment: Model<Deployment, Partial<Deployment>>;
}

/** Follows jobs and deployments as an app would; `listener` hears what its socket hears. */
export function follow(source: Source, listener: Listener, cap: number | undefined): Client<PageModels> {
  return createClient({
    url: source.url,
    WebSocket: tapped(source.WebSocket, listener),
    models: {
      job: model<Job, Partial<Job>>({ reduce: 'merge', terminal: terminalOf('job') }),
      deployment: model<Deployment, Partial<Deployment>>({ reduce: 'merge', terminal: terminalOf('deployment') }),
    },
    ...(cap === undefined ? {} : { backoff: { base: Math.min(500, cap), cap } }),
  });
}
