// Every case of `tests/cases` through the package.
import { beforeAll, describe, expect, test } from 'vitest';
import { createClient, model } from '../../../pkg/dist/index.js';
import { read } from '../pages.js';
import { run } from './runner.js';
import { readCases } from './script.js';

const FILES = ['connection', 'handover', 'order', 'recovery', 'epochs', 'mixtures', 'field_reports'];

// Clients dial at once only where the wasm is there; cases know nothing of its loading.
beforeAll(() => createClient({ url: 'ws://server.test/ws', models: { a: model() } }).preload());

describe.each(FILES)('%s', (file) => {
  for (const given of readCases(read(`tests/cases/${file}.case`))) {
    test(`${given.id} ${given.title}`, async () => expect(await run(given)).toEqual([]));
  }
});
