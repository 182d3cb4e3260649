// The other side of "import to first event": a WebSocket and nothing around it. ./run.mjs times both in a fresh page.

/** Resolves with the first event. */
export function first(url) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, 'inorder.v1.json');
    socket.onerror = reject;
    socket.onopen = () => {
      socket.send('{"type":"hello","client":"bare/1"}');
      socket.send('{"type":"subscribe","request":1,"entities":[{"entity":"job/1"}]}');
    };
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.type === 'event') resolve(frame);
    };
  });
}
