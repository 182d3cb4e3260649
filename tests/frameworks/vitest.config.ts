// Frameworks have two builds: one for pages, one for servers. React comes in two versions, too.
import { createRequire } from 'node:module';
import { defineConfig } from 'vitest/config';
import { recipeModules } from './recipes.js';

/** Frameworks that import each other by conditions are resolved by Vite: Node would take the server's build. */
const INLINE = [/svelte/, /solid-js/, /esm-env/];

/** What a test waits for has a limit of its own, which says more. */
const TIMEOUTS = { testTimeout: 60_000, hookTimeout: 60_000 };

const page = (name: string, react: string, include: string[], alias: Record<string, string> = {}) => ({
  plugins: [recipeModules({ server: false })],
  resolve: { conditions: ['browser', 'development', 'module', 'import', 'default'], alias },
  test: {
    ...TIMEOUTS,
    name,
    include,
    env: { REACT: react },
    environment: './page/environment.ts',
    server: { deps: { inline: INLINE } },
  },
});

/** The modules of React 18, in place of those of React 19 that are installed beside the other frameworks. */
const react18 = Object.fromEntries(
  ['react/jsx-dev-runtime', 'react/jsx-runtime', 'react-dom/client', 'react-dom/server', 'react-dom', 'react'].map(
    (name) => [name, createRequire(`${import.meta.dirname}/react-18/`).resolve(name)],
  ),
);

export default defineConfig({
  test: {
    projects: [
      page('page', '19', ['page/*.test.ts', 'page/*.test.tsx']),
      page('react 18', '18', ['page/react.test.tsx'], react18),
      {
        plugins: [recipeModules({ server: true })],
        test: {
          ...TIMEOUTS,
          name: 'server',
          include: ['server/*.test.ts'],
          environment: 'node',
          server: { deps: { inline: INLINE } },
        },
      },
    ],
  },
});
