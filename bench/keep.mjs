import { mkdir, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/** Writes a result for people and machines who come later; returns the path. */
export async function keep(name, result) {
  const folder = new URL('results/', import.meta.url);
  await mkdir(folder, { recursive: true });
  const file = new URL(`${name}.json`, folder);
  await writeFile(file, `${JSON.stringify(result, null, 2)}\n`);
  return fileURLToPath(file);
}
