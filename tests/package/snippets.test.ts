// Every TypeScript snippet of the pages compiles against the package's public types.
import ts from 'typescript';
import { beforeAll, describe, expect, test } from 'vitest';
import { type Block, blocksOf, read, root } from './pages.js';

const PAGES = ['README.md', 'docs/guide.md', 'docs/errors.md'];

/** Languages that are not compiled. JavaScript is not among them: a snippet is written in TypeScript. */
const OTHERS = ['', 'sh', 'json', 'text', 'html', 'svelte'];

const API = `${root}pkg/src/public/api.d.ts`;
const PRELUDE = `${root}tests/package/snippets.prelude.d.ts`;

const OPTIONS: ts.CompilerOptions = {
  strict: true,
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2022.d.ts', 'lib.dom.d.ts'],
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  moduleDetection: ts.ModuleDetectionKind.Force,
  skipLibCheck: false,
  types: [],
  noEmit: true,
  paths: { inorder: [`${root}pkg/src/public/index.d.ts`], 'inorder/*': [`${root}pkg/src/public/*.d.ts`] },
};

/** Compiles blocks, each as a module of its own. */
function compile(blocks: readonly Block[]): { program: ts.Program; errors: string[] } {
  const files = new Map(blocks.map((block) => [`${root}${block.page}.${block.line}.ts`, block]));
  const host = ts.createCompilerHost(OPTIONS);
  const { fileExists, getSourceFile } = host;
  host.fileExists = (name) => files.has(name) || fileExists(name);
  host.getSourceFile = (name, options, ...rest) => {
    const block = files.get(name);
    return block ? ts.createSourceFile(name, block.code, options) : getSourceFile(name, options, ...rest);
  };
  const program = ts.createProgram([PRELUDE, API, ...files.keys()], OPTIONS, host);
  const errors = ts.getPreEmitDiagnostics(program).map(({ file, start, code, messageText }) => {
    const what = `TS${code}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
    if (!file) return what;
    const block = files.get(file.fileName);
    const line = file.getLineAndCharacterOfPosition(start ?? 0).line;
    return `${block?.page ?? file.fileName.replace(root, '')}:${line + (block?.line ?? 1)}: ${what}`;
  });
  return { program, errors };
}

const WRONG = `# A page

${'```'}ts
import { createClient } from 'inorder';

createClient({ models });
client.entity('pet/1');
job.subscribe(({ state }) => state.progress);
${'```'}
`;

const blocks = PAGES.flatMap((page) => blocksOf(page, read(page)));

// One program for all: most of a compiler's time goes into the standard library.
let compiled: ReturnType<typeof compile>;
beforeAll(() => {
  const snippets = [...blocks, ...blocksOf('wrong.md', WRONG)].filter(({ language }) => language === 'ts');
  compiled = compile(snippets);
}, 120_000);

const isWrong = (error: string): boolean => error.startsWith('wrong.md:');

describe('snippets', () => {
  test.each(PAGES)('%s has some', (page) => {
    expect(blocks.some((block) => block.page === page && block.language === 'ts')).toBe(true);
  });

  test('are in languages that are checked, or not code of the package', () => {
    const odd = blocks.filter(({ language }) => language !== 'ts' && !OTHERS.includes(language));
    expect(odd.map(({ page, line, language }) => `${page}:${line}: ${language}`)).toEqual([]);
  });

  test('compile', () => {
    expect(compiled.errors.filter((error) => !isWrong(error))).toEqual([]);
  });

  test('that are wrong are named with page and line', () => {
    expect(compiled.errors.filter(isWrong)).toEqual([
      expect.stringMatching(/^wrong\.md:6: TS2345: .*'url' is missing/),
      expect.stringMatching(/^wrong\.md:7: TS2345: .*"pet\/1"/),
      expect.stringMatching(/^wrong\.md:8: TS18049: 'state' is possibly/),
    ]);
  });
});

/** The options in an interface of the public types; those of a group as `group.option`. */
function optionsOf(interfaceName: string): string[] {
  const checker = compiled.program.getTypeChecker();
  const module = checker.getSymbolAtLocation(compiled.program.getSourceFile(API)!)!;
  const symbol = checker.getExportsOfModule(module).find(({ name }) => name === interfaceName)!;
  return checker
    .getDeclaredTypeOfSymbol(symbol)
    .getProperties()
    .flatMap((option) => {
      const type = checker.getNonNullableType(checker.getTypeOfSymbol(option));
      // A group is an object type that is written in place, and neither a function nor a class.
      const isObject = ((type.symbol?.flags ?? 0) & ts.SymbolFlags.TypeLiteral) !== 0;
      const isCalled = type.getCallSignatures().length + type.getConstructSignatures().length > 0;
      if (!isObject || isCalled) return [option.name];
      return type.getProperties().map(({ name }) => `${option.name}.${name}`);
    });
}

test('the guide names every option, and no other', () => {
  const [, tuning] = read('docs/guide.md').split('\n## Tuning\n');
  const written = [...tuning!.matchAll(/^\| `([a-zA-Z.]+)` \|/gm)].map(([, name]) => name!);
  const known = [...optionsOf('ClientOptions'), ...optionsOf('ModelOptions').map((name) => `model.${name}`)];
  expect(written.sort()).toEqual(known.sort());
});
