// The page itself: its recipes are short, compile against the frameworks' types, and are all run by a test.
import { readdirSync } from 'node:fs';
import { extname } from 'node:path';
import ts from 'typescript';
import { beforeAll, expect, test } from 'vitest';
import { read, root } from '../../package/pages.js';
import { PAGE, type Recipe, recipesOf } from '../recipes.js';

const FRAMEWORKS = ['React', 'Svelte', 'Vue', 'Solid', 'Angular', 'RxJS'];

/** Lines of a recipe, beside its imports. */
const LINES = 5;

const text = read(PAGE);
const recipes = recipesOf(text);
const ofFramework = (name: string) => recipes.filter(({ framework }) => framework === name);

test('every block is a file', () => {
  expect(recipes.filter(({ file }) => !file).map(({ line }) => `${PAGE}:${line}`)).toEqual([]);
});

test('each framework has its section', () => {
  expect([...new Set(recipes.map(({ framework }) => framework))]).toEqual(['', ...FRAMEWORKS]);
});

// React has hooks; its second recipe shows what else they can do.
test.each(FRAMEWORKS)('the first recipe for %s is short', (name) => {
  const [{ code }] = ofFramework(name) as [Recipe];
  const lines = code.split('\n').filter((line) => line.trim() !== '' && !/^\s*import\b/.test(line));
  expect(lines.length).toBeLessThanOrEqual(LINES);
});

test('each recipe is imported by a test', () => {
  const tests = ['page', 'server'].flatMap((folder) =>
    readdirSync(`${root}tests/frameworks/${folder}`).map((file) => read(`tests/frameworks/${folder}/${file}`)),
  );
  const run = new Set(tests.flatMap((code) => [...code.matchAll(/'recipe:([^']+)'/g)].map(([, name]) => name)));
  // What a recipe imports is run with it.
  for (const { framework, code } of recipes) {
    for (const [, name] of code.matchAll(/from '\.\/(\w+)'/g)) run.add(`${framework}/${name}.ts`);
  }
  const all = recipes.filter(({ framework }) => framework).map(({ framework, file }) => `${framework}/${file}`);
  expect(all.filter((name) => !run.has(name))).toEqual([]);
});

/** TypeScript of a recipe: of a component file, its script. */
function scriptOf({ code, file }: Recipe): string {
  if (!['.svelte', '.vue'].includes(extname(file))) return code;
  return /<script[^>]*>\n(.*?)<\/script>/s.exec(code)![1]!;
}

/** What the compiler says of the page's recipes, with the frameworks' own types. */
function compile(page: string): string[] {
  const folder = `${root}tests/frameworks/`;
  const all = recipesOf(page);
  const inPlace = (recipe: Recipe) => {
    return `${folder}${recipe.framework}/${recipe.file.replace(/\.(svelte|vue)$/, '.ts')}`;
  };
  const files = new Map<string, string>();
  for (const recipe of all) {
    const pragma = recipe.framework === 'Solid' ? '/** @jsxImportSource solid-js */' : '';
    files.set(inPlace(recipe), pragma + scriptOf(recipe));
    // Each section has the module of the page's beginning beside it.
    if (recipe.framework) files.set(`${folder}${recipe.framework}/client.ts`, "export * from '../client.js';");
  }
  const client = all.find(({ file }) => file === 'client.ts')!;
  files.set(`${folder}client.ts`, client.code);
  const options: ts.CompilerOptions = {
    strict: true,
    target: ts.ScriptTarget.ES2022,
    lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    jsx: ts.JsxEmit.ReactJSX,
    experimentalDecorators: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: true,
    types: ['svelte', 'vue'],
    noEmit: true,
    paths: { inorder: [`${root}pkg/src/public/index.d.ts`], 'inorder/*': [`${root}pkg/src/public/*.d.ts`] },
  };
  const host = ts.createCompilerHost(options);
  const { fileExists, getSourceFile, directoryExists } = host;
  host.getCurrentDirectory = () => folder;
  host.fileExists = (name) => files.has(name) || fileExists(name);
  host.directoryExists = (name) =>
    [...files.keys()].some((file) => file.startsWith(`${name}/`)) || directoryExists!(name);
  host.getSourceFile = (name, how, ...rest) => {
    const code = files.get(name);
    return code === undefined ? getSourceFile(name, how, ...rest) : ts.createSourceFile(name, code, how);
  };
  const program = ts.createProgram([...files.keys()], options, host);
  return ts.getPreEmitDiagnostics(program).map(({ file, start, messageText }) => {
    const what = ts.flattenDiagnosticMessageText(messageText, ' ');
    return file
      ? `${file.fileName.replace(folder, '')}:${file.getLineAndCharacterOfPosition(start!).line + 1}: ${what}`
      : what;
  });
}

const WRONG = `
## Wrong

${'```'}tsx Wrong.tsx
import { useEntity } from 'inorder/react';
import { client } from './client';

export const progress = useEntity(client.entity('pet/1'));
export const bids = useEntity(client.entity('job/1'), (job) => job.state?.bids);
${'```'}
`;

// One program for all: most of a compiler's time goes into the libraries.
let errors: string[];
beforeAll(() => {
  errors = compile(text + WRONG);
}, 120_000);

const isWrong = (error: string): boolean => error.startsWith('Wrong/');

test('the recipes compile against the types of the package and the frameworks', () => {
  expect(errors.filter((error) => !isWrong(error))).toEqual([]);
});

test('those that are wrong are named', () => {
  expect(errors.filter(isWrong)).toEqual([
    expect.stringMatching(/^Wrong\/Wrong\.tsx:4: .*"pet\/1"/),
    expect.stringMatching(/^Wrong\/Wrong\.tsx:5: Property 'bids' does not exist/),
  ]);
});
