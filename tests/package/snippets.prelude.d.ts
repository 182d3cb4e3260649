// What the snippets of README.md and docs/ use without declaring it: the app around them. Read by snippets.test.ts only.

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
declare const id: string;
declare const entityName: string;
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
