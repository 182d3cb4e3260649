// What every framework must do with the store, whatever its recipe looks like. The recipe shows `job/ID` as
// `<p class="SYNC">PROGRESS</p>`.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { client, eachWithItsOwn, eventually, server, settle, takeErrors } from '../client.js';

/** A component on the page. */
export interface Mounted {
  unmount(): void;
  /** Shows another job instead; absent where the recipe is for one that stays. */
  change?(id: string): void;
}

export type Mount = (host: HTMLElement, id: string) => Mounted | Promise<Mounted>;

let host: HTMLElement;
let mounted: Mounted[];

/** What the page shows: `live 40`. */
const shown = (at = 0): string => {
  const element = host.querySelectorAll('p')[at];
  return element ? `${element.className} ${element.textContent}`.trim() : '';
};
const shows = (text: string) => eventually(() => expect(shown()).toBe(text));

export function contract(framework: string, mount: Mount): void {
  const show = async (id: string): Promise<Mounted> => {
    const place = host.appendChild(document.createElement('div'));
    const component = await mount(place, id);
    mounted.push(component);
    return component;
  };
  const leave = async (component: Mounted) => {
    mounted.splice(mounted.indexOf(component), 1);
    component.unmount();
    await settle();
  };

  describe(framework, () => {
    eachWithItsOwn();
    beforeEach(() => {
      host = document.body.appendChild(document.createElement('div'));
      mounted = [];
      server.put('job/42', { progress: 40 });
      server.put('job/43', { progress: 43 });
    });
    afterEach(() => {
      for (const component of mounted.splice(0)) component.unmount();
      host.remove();
    });

    test('joins, then follows', async () => {
      await show('42');
      expect(shown()).toBe('joining');
      await shows('live 40');
      server.put('job/42', { progress: 60 });
      await shows('live 60');
    });

    test('shows at once what is known (R32)', async () => {
      const stop = client.entity('job/42').subscribe(() => {});
      await eventually(() => expect(client.entity('job/42').getSnapshot().sync).toBe('live'));
      await show('42');
      expect(shown()).toBe('live 40');
      stop();
    });

    test('does not render again when nothing changed (R33)', async () => {
      let reads = 0;
      server.entities.set('job/42', { seq: 0, status: 'running', data: null });
      const stop = client.entity('job/42').subscribe(() => {});
      await show('42');
      await shows('live');
      // The state is the very object that a snapshot from elsewhere would bring: it counts who reads it.
      const counting = {
        get progress() {
          return (++reads, 70);
        },
      };
      vi.spyOn(JSON, 'parse').mockReturnValueOnce({
        ...{ type: 'event', entity: 'job/42', epoch: 'E', seq: 1, status: 'running' },
        data: counting,
      });
      server.socket!.raw('{}');
      await shows('live 70');
      const before = reads;
      expect(before).toBeGreaterThan(0);
      server.socket!.event(1, { progress: 99 });
      server.socket!.say({ type: 'event', entity: 'job/42', epoch: 'E', seq: 1, data: { progress: 99 } });
      server.socket!.say({ type: 'heartbeat', heads: [['job/42', 'E', 1]] });
      await settle();
      expect(shown()).toBe('live 70');
      expect(reads).toBe(before);
      stop();
    });

    test('keeps what is final through a disconnect (R8)', async () => {
      await show('42');
      await shows('live 40');
      server.put('job/42', { progress: 100 }, 'completed');
      await shows('final 100');
      server.socket!.end(1006);
      await settle();
      expect(shown()).toBe('final 100');
    });

    test('shows that it is stale while disconnected, and comes back', async () => {
      await show('42');
      await shows('live 40');
      server.socket!.end(1006);
      await shows('stale 40');
      server.entities.set('job/42', { seq: 2, status: 'running', data: { progress: 50 } });
      client.reconnect();
      await shows('live 50');
    });

    test('shares one subscription, and the last one out ends it (R31)', async () => {
      const [first, second] = [await show('42'), await show('42')];
      await shows('live 40');
      expect(shown(1)).toBe('live 40');
      expect(server.joins.get('job/42')).toBe(1);
      await leave(first);
      expect([...server.followed]).toEqual(['job/42']);
      server.put('job/42', { progress: 41 });
      await shows('live 41');
      await leave(second);
      await eventually(() => expect([...server.followed]).toEqual([]));
      server.put('job/42', { progress: 42 });
      await settle();
      expect(host.querySelector('p')).toBeNull();
    });

    test('comes again after it was gone', async () => {
      await leave(await show('42'));
      server.put('job/42', { progress: 44 });
      await show('42');
      await shows('live 44');
    });

    test('shows why it is refused, and asks no more', async () => {
      await show('42');
      await shows('live 40');
      server.socket!.say({ type: 'error', code: 'forbidden', message: 'not yours', entity: 'job/42' });
      await shows('failed 40');
      await settle();
      expect(takeErrors()).toMatchObject([{ code: 'forbidden', entity: 'job/42' }]);
      expect(server.joins.get('job/42')).toBe(1);
    });

    test('is left as it is when the client is closed (R34)', async () => {
      await show('42');
      await shows('live 40');
      client.close();
      await settle();
      expect(shown()).toBe('live 40');
      server.followed.clear();
    });

    test('follows another one instead', async () => {
      const component = await show('42');
      await shows('live 40');
      if (!component.change) return expect(framework).toMatch(/^Angular(?! by an id)/);
      component.change('43');
      await shows('live 43');
      await eventually(() => expect([...server.followed]).toEqual(['job/43']));
    });
  });
}
