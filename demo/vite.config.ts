import { defineConfig } from 'vite';

// `vite build demo` makes the page that the gateway serves; with `--mode static` it plays the gateway itself, so that
// plain files are enough. Addresses are relative: the page may live in any folder.
export default defineConfig({
  base: './',
  server: {
    proxy: {
      '/ws': { target: 'ws://127.0.0.1:8080', ws: true },
      '^/(entities|faults|health)': 'http://127.0.0.1:8080',
    },
  },
  build: { target: 'es2022', sourcemap: true },
});
