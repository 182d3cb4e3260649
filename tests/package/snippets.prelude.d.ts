// What the snippets of README.md and docs/ use without declaring it: the app around them, and the frameworks' functions
// as far as they are used. Read by snippets.test.ts only.

interface Job {
  readonly name: string;
  readonly progress: number;
}
type JobEvent = Partial<Job>;

interface Counter {
  readonly count: number;
}
interface Step {
  readonly by: number;
}

declare const models: { readonly job: import('inorder').Model<Job, JobEvent> };
declare const client: import('inorder').Client<typeof models>;
declare const job: import('inorder').Entity<Job, JobEvent>;
declare const signal: AbortSignal;

declare const bar: HTMLProgressElement;
declare const label: HTMLElement;
declare const badge: HTMLElement;
declare const retry: HTMLButtonElement;

declare function render(state: Job | null | undefined, status: string | undefined, sync: import('inorder').Sync): void;
declare function renderTable(jobs: ReadonlyMap<string, import('inorder').EntitySnapshot<Job>>): void;
declare function renderRow(name: string, row: import('inorder').EntitySnapshot<Job>): void;
declare function removeRow(name: string): void;
declare function notify(entity: string, status: string | undefined): void;
declare function append(line: string): void;
declare function showResult(job: Job | null | undefined, status: string | undefined): void;
declare function showError(message: string): void;
declare function showLogin(): void;
declare function track(code: string, message: string, entity?: string, cause?: unknown): void;

declare module 'react' {
  export function useSyncExternalStore<T>(
    subscribe: (onStoreChange: () => void) => () => void,
    getSnapshot: () => T,
    getServerSnapshot?: () => T,
  ): T;
}

declare module 'vue' {
  export function shallowRef<T>(value: T): { value: T };
  export function onScopeDispose(dispose: () => void): void;
}

declare module 'solid-js' {
  export function from<T>(producer: {
    subscribe: (set: (value: T) => void) => (() => void) | { unsubscribe: () => void };
  }): () => T | undefined;
}

declare module 'rxjs' {
  interface Observer<T> {
    next: (value: T) => void;
    error: (error: any) => void;
    complete: () => void;
  }
  export interface Subscribable<T> {
    subscribe(observer: Partial<Observer<T>>): { unsubscribe(): void };
  }
  export interface Observable<T> extends Subscribable<T> {
    forEach(next: (value: T) => void): Promise<void>;
  }
  export function from<T>(input: AsyncIterable<T>): Observable<T>;
}

declare module '@angular/core/rxjs-interop' {
  export function toSignal<T>(source: import('rxjs').Subscribable<T>, options: { readonly requireSync: true }): () => T;
}
