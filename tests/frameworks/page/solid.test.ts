import { Job } from 'recipe:Solid/Job.tsx';
import { createComponent, createSignal } from 'solid-js';
import { render } from 'solid-js/web';
import { contract } from './contract.js';

contract('Solid', (place, first) => {
  const [id, setId] = createSignal(first);
  const unmount = render(
    () =>
      createComponent(Job, {
        get id() {
          return id();
        },
      }),
    place,
  );
  return { unmount, change: setId };
});
