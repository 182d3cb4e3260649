'use client';
import { createClient, model } from 'inorder';
import { useEntity } from 'inorder/react';

const url = () => new URLSearchParams(location.search).get('server');
const job = createClient({ url, models: { job: model() } }).entity('job/1');

export function Job() {
  const { seq, status } = useEntity(job);
  return <output>{seq === undefined ? 'waiting' : `${seq} ${status}`}</output>;
}
