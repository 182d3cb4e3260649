// The frames of inorder.v1.json, as far as the page reads them itself.

/** A frame as it was parsed. */
export interface Frame {
  readonly type?: unknown;
  readonly [field: string]: unknown;
}

/** One change on the wire. */
export interface EventFrame {
  readonly type: 'event';
  readonly entity: string;
  readonly epoch?: string;
  readonly seq: number;
  readonly id?: string;
  readonly status?: string;
  readonly at?: string;
  readonly data?: unknown;
}

/** A whole state on the wire, or one part of it. */
export interface SnapshotFrame {
  readonly type: 'snapshot';
  readonly entity: string;
  readonly epoch?: string;
  readonly seq: number;
  readonly status?: string;
  readonly at?: string;
  readonly data: unknown;
  readonly request?: number;
  readonly part?: number;
  readonly of?: number;
}

/** Changes that were sent again. */
export interface ReplayFrame {
  readonly type: 'replay';
  readonly entity: string;
  readonly epoch?: string;
  readonly events: readonly Omit<EventFrame, 'type' | 'entity' | 'epoch'>[];
  readonly done: boolean;
}

/** The frames of one socket message. What can't be read has none. */
export function framesOf(data: unknown): readonly Frame[] {
  try {
    const text = typeof data === 'string' ? data : new TextDecoder().decode(data as ArrayBuffer);
    const value: unknown = JSON.parse(text);
    return (Array.isArray(value) ? value : [value]).filter((frame) => typeof frame === 'object' && frame !== null);
  } catch {
    return [];
  }
}

/** Whether a frame is a page of a replay. */
export const isReplay = (frame: Frame): boolean => frame.type === 'replay' && Array.isArray(frame['events']);

/** Topics are entities too, but no rows. */
export const isTopic = (entity: string): boolean => entity.startsWith('topic/');

/** The part of a name before the first `/`. */
export const modelOf = (entity: string): string => entity.split('/', 1)[0] ?? entity;

/** Merges a patch into a state as RFC 7396 says. */
export function merge(state: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch;
  const merged: Record<string, unknown> =
    typeof state === 'object' && state !== null && !Array.isArray(state) ? { ...state } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else merged[key] = merge(merged[key], value);
  }
  return merged;
}

/** Text that is equal for equal JSON values. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, inner]) => `${JSON.stringify(key)}:${canonical(inner)}`).join()}}`;
}

const TERMINAL: Record<string, readonly string[]> = {
  job: ['completed', 'failed', 'cancelled'],
  deployment: ['live'],
};

/** The statuses after which an entity of a model is final. */
export const terminalOf = (model: string): readonly string[] => TERMINAL[model] ?? [];

/** Whether a status ends the history of this entity. */
export const isTerminal = (entity: string, status: string | undefined): boolean =>
  status !== undefined && terminalOf(modelOf(entity)).includes(status);
