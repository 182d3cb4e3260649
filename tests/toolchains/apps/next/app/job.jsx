'use client';
import { useSyncExternalStore } from 'react';
import { createClient, model } from 'inorder';

const url = () => new URLSearchParams(location.search).get('server');
const job = createClient({ url, models: { job: model() } }).entity('job/1');

export function Job() {
  const { seq, status } = useSyncExternalStore(job.subscribe, job.getSnapshot, job.getServerSnapshot);
  return <output>{seq === undefined ? 'waiting' : `${seq} ${status}`}</output>;
}
