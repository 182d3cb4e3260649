export declare function post(
  url: string,
  entity: string,
  event: { readonly id?: string; readonly status?: string | undefined; readonly data?: unknown },
): Promise<{ readonly epoch: string; readonly seq: number }>;
