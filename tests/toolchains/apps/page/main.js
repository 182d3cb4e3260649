import { follow } from './follow.js';

const url = new URLSearchParams(location.search).get('server');

follow((text) => (document.querySelector('output').textContent = text), { url });
