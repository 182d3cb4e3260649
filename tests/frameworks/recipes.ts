// The recipes of docs/frameworks.md, and a plugin that makes modules of them: `recipe:React/Job.tsx`.
import { createRequire } from 'node:module';
import { basename, extname, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import type { Plugin } from 'vite';
import { type Block, blocksOf, read, root } from '../package/pages.js';

export const PAGE = 'docs/frameworks.md';

/** A block of the page that is a file: its language is followed by the file's name. */
export interface Recipe extends Block {
  readonly framework: string;
  readonly file: string;
}

/** The recipes, by the headings that they stand under. */
export function recipesOf(text: string): Recipe[] {
  const headings = text
    .split('\n')
    .flatMap((line, at) => (/^## /.test(line) ? [{ at: at + 1, name: line.slice(3) }] : []));
  return blocksOf(PAGE, text).map((block) => {
    const [language = '', file = ''] = block.language.split(' ');
    const framework = headings.filter(({ at }) => at < block.line).at(-1)?.name ?? '';
    return { ...block, language, file, framework };
  });
}

const here = fileURLToPath(new URL('.', import.meta.url)).replaceAll('\\', '/');
const require = createRequire(import.meta.url);

/** Compiles a recipe as its framework's own tools do; React's needs nothing that Vite does not do by itself. */
function compile({ framework, file, code, line }: Recipe, server: boolean): string {
  const filename = `${PAGE}:${line} ${file}`;
  if (framework === 'Svelte') {
    const { compile } = require('svelte/compiler');
    return compile(code, { filename, generate: server ? 'server' : 'client', dev: true }).js.code;
  }
  if (framework === 'Solid') {
    const { transformSync } = require('@babel/core');
    const solid = [require('babel-preset-solid'), { generate: server ? 'ssr' : 'dom', hydratable: server }];
    const presets = [solid];
    return transformSync(stripTypes(code, file, ts.JsxEmit.Preserve), {
      filename,
      presets,
      configFile: false,
      babelrc: false,
    }).code;
  }
  if (framework === 'Vue' && extname(file) === '.vue') {
    const { compileScript, parse } = require('vue/compiler-sfc');
    const { descriptor, errors } = parse(code, { filename });
    if (errors.length > 0) throw errors[0];
    const script = compileScript(descriptor, {
      id: file,
      inlineTemplate: true,
      templateOptions: { ssr: server, ssrCssVars: [] },
    });
    return stripTypes(script.content, file, ts.JsxEmit.Preserve);
  }
  if (framework === 'React') return stripTypes(code, file, ts.JsxEmit.ReactJSX);
  return stripTypes(code, file, ts.JsxEmit.Preserve);
}

function stripTypes(code: string, file: string, jsx: ts.JsxEmit): string {
  const { ESNext } = ts.ModuleKind;
  const options = { target: ts.ScriptTarget.ES2022, module: ESNext, jsx, experimentalDecorators: true };
  return ts.transpileModule(code, {
    fileName: extname(file) === '.vue' ? `${file}.ts` : file,
    compilerOptions: options,
  }).outputText;
}

/** Makes modules of the recipes. Their client, and the package that they import, are those of the test. */
export function recipeModules({ server }: { readonly server: boolean }): Plugin {
  const folder = `${root}${PAGE}/`;
  const recipes = new Map(recipesOf(read(PAGE)).map((recipe) => [`${recipe.framework}/${recipe.file}`, recipe]));
  const idOf = (name: string) => `\0${folder}${name}.js`;
  const nameOf = (id: string) => id.slice(`\0${folder}`.length, -'.js'.length);
  const isOurs = (id: string | undefined) => id?.startsWith(`\0${folder}`) ?? false;
  return {
    name: 'recipes',
    enforce: 'pre',
    resolveId(source, importer) {
      if (source.startsWith('recipe:')) return idOf(source.slice('recipe:'.length));
      if (source === 'inorder') return `${root}pkg/dist/index.js`;
      if (source.startsWith('inorder/')) return `${root}pkg/dist/${basename(source)}.js`;
      if (isOurs(importer) && source.startsWith('./')) {
        if (source === './client') return `${here}client.ts`;
        const name = posix.join(nameOf(importer!), '..', source);
        const found = [...recipes.keys()].find((known) => known === name || known.startsWith(`${name}.`));
        return found && idOf(found);
      }
      // Neither the page nor the package has the frameworks beside it.
      const isFar = isOurs(importer) || importer?.startsWith(`${root}pkg/dist/`);
      return isFar && !/^[./\0]/.test(source)
        ? this.resolve(source, `${here}client.ts`, { skipSelf: true })
        : undefined;
    },
    load(id) {
      if (!isOurs(id)) return undefined;
      const recipe = recipes.get(nameOf(id));
      if (!recipe) throw new Error(`${PAGE} has no recipe ${nameOf(id)}; it has ${[...recipes.keys()].join(', ')}`);
      return compile(recipe, server);
    },
  };
}
