import Job from 'recipe:Vue/Job.vue';
import { createApp, h, shallowRef } from 'vue';
import { contract } from './contract.js';

contract('Vue', async (place, id) => {
  const shown = shallowRef(id);
  const app = createApp({ render: () => h(Job, { id: shown.value }) });
  app.mount(place);
  return { unmount: () => app.unmount(), change: (next) => void (shown.value = next) };
});
