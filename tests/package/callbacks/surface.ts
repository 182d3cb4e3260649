// What the package hands out and what it is handed, read from its own types, so that nothing new is forgotten.
import ts from 'typescript';
import { read } from '../pages.js';

/** The types that are shipped. */
const FILES = ['pkg/dist/index.d.ts', 'pkg/dist/api.d.ts'];

/** Types of the application's own making: their functions are called by the package. */
const GIVEN = ['ClientOptions', 'ModelOptions', 'Logger', 'WebSocketLike', 'ClientEvents', 'Listener'];

/** Types that only carry data. */
const DATA = [
  ...['EntitySnapshot', 'Change', 'Abortable', 'ClientStatus', 'InorderError', 'Model', 'ReplayRequest', 'ReplayPage'],
  ...['SnapshotAnswer', 'Stats'],
];

/** The functions of the public types. */
export interface Surface {
  /** What an application may call, such as `Entity.finished`. */
  readonly methods: ReadonlySet<string>;
  /** What an application may give, such as `ClientOptions.url`. */
  readonly callbacks: ReadonlySet<string>;
}

type Named = ts.InterfaceDeclaration | ts.TypeAliasDeclaration | ts.FunctionDeclaration | ts.ClassDeclaration;

const parse = (path: string): ts.SourceFile =>
  ts.createSourceFile(path, read(path), ts.ScriptTarget.Latest, /* setParentNodes */ true);

const declarations: Named[] = FILES.flatMap((path) =>
  parse(path).statements.filter(
    (node): node is Named =>
      ts.isInterfaceDeclaration(node) ||
      ts.isTypeAliasDeclaration(node) ||
      ts.isFunctionDeclaration(node) ||
      ts.isClassDeclaration(node),
  ),
);

const byName = new Map(declarations.map((node) => [node.name!.text, node]));

/** Can a value of this type be called or constructed? */
function isCallable(type: ts.TypeNode | undefined): boolean {
  if (!type) return false;
  if (ts.isFunctionTypeNode(type) || ts.isConstructorTypeNode(type)) return true;
  if (ts.isParenthesizedTypeNode(type)) return isCallable(type.type);
  if (ts.isUnionTypeNode(type) || ts.isIntersectionTypeNode(type)) return type.types.some(isCallable);
  if (ts.isTypeReferenceNode(type) && ts.isIdentifier(type.typeName)) {
    const known = byName.get(type.typeName.text);
    if (known && ts.isTypeAliasDeclaration(known)) return isCallable(known.type);
    if (known && ts.isInterfaceDeclaration(known)) return known.members.some(ts.isCallSignatureDeclaration);
  }
  return false;
}

/** The functions among members, by their names. */
function functions(members: readonly ts.TypeElement[]): string[] {
  return members.flatMap((member) => {
    if (ts.isCallSignatureDeclaration(member)) return ['()'];
    const isFunction = ts.isMethodSignature(member) || (ts.isPropertySignature(member) && isCallable(member.type));
    const name = member.name?.getText() ?? '';
    // A brand is no member that anybody could call.
    return isFunction && !/^\[(?!Symbol\.)/.test(name) ? [name] : [];
  });
}

/** What comes with a type of the language. */
const OF_THE_LANGUAGE: Record<string, readonly string[]> = {
  Disposable: ['[Symbol.dispose]'],
  AsyncIterable: ['[Symbol.asyncIterator]'],
  AsyncIterableIterator: ['next', 'return'],
};

/** Own functions and those of what it extends. */
function all(node: ts.InterfaceDeclaration): string[] {
  const inherited = (node.heritageClauses ?? []).flatMap(({ types }) =>
    types.flatMap(({ expression }) => {
      const base = byName.get(expression.getText());
      if (base && ts.isInterfaceDeclaration(base)) return all(base);
      const known = OF_THE_LANGUAGE[expression.getText()];
      if (!known) throw new Error(`${node.name.text} extends ${expression.getText()}: say what that brings`);
      return known;
    }),
  );
  return [...inherited, ...functions([...node.members])];
}

/** Reads the types. Throws when one is new: then say which kind it is. */
export function readSurface(): Surface {
  const methods = new Set<string>();
  const callbacks = new Set<string>();
  for (const node of declarations) {
    const name = node.name!.text;
    if (ts.isFunctionDeclaration(node)) methods.add(name);
    else if (DATA.includes(name)) {
      if (ts.isInterfaceDeclaration(node) && functions([...node.members]).length > 0) {
        throw new Error(`${name} has functions: ${functions([...node.members]).join(', ')}`);
      }
    } else if (name === 'ClientEvents' && ts.isInterfaceDeclaration(node)) {
      for (const member of node.members) callbacks.add(`${name}.${member.name!.getText()}`);
    } else if (GIVEN.includes(name)) {
      if (ts.isInterfaceDeclaration(node)) for (const member of all(node)) callbacks.add(`${name}.${member}`);
      else callbacks.add(name);
    } else if (ts.isInterfaceDeclaration(node)) {
      for (const member of all(node)) methods.add(`${name}.${member}`);
    } else if (ts.isTypeAliasDeclaration(node) && isCallable(node.type)) {
      // These are seen where they are used, as members of the interfaces.
      if (!['WebSocketClass', 'WasmSource'].includes(name)) throw new Error(`${name} is callable and unknown`);
    }
  }
  for (const path of FILES) {
    if (!read(path).includes('AsyncIterableIterator<')) continue;
    for (const member of OF_THE_LANGUAGE['AsyncIterableIterator']!) methods.add(`AsyncIterableIterator.${member}`);
  }
  return { methods, callbacks };
}
