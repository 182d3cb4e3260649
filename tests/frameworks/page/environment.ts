// A page without a browser. Vitest would look for happy-dom beside itself.
import { Window } from 'happy-dom';
import { type Environment, populateGlobal } from 'vitest/runtime';

export default {
  name: 'page',
  viteEnvironment: 'client',
  setup(global) {
    const page = new Window({ url: 'http://page.test/' });
    // Requests are Node's: nothing here may go out through the page.
    const { keys, originals } = populateGlobal(global, page, {
      bindFunctions: true,
      additionalKeys: ['MutationObserver'],
    });
    return {
      async teardown() {
        await page.happyDOM.close();
        for (const key of keys) delete global[key];
        for (const [key, value] of originals) global[key] = value;
      },
    };
  },
} satisfies Environment;
