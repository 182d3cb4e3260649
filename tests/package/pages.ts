// The repository's pages and sources as tests read them.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The root of the clone, with a slash at the end. */
export const root = fileURLToPath(new URL('../../', import.meta.url)).replaceAll('\\', '/');

/** A text file of the clone. */
export const read = (path: string): string => readFileSync(root + path, 'utf8');

/** A fenced block of a page. */
export interface Block {
  readonly page: string;
  /** The line of its first line of code, from 1. */
  readonly line: number;
  readonly language: string;
  readonly code: string;
}

/** All fenced blocks of a page. */
export function blocksOf(page: string, text: string): Block[] {
  const blocks: Block[] = [];
  let open: { fence: string; language: string; line: number; code: string[] } | undefined;
  text.split('\n').forEach((line, at) => {
    const [, indent = '', fence, language] = /^( *)(`{3,})(.*)$/.exec(line) ?? [];
    if (!open) {
      if (fence) open = { fence: indent + fence, language: language!.trim(), line: at + 2, code: [] };
    } else if (line.trimEnd() === open.fence) {
      blocks.push({ page, line: open.line, language: open.language, code: open.code.join('\n') });
      open = undefined;
    } else open.code.push(line);
  });
  if (open) throw new Error(`${page}:${open.line - 1}: the block is never closed`);
  return blocks;
}
