// What a page gets to run cases: their text goes in and what does not hold comes out.
import { isPlain, prepare, run, type Failure } from './runner.js';

declare global {
  var runCase: (json: string) => Promise<Failure[]>;
}

globalThis.runCase = async (json) => {
  await prepare();
  const given = JSON.parse(json);
  return [...(await run(given)), ...(isPlain(given) ? await run(given, true) : [])];
};
