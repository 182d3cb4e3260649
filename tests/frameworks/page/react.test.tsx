// The hooks, and the recipes with them. Run with React 18 and 19.
import { type ReactNode, StrictMode, Suspense, version } from 'react';
import { flushSync, version as rendererVersion } from 'react-dom';
import { createRoot, hydrateRoot, type Root } from 'react-dom/client';
import { renderToString } from 'react-dom/server';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Client, EntitySnapshot } from '../../../pkg/dist/index.js';
import { useEntity, useStatus } from '../../../pkg/dist/react.js';
import { client, eachWithItsOwn, eventually, type Job as State, server, settle, takeErrors } from '../client.js';
import { contract } from './contract.js';
import { Job } from 'recipe:React/Job.tsx';
import { Overview } from 'recipe:React/Overview.tsx';

const inMode = (strict: boolean, node: ReactNode): ReactNode => (strict ? <StrictMode>{node}</StrictMode> : node);

test('is the React that the project says', () => {
  const { REACT } = process.env;
  expect([version, rendererVersion].map((text) => text.split('.')[0])).toEqual([REACT, REACT]);
});

for (const strict of [false, true]) {
  contract(strict ? 'React in StrictMode' : 'React', (place, id) => {
    const root = createRoot(place);
    const show = (id: string) => flushSync(() => root.render(inMode(strict, <Job id={id} />)));
    show(id);
    return { unmount: () => root.unmount(), change: show };
  });
}

describe('React', () => {
  eachWithItsOwn();
  let place: HTMLElement;
  let root: Root;
  /** What the components under test rendered. */
  let rendered: unknown[];
  beforeEach(() => {
    place = document.body.appendChild(document.createElement('div'));
    root = createRoot(place);
    rendered = [];
    server.put('job/42', { progress: 40 });
    server.put('job/43', { progress: 43 });
    server.put('topic/jobs', ['job/42']);
  });
  afterEach(() => {
    root.unmount();
    place.remove();
  });
  const render = (node: ReactNode, strict = false) => flushSync(() => root.render(inMode(strict, node)));
  const live = () => eventually(() => expect(client.entity('job/42').getSnapshot().sync).toBe('live'));
  const more = async () => {
    const before = rendered.length;
    await settle();
    return rendered.slice(before);
  };

  test('renders again only when the selection changes', async () => {
    function Status() {
      rendered.push(useEntity(client.entity('job/42'), (job) => job.status));
      return null;
    }
    render(<Status />);
    await live();
    await settle();
    expect(rendered).toEqual([undefined, 'running']);
    server.put('job/42', { progress: 60 });
    expect(await more()).toEqual([]);
    server.put('job/42', { progress: 99 }, 'closing');
    expect(await more()).toEqual(['closing']);
  });

  test('a selection that is equal keeps its identity, with a new select too', async () => {
    const same = (a: { done: boolean }, b: { done: boolean }) => a.done === b.done;
    function Done({ at }: { at: number }) {
      rendered.push(useEntity(client.entity('job/42'), (job) => ({ done: (job.state?.progress ?? 0) >= at }), same));
      return null;
    }
    render(<Done at={90} />, true);
    await live();
    await settle();
    server.put('job/42', { progress: 50 });
    await settle();
    render(<Done at={80} />, true);
    expect(rendered.length).toBeGreaterThan(2);
    expect(new Set(rendered.slice(1)).size).toBe(1);
    expect(rendered.at(-1)).toEqual({ done: false });
    render(<Done at={50} />, true);
    expect(rendered.at(-1)).toEqual({ done: true });
  });

  test('a select that makes a new object each time does not render for ever', async () => {
    function Fresh() {
      rendered.push(useEntity(client.entity('job/42'), (job) => ({ ...job })));
      return null;
    }
    render(<Fresh />);
    await live();
    await settle();
    expect(rendered).toHaveLength(2);
  });

  test('without a selection, isEqual alone decides', async () => {
    const sameSync = (a: EntitySnapshot<State>, b: EntitySnapshot<State>) => a.sync === b.sync;
    function Job() {
      rendered.push(useEntity(client.entity('job/42'), (job) => job, sameSync).state?.progress);
      return null;
    }
    render(<Job />);
    await live();
    await settle();
    server.put('job/42', { progress: 60 });
    expect(await more()).toEqual([]);
    expect(rendered).toEqual([undefined, 40]);
  });

  for (const strict of [false, true]) {
    const mode = strict ? ', in StrictMode' : '';

    test(`what is refused is shown, and not tried for ever${mode}`, async () => {
      function Pet() {
        const { sync, error } = useEntity((client as Client<any>).entity('pet/1'));
        rendered.push(`${sync} ${error?.code}`);
        return null;
      }
      render(<Pet />, strict);
      await eventually(() => expect(rendered).toContain('failed unknown_model'));
      expect(await more()).toEqual([]);
      render(<Pet />, strict);
      expect(await more()).toEqual([]);
      expect(rendered.at(-1)).toBe('failed unknown_model');
      // Each `subscribe` is refused: StrictMode does it twice.
      const errors = takeErrors();
      expect(errors.length).toBeGreaterThan(0);
      expect(errors.length).toBeLessThanOrEqual(strict ? 2 : 1);
      for (const error of errors) expect(error).toMatchObject({ code: 'unknown_model', entity: 'pet/1' });
    });

    test(`so are other params than those that others use${mode}`, async () => {
      const stop = client.entity('job/42').subscribe(() => {});
      await live();
      function Detailed() {
        const { sync, error } = useEntity(client.entity('job/42', { params: { detail: 'full' } }));
        rendered.push(`${sync} ${error?.code}`);
        return null;
      }
      render(<Detailed />, strict);
      await eventually(() => expect(rendered).toContain('failed params_conflict'));
      expect(await more()).toEqual([]);
      expect(takeErrors().map(({ code }) => code)).toContain('params_conflict');
      stop();
    });

    test(`one component or many, one subscription${mode}`, async () => {
      render(
        [1, 2, 3].map((key) => <Job key={key} id="42" />),
        strict,
      );
      await eventually(() => expect(place.textContent).toBe('404040'));
      expect(server.joins.get('job/42')).toBe(1);
    });
  }

  test('after close, what was never followed is shown as failed', async () => {
    client.close();
    function Late() {
      const { sync, error } = useEntity(client.entity('job/42'));
      rendered.push(`${sync} ${error?.code}`);
      return null;
    }
    render(<Late />);
    await eventually(() => expect(rendered).toContain('failed closed'));
    expect(await more()).toEqual([]);
    // After close() nothing is called, not even listeners of errors.
    expect(takeErrors().filter(({ code }) => code !== 'closed')).toEqual([]);
  });

  test('a rendering that is thrown away follows nothing', async () => {
    const never = new Promise<never>(() => {});
    const Waits = () => {
      throw never;
    };
    render(
      <Suspense>
        <Job id="42" />
        <Waits />
      </Suspense>,
    );
    await settle();
    expect(server.sockets).toHaveLength(0);
    expect(server.joins.size).toBe(0);
  });

  test('a topic and the status, as on the page', async () => {
    render(<Overview />, true);
    await eventually(() => expect(place.innerHTML).toBe('<p class="live">job/42</p>'));
    server.put('topic/jobs', { add: ['job/43'] });
    await eventually(() => expect(place.innerHTML).toBe('<p class="live">job/42, job/43</p>'));
  });

  test('the status says when the next attempt is due', async () => {
    function Connection() {
      const { connection, retryAt } = useStatus(client);
      rendered.push(connection);
      return retryAt ? 'waits' : null;
    }
    client.connect();
    render(<Connection />);
    await eventually(() => expect(rendered.at(-1)).toBe('live'));
    server.socket!.end(1006);
    await eventually(() => expect(place.textContent).toBe('waits'));
    client.reconnect();
    await eventually(() => expect(rendered.at(-1)).toBe('live'));
  });

  test('takes over what a server rendered, without a warning', async () => {
    const html = renderToString(<Job id="42" />);
    expect(html).toBe('<p class="joining"></p>');
    const stop = client.entity('job/42').subscribe(() => {});
    await live();
    const from = document.body.appendChild(document.createElement('div'));
    from.innerHTML = html;
    const element = from.firstElementChild;
    const hydrated = hydrateRoot(from, <Job id="42" />, { onRecoverableError: (error) => rendered.push(error) });
    await eventually(() => expect(from.innerHTML).toBe('<p class="live">40</p>'));
    expect(from.firstElementChild).toBe(element);
    expect(rendered).toEqual([]);
    hydrated.unmount();
    from.remove();
    stop();
  });
});
