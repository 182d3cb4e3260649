// Angular compiles templates in the page here; an app compiles them before.
import '@angular/compiler';
import { Job } from 'recipe:Angular/job.ts';
import { JobById } from 'recipe:Angular/job-by-id.ts';
import { JobAnywhere } from 'recipe:Angular/job-anywhere.ts';
import { createComponent, type Type } from '@angular/core';
import { createApplication } from '@angular/platform-browser';
import { contract } from './contract.js';

const mount = (component: Type<any>) => async (hostElement: HTMLElement) => {
  const app = await createApplication();
  const made = createComponent(component, { environmentInjector: app.injector, hostElement });
  app.attachView(made.hostView);
  app.tick();
  return {
    unmount: () => app.destroy(),
    ...(made.instance.id && {
      change: (next: string) => made.instance.id.set(next),
    }),
  };
};

contract('Angular', mount(Job));
contract('Angular by an id', mount(JobById));
contract('Angular that is rendered on a server, too', mount(JobAnywhere));
