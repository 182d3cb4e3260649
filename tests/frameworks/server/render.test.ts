// Where pages are rendered, a store shows that nothing is known yet, and nobody is followed.
import '@angular/compiler';
import { JobAnywhere } from 'recipe:Angular/job-anywhere.ts';
import { Job as ReactJob } from 'recipe:React/Job.tsx';
import { Overview as ReactOverview } from 'recipe:React/Overview.tsx';
import { Job as SolidJob } from 'recipe:Solid/Job.tsx';
import SvelteJob from 'recipe:Svelte/Job.svelte';
import VueJob from 'recipe:Vue/Job.vue';
import { bootstrapApplication, type BootstrapContext } from '@angular/platform-browser';
import { provideServerRendering, renderApplication } from '@angular/platform-server';
import { createElement } from 'react';
import { renderToString as renderReact } from 'react-dom/server';
import { createComponent } from 'solid-js';
import { renderToString as renderSolid } from 'solid-js/web';
import { render as renderSvelte } from 'svelte/server';
import { describe, expect, test } from 'vitest';
import { createSSRApp } from 'vue';
import { renderToString as renderVue } from 'vue/server-renderer';
import { client, eachWithItsOwn, server, settle } from '../client.js';

const props = { id: '42' };

/** The page without what frameworks add for themselves. */
const plain = (html: string) => html.replace(/<!--.*?-->/g, '').replace(/ data-[\w-]+(="[^"]*")?/g, '');

/** What Angular makes of the component's element in a page. */
async function renderAngular(): Promise<string> {
  const bootstrap = (context: BootstrapContext) =>
    bootstrapApplication(JobAnywhere, { providers: [provideServerRendering()] }, context);
  const document = '<html><head></head><body><app-job-anywhere></app-job-anywhere></body></html>';
  const page = await renderApplication(bootstrap, { document, url: 'http://page.test/', allowedHosts: ['page.test'] });
  return /<app-job-anywhere[^>]*>(.*)<\/app-job-anywhere>/s.exec(page)![1]!;
}

describe('on a server', () => {
  eachWithItsOwn();

  const JOINING = /^<p class="\s*joining\s*"><\/p>$/;

  // Svelte subscribes while it renders and leaves again: within one task that is nothing.
  test.each([
    ['React', () => renderReact(createElement(ReactJob, props))],
    ['Svelte', () => renderSvelte(SvelteJob, { props }).body],
    ['Vue', () => renderVue(createSSRApp(VueJob, props))],
    ['Solid', () => renderSolid(() => createComponent(SolidJob, props))],
    ['Angular', renderAngular],
  ])('%s renders what is known there, and opens nothing', async (_, render) => {
    expect(plain(await render())).toMatch(JOINING);
    await settle();
    expect(server.sockets).toHaveLength(0);
    expect(client.status.getSnapshot()).toEqual({ connection: 'idle' });
  });

  test('React renders no members and no connection', async () => {
    expect(renderReact(createElement(ReactOverview))).toBe('<p class="idle"></p>');
  });
});
