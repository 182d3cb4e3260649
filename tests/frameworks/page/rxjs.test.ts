import { progress } from 'recipe:RxJS/progress.ts';
import { combineLatest, from, type Observable, Subject, switchMap, take, takeUntil } from 'rxjs';
import { describe, expect, test } from 'vitest';
import { client, eachWithItsOwn, eventually, server, settle } from '../client.js';

const follow = <T>(source: Observable<T>) => {
  const values: T[] = [];
  const subscription = source.subscribe((value) => values.push(value));
  return { values, subscription };
};

describe('RxJS', () => {
  eachWithItsOwn();

  test('the recipe brings what is known, then each change', async () => {
    server.put('job/42', { progress: 40 });
    const { values, subscription } = follow(progress('42'));
    expect(values).toEqual([undefined]);
    await eventually(() => expect(values).toEqual([undefined, 40]));
    server.put('job/42', { progress: 50 });
    server.put('job/42', { progress: 50 });
    await eventually(() => expect(values).toEqual([undefined, 40, 50]));
    subscription.unsubscribe();
    server.put('job/42', { progress: 60 });
    await settle();
    expect(values).toHaveLength(3);
  });

  test('an operator takes a store as it is', async () => {
    server.put('job/42', { progress: 40 });
    server.put('job/43', { progress: 43 });
    const ids = new Subject<string>();
    const { values, subscription } = follow(ids.pipe(switchMap((id) => client.entity(`job/${id}`))));
    ids.next('42');
    await eventually(() => expect(values.at(-1)).toMatchObject({ sync: 'live', state: { progress: 40 } }));
    ids.next('43');
    await eventually(() => expect(values.at(-1)).toMatchObject({ sync: 'live', state: { progress: 43 } }));
    await eventually(() => expect([...server.followed]).toEqual(['job/43']));
    subscription.unsubscribe();
  });

  test('one who leaves during the first call has left', async () => {
    const { values } = follow(from(client.entity('job/42')).pipe(take(1)));
    expect(values).toMatchObject([{ sync: 'joining' }]);
    await settle();
    expect([...server.followed]).toEqual([]);
  });

  test('topics and the status are sources as well', async () => {
    server.put('job/42', { progress: 40 });
    server.put('topic/jobs', ['job/42']);
    const end = new Subject<void>();
    const { values } = follow(combineLatest([client.status, client.topic('jobs')]).pipe(takeUntil(end)));
    expect(values).toHaveLength(1);
    await eventually(() => {
      const [status, jobs] = values.at(-1)!;
      expect(status.connection).toBe('live');
      expect(jobs.get('job/42')?.state).toEqual({ progress: 40 });
    });
    end.next();
  });
});
