// What only React 19 has.
import { Activity } from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { expect, test } from 'vitest';
import { eachWithItsOwn, eventually, server } from '../client.js';
import { Job } from 'recipe:React/Job.tsx';

eachWithItsOwn();

test('what is hidden is not followed, and current when it is shown', async () => {
  const place = document.body.appendChild(document.createElement('div'));
  const root = createRoot(place);
  const show = (mode: 'visible' | 'hidden') =>
    flushSync(() =>
      root.render(
        <Activity mode={mode}>
          <Job id="42" />
        </Activity>,
      ),
    );
  server.put('job/42', { progress: 40 });
  show('visible');
  await eventually(() => expect(place.textContent).toBe('40'));
  show('hidden');
  await eventually(() => expect([...server.followed]).toEqual([]));
  server.put('job/42', { progress: 70 });
  show('visible');
  await eventually(() => expect(place.textContent).toBe('70'));
  root.unmount();
  place.remove();
});
