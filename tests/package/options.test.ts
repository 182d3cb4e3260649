// Wrong options throw at createClient, with a message that says what to do.
import { describe, expect, test } from 'vitest';
import { createClient, InorderError, model } from '../../pkg/dist/index.js';
import { createClient as createSlim } from '../../pkg/dist/slim.js';

const good = { url: 'wss://server.test/ws', models: { job: model() } };

describe('wrong options', () => {
  test.each([
    [undefined, /Option `url` is missing, and `models`\./],
    ['wss://server.test/ws', /Option `url` is missing, and `models`\./],
    [{ ...good, url: 'https://server.test' }, /a full address with 'wss:' or 'ws:', not 'https:'\./],
    [{ ...good, url: '/ws' }, /a full address with 'wss:' or 'ws:'\./],
    [{ ...good, url: 'ftp://server.test' }, /a full address with 'wss:'/],
    [{ ...good, urls: 'wss://server.test' }, /`urls` is unknown; known are timeout/],
    [{ ...good, models: undefined }, /`models` must name up to 254 models/],
    [{ ...good, models: null }, /`models` must name up to 254 models/],
    [{ ...good, models: Object.fromEntries(Array.from({ length: 255 }, (_, i) => [`m${i}`, {}])) }, /up to 254/],
    [{ ...good, models: { 'a/b': model() } }, /`models` must not name one 'a\/b'/],
    [{ ...good, models: { topic: model() } }, /must not name one 'topic'/],
    [{ ...good, models: { job: null } }, /`models\.job` must be an object/],
    [{ ...good, models: { job: { reduce: 'sum' } } }, /`models\.job\.reduce` must be 'replace', 'merge' or a function/],
    [{ ...good, models: { job: { onGap: 'skip', reduce: 'merge' } } }, /`models\.job\.onGap` must not be 'skip'/],
    [{ ...good, models: { job: { onGap: 'skip', reduce: () => 0 } } }, /`reduce` needs every change/],
    [{ ...good, models: { job: { terminal: 'done' } } }, /a list of statuses or a function/],
    [{ ...good, models: { job: { continuity: '+2' } } }, /one of \+1 range prev none/],
    [{ ...good, models: { job: { resetSeq: -1 } } }, /`models\.job\.resetSeq` must be a whole number/],
    [{ ...good, models: { job: { terminals: [] } } }, /`models\.job\.terminals` is unknown/],
    [{ ...good, getToken: 'token' }, /`getToken` must be of type function/],
    [{ ...good, token: 7 }, /`token` must be of type string/],
    [{ ...good, flush: 'later' }, /`flush` must be one of microtask sync frame/],
    [{ ...good, timeout: { replay: 0 } }, /`timeout\.replay` must be a whole number from 1/],
    [{ ...good, timeout: { reply: 1 } }, /`timeout\.reply` is unknown/],
    [{ ...good, timeout: 3_000 }, /`timeout` must be an object/],
    [{ ...good, backoff: { factor: 0.5 } }, /`backoff\.factor`/],
    [{ ...good, codes: { stop: 4400 } }, /`codes\.stop` must be a list/],
    [{ ...good, codes: { stop: [99] } }, /from 1000 to 4999/],
    [{ ...good, gap: { maxEvents: -1 } }, /`gap\.maxEvents`/],
    [{ ...good, linger: 1.5 }, /`linger`/],
    [{ ...good, signal: true }, /`signal` must be of type object/],
    [{ ...good, logger: 'console' }, /`logger`/],
  ])('%j', (options, message) => {
    const create = () => createClient(options as never);
    expect(create).toThrow(InorderError);
    expect(create).toThrow(message);
    try {
      create();
    } catch (error) {
      expect(error).toMatchObject({ name: 'InorderError', code: 'invalid_option', retryable: false });
    }
  });

  test('slim needs the wasm', () => {
    expect(() => createSlim(good as never)).toThrow(/Option `wasm` is needed/);
  });
});

test('without a model there is nothing to follow, and each name says so', () => {
  const client = createClient({ ...good, models: {}, logger: null });
  const errors: unknown[] = [];
  client.on('error', (error) => errors.push(error));
  (client as any).entity('job/1').subscribe(() => {});
  expect(errors).toMatchObject([{ code: 'unknown_model', message: expect.stringContaining("'job/1': add one") }]);
  client.close();
});

test('all options at once', () => {
  const client = createClient({
    url: new URL('wss://server.test/ws'),
    models: {
      job: model({ terminal: ['done'], reduce: 'merge', onGap: 'snapshot', continuity: 'range', overlap: 'absolute' }),
      book: model({ continuity: 'prev', reopen: 'epoch', resetSeq: 1, ids: 0, replay: 'whole' }),
    },
    token: 't',
    flush: 'frame',
    timeout: { connect: 1, subscribe: 1, replay: 1, snapshot: 1, probe: 1, user: 1 },
    tries: { replay: 1 },
    backoff: { min: 0, base: 1, factor: 3, cap: 4, stable: 5 },
    codes: { resume: [4401], anew: [], auth: [4001], stop: [4400, 4403] },
    requests: { max: 1 },
    badFrames: { max: 1 },
    gap: { grace: 0, maxEvents: 1, maxBytes: 1 },
    maxAhead: 1,
    linger: 0,
    ids: 16,
    ping: 1_000,
    reconcile: 1_000,
    logger: null,
  });
  client.close();
});
