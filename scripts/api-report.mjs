// Writes what the package promises to pkg/api-report.md, so that a review shows each change of it.
//
//   node scripts/api-report.mjs            writes the report
//   node scripts/api-report.mjs --check    fails when the report is not up to date, or an entry does not export what its
//                                          types say; the package must be built
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';
import { root } from './tools.mjs';

const REPORT = 'pkg/api-report.md';

/** What of package.json is promised as well. */
const PROMISED = ['type', 'engines', 'sideEffects', 'exports', 'peerDependencies', 'peerDependenciesMeta'];

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

/** The entries that have types, as `[name, types, code]`; the types are those of the sources. */
const entries = Object.entries(manifest.exports)
  .filter(([, target]) => target.types)
  .map(([path, target]) => [
    path.replace('.', manifest.name),
    join(root, target.types.replace('pkg/dist', 'pkg/src/public')),
    join(root, target.default),
  ]);

const program = ts.createProgram([...new Set(entries.map(([, types]) => types))], {
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2022.d.ts', 'lib.dom.d.ts'],
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  strict: true,
  types: [],
  noEmit: true,
});
const checker = program.getTypeChecker();
const printer = ts.createPrinter({ removeComments: true });

/** The exports of a declaration file by name: their text without comments, and whether they are there at run time. */
function exportsOf(types) {
  const module = checker.getSymbolAtLocation(program.getSourceFile(types));
  const symbols = checker.getExportsOfModule(module).map((symbol) => {
    const { flags, declarations } = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    const texts = declarations.map((node) => printer.printNode(ts.EmitHint.Unspecified, node, node.getSourceFile()));
    return [symbol.name, { text: texts.join('\n'), isValue: (flags & ts.SymbolFlags.Value) !== 0 }];
  });
  return new Map(symbols.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The names that a built module exports. */
function namesOf(code) {
  const source = ts.createSourceFile(code, readFileSync(code, 'utf8'), ts.ScriptTarget.ES2022);
  return source.statements
    .filter((statement) => ts.isExportDeclaration(statement) && statement.exportClause)
    .flatMap((statement) => statement.exportClause.elements.map(({ name }) => name.text));
}

function report() {
  const promised = Object.fromEntries(PROMISED.map((key) => [key, manifest[key]]));
  const parts = [
    '# What the package promises',
    'Written by `npm run api`. A change here is one for users: it belongs into the CHANGELOG.',
    '## package.json',
    ['```json', JSON.stringify(promised, undefined, 2), '```'].join('\n'),
  ];
  /** The entry that has a declaration already: what entries share is written once. */
  const written = new Map();
  for (const [entry, types] of entries) {
    const own = [];
    const shared = new Map();
    for (const [name, { text }] of exportsOf(types)) {
      const before = written.get(text);
      if (before) shared.set(before, [...(shared.get(before) ?? []), name]);
      else own.push(text);
      if (!before) written.set(text, entry);
    }
    parts.push(`## ${entry}`);
    for (const [before, names] of shared) parts.push(`From \`${before}\`: ${names.join(', ')}.`);
    if (own.length > 0) parts.push(['```ts', own.join('\n\n'), '```'].join('\n'));
  }
  return `${parts.join('\n\n')}\n`;
}

/** What the built entries export otherwise than their types say. */
function differences() {
  return entries.flatMap(([entry, types, code]) => {
    const promised = [...exportsOf(types)].filter(([, { isValue }]) => isValue).map(([name]) => name);
    const exported = namesOf(code);
    return [
      ...promised.filter((name) => !exported.includes(name)).map((name) => `${entry} does not export ${name}`),
      ...exported
        .filter((name) => !promised.includes(name))
        .map((name) => `${entry} exports ${name}, which has no type`),
    ];
  });
}

const path = join(root, REPORT);
const fresh = report();
if (process.argv.includes('--check')) {
  const wrong = differences();
  const kept = existsSync(path) ? readFileSync(path, 'utf8') : '';
  if (kept !== fresh) {
    const lines = kept.split('\n');
    const at = fresh.split('\n').findIndex((line, index) => line !== lines[index]);
    wrong.push(
      `${REPORT}:${at + 1} is not what the package promises: run \`npm run api\`, look at the change, commit it.`,
    );
  }
  for (const line of wrong) console.error(`api-report: ${line}`);
  process.exitCode = wrong.length > 0 ? 1 : 0;
} else {
  writeFileSync(path, fresh);
  console.log(`api-report: wrote ${relative(process.cwd(), path)}`);
}
