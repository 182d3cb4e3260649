// All cases of `tests/cases`, by file.
import { readdirSync } from 'node:fs';
import { read, root } from '../pages.js';
import { readCases, type Case } from './script.js';

const names = readdirSync(`${root}tests/cases`).filter((name) => name.endsWith('.case'));

export const files: readonly { readonly file: string; readonly cases: readonly Case[] }[] = names.map((name) => ({
  file: name.replace('.case', ''),
  cases: readCases(read(`tests/cases/${name}`)),
}));
