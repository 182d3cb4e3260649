// Two projects, since frameworks have two builds: one for pages, one for servers.
import { defineConfig } from 'vitest/config';
import { recipeModules } from './recipes.js';

/** Frameworks that import each other by conditions are resolved by Vite: Node would take the server's build. */
const INLINE = [/svelte/, /solid-js/, /esm-env/];

/** What a test waits for has a limit of its own, which says more. */
const TIMEOUTS = { testTimeout: 60_000, hookTimeout: 60_000 };

export default defineConfig({
  test: {
    projects: [
      {
        plugins: [recipeModules({ server: false })],
        resolve: { conditions: ['browser', 'development', 'module', 'import', 'default'] },
        test: {
          ...TIMEOUTS,
          name: 'page',
          include: ['page/*.test.ts', 'page/*.test.tsx'],
          environment: './page/environment.ts',
          server: { deps: { inline: INLINE } },
        },
      },
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
