const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });

worker.onmessage = ({ data }) => (document.querySelector('output').textContent = data);
worker.onerror = ({ message }) => (document.querySelector('output').textContent = message);
worker.postMessage(new URLSearchParams(location.search).get('server'));
