// For runtimes that have a WebSocket: nothing to bring.
import { argv } from 'node:process';
import { follow } from './follow.js';

await follow(console.log, { url: argv[2] });
