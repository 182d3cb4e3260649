import WebSocket from 'ws';
import { follow } from './follow.js';

await follow(console.log, { url: process.argv[2], WebSocket });
