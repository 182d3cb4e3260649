// Source maps: whoever steps into the package sees its TypeScript, without a download.
import { readdirSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { posix } from 'node:path';
import { describe, expect, test } from 'vitest';
import { read, root } from './pages.js';

const DIST = 'pkg/dist';

const files = readdirSync(root + DIST, { recursive: true, encoding: 'utf8' })
  .map((file) => file.replaceAll('\\', '/'))
  .filter((file) => file.endsWith('.js'));

const mapOf = (file: string): ConstructorParameters<typeof SourceMap>[0] => JSON.parse(read(`${DIST}/${file}.map`));

test('the entries are among them', () => {
  expect(files).toEqual(expect.arrayContaining(['index.js', 'slim.js', 'react.js']));
});

describe.each(files)('%s', (file) => {
  test('names its map', () => {
    const last = read(`${DIST}/${file}`).trimEnd().split('\n').at(-1);
    expect(last).toBe(`//# sourceMappingURL=${posix.basename(file)}.map`);
  });

  test('brings its sources, as they are in the repository', () => {
    const { sources, sourcesContent } = mapOf(file);
    expect(sources.length).toBeGreaterThan(0);
    sources.forEach((source, at) => {
      const path = posix.join(DIST, posix.dirname(file), source);
      expect(path).toMatch(/^(pkg\/src|target)\//);
      if (path.startsWith('pkg/src/')) expect(sourcesContent[at]).toBe(read(path));
      else expect(sourcesContent[at]).not.toBe('');
    });
  });
});

/** Texts that the package needs at run time, wherever they are written. */
test.each(['invalid_option', 'unknown_model'])('%s leads to the line that says so', (text) => {
  const found = files.flatMap((file) => {
    const lines = read(`${DIST}/${file}`).split('\n');
    const line = lines.findIndex((line) => line.includes(text));
    if (line < 0) return [];
    const map = mapOf(file);
    const entry = new SourceMap(map).findEntry(line, lines[line]!.indexOf(text));
    if (!('originalSource' in entry)) return [`${file}: nothing`];
    const source = map.sourcesContent[map.sources.indexOf(entry.originalSource)]!;
    return [source.split('\n')[entry.originalLine]];
  });
  expect(found.length).toBeGreaterThan(0);
  for (const line of found) expect(line).toContain(text);
});
