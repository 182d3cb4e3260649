import Job from 'recipe:Svelte/Job.svelte';
import { flushSync, mount, unmount } from 'svelte';
import { fromStore, writable } from 'svelte/store';
import { contract } from './contract.js';

contract('Svelte', (target, id) => {
  // Props that change are runes in an app; a store with a getter is the same from outside of a component.
  const shown = fromStore(writable(id));
  const props = {
    get id() {
      return shown.current;
    },
  };
  const job = mount(Job, { target, props });
  flushSync();
  return {
    unmount: () => void unmount(job),
    change: (next) => flushSync(() => void (shown.current = next)),
  };
});
