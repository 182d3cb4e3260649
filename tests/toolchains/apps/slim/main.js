import { createClient } from 'inorder/slim';
import wasm from 'inorder/inorder.wasm?url';

const url = new URLSearchParams(location.search).get('server');
const client = createClient({ url, wasm, models: { job: {} } });

client.on('final', ({ seq, status }) => (document.querySelector('output').textContent = `${seq} ${status}`));
client.entity('job/1').subscribe(() => {});
