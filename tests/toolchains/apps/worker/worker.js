import { follow } from './follow.js';

onmessage = ({ data: url }) => follow(postMessage, { url });
