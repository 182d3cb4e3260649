// docs/errors.md lists the codes that there are.
import { readdirSync } from 'node:fs';
import ts from 'typescript';
import { expect, test } from 'vitest';
import { codeOf, InorderError } from '../../pkg/src/errors.js';
import { read, root } from './pages.js';

/** What the core's faults are to the application. */
const FAULTS = {
  BadFrame: 'bad_frame',
  FarAhead: 'bad_frame',
  AfterFinal: 'after_final',
  Diverged: 'diverged',
  EpochFlapping: 'epoch_flapping',
  AuthFailed: 'auth_failed',
  TokenFailed: 'token',
  Forbidden: 'forbidden',
  NotFound: 'not_found',
  Server: 'server',
  GaveUp: 'failed',
  Stopped: 'stopped',
};

const API = `${root}pkg/src/public/api.d.ts`;

/** Codes by the heading under which the page has them. */
function listed(): Map<string, string> {
  const codes = new Map<string, string>();
  let heading = '';
  for (const line of read('docs/errors.md').split('\n')) {
    heading = /^## (.*)$/.exec(line)?.[1] ?? heading;
    const code = /^\| `([a-z_]+)` \|/.exec(line)?.[1];
    if (code === undefined) continue;
    expect(codes.has(code), `docs/errors.md lists ${code} twice`).toBe(false);
    codes.set(code, heading);
  }
  return codes;
}

/** The codes of the type, and those that the package's code makes errors with. */
function known(): { declared: string[]; raised: string[] } {
  const folder = `${root}pkg/src/`;
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  const sources = files.filter((name) => name.endsWith('.ts') && !name.endsWith('.d.ts'));
  const { config } = ts.readConfigFile(`${root}tsconfig.base.json`, ts.sys.readFile);
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, root);
  const program = ts.createProgram([API, ...sources.map((name) => folder + name)], options);
  const checker = program.getTypeChecker();

  const module = checker.getSymbolAtLocation(program.getSourceFile(API)!)!;
  const alias = checker.getExportsOfModule(module).find(({ name }) => name === 'ErrorCode')!;
  const union = checker.getDeclaredTypeOfSymbol(alias) as ts.UnionType;
  const declared = union.types.map((type) => (type as ts.StringLiteralType).value);

  const raised = new Set<string>(Object.values(FAULTS));
  const isExpected = (type: ts.Type | undefined) => type?.isUnion() && union.types.every((t) => type.types.includes(t));
  const visit = (node: ts.Node): void => {
    // Where a code is expected, perhaps among other things, a literal is one; a comparison expects nothing.
    if (ts.isStringLiteral(node) && isExpected(checker.getContextualType(node))) raised.add(node.text);
    ts.forEachChild(node, visit);
  };
  for (const name of sources) visit(program.getSourceFile(folder + name)!);
  return { declared: declared.sort(), raised: [...raised].sort() };
}

// A compiler on a loaded machine takes its time.
test('the page, the type and the code have the same error codes', { timeout: 120_000 }, () => {
  const codes = listed();
  const { declared, raised } = known();
  expect([...codes.keys()].sort()).toEqual(declared);
  const used = [...codes.keys()];
  expect(used.sort()).toEqual(raised);
});

test('each fault of the core has its code', () => {
  const [, variants] = /^pub enum Fault \{(.*?)^\}/ms.exec(read('src/output.rs'))!;
  const found = [...variants!.matchAll(/^ {4}(\w+) = (\d+),$/gm)].map(([, name, number]) => [name, codeOf(+number!)]);
  expect(found).toEqual(Object.entries(FAULTS));
});

test('an error has its name wherever it is looked for', () => {
  const error = new InorderError('closed');
  expect([error.name, error.constructor.name, String(error)]).toEqual([
    'InorderError',
    'InorderError',
    'InorderError: The client is closed: make a new one.',
  ]);
  // What consoles print.
  expect(error.stack).toMatch(/^InorderError: /);
  expect(new InorderError('forbidden', "job/$'").message).toMatch(/^job\/\$' is forbidden/);
});
