import type { WebSocketClass } from 'inorder';
import { framesOf, type Frame } from './frames';

/** Who listens in on a socket. */
export interface Listener {
  /** Copies of the frames of a message, before the client gets it. */
  before(frames: readonly Frame[]): void;
  /** The same frames, when the client has done with them. */
  after(frames: readonly Frame[]): void;
}

type Handler = ((event: { data: unknown }) => void) | null;

/** A WebSocket class like `Base` whose messages `listener` hears too. Nothing is changed or delayed. */
export function tapped(Base: WebSocketClass, listener: Listener): WebSocketClass {
  return class extends Base {
    constructor(url: string, protocols?: string | string[]) {
      super(url, protocols);
      const attach = setterOf(this, 'onmessage');
      let handler: Handler = null;
      Object.defineProperty(this, 'onmessage', {
        get: () => handler,
        set: (next: Handler) => {
          handler = next;
          attach(
            next &&
              ((event) => {
                const frames = framesOf(event.data);
                listener.before(frames);
                next.call(this, event);
                listener.after(frames);
              }),
          );
        },
      });
    }
  };
}

/** The setter that an object inherits. */
function setterOf(object: object, name: string): (value: Handler) => void {
  for (let at: object | null = object; at !== null; at = Object.getPrototypeOf(at) as object | null) {
    const setter = Object.getOwnPropertyDescriptor(at, name)?.set;
    if (setter) return (value) => setter.call(object, value);
  }
  throw new TypeError(`a WebSocket class needs an ${name} property`);
}
