export declare class GatewayProcess {
  constructor(binary?: string);
  readonly port: number;
  readonly log: string[];
  get url(): string;
  get pid(): number | undefined;
  inFile(): string[];
  up(...args: readonly string[]): Promise<void>;
  down(signal?: NodeJS.Signals): Promise<number | null | undefined>;
  stop(): Promise<void>;
}
