// A screen that nobody sees, for a browser that has no other way.
import { start, stop, xvfb } from './tools.mjs';

/** Starts one; it picks a free number itself and says which when it is ready. */
export async function screen() {
  let child;
  const display = await new Promise((resolve, reject) => {
    child = start(xvfb(), ['-displayfd', '1', '-screen', '0', '1024x768x24', '-nolisten', 'tcp'], {
      onLine: (line, stream) => stream === 'stdout' && resolve(`:${line.trim()}`),
    });
    child.done.then(({ code }) => reject(new Error(`Xvfb ended with ${code}`)));
  });
  return { display, stop: () => stop(child) };
}
