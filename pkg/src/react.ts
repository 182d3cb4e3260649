import { useEffect, useMemo, useRef, useSyncExternalStore } from 'react';
import type { View } from './entity.js';
import type { Client, ClientStatus, Entity, EntitySnapshot, Store, Topic } from './public/api.js';

type Select<T, U> = (value: T) => U;
type IsEqual<U> = (a: U, b: U) => boolean;

const whole = (value: any): any => value;

/** What `select` makes of a store's value; the same object as long as `isEqual` says so. */
function useSelection<T, U>(store: Store<T>, select: Select<T, U> = whole, isEqual: IsEqual<U> = Object.is): U {
  const shown = useRef<{ readonly selection: U } | undefined>(undefined);
  const [get, getServer] = useMemo(() => {
    let last: { readonly value: T; readonly selection: U } | undefined;
    const read = (value: T): U => {
      if (last && last.value === value) return last.selection;
      // A new `select`, such as one written in place, has selected nothing yet: what is on the screen counts.
      const before = last ?? shown.current;
      const fresh = select(value);
      const selection = before && isEqual(before.selection, fresh) ? before.selection : fresh;
      last = { value, selection };
      return selection;
    };
    return [() => read(store.getSnapshot()), () => read(store.getServerSnapshot())] as const;
  }, [store, select, isEqual]);
  const selection = useSyncExternalStore(store.subscribe, get, getServer);
  useEffect(() => {
    shown.current = { selection };
  });
  return selection;
}

/**
 * The first of equal views. `client.entity()` makes one at each call while nobody follows the entity: a component that
 * calls it while it renders would subscribe anew each time, for ever if it is refused.
 */
function useFirst<V>(view: V): V {
  const { client, name, paramsText } = view as View<unknown>;
  return useMemo(() => view, [client, name, paramsText]);
}

/** The current snapshot of an entity, or what `select` makes of it. */
export function useEntity<S, U = EntitySnapshot<S>>(
  entity: Entity<S, any>,
  select?: Select<EntitySnapshot<S>, U>,
  isEqual?: IsEqual<U>,
): U {
  return useSelection(useFirst(entity), select, isEqual);
}

/** The current members of a topic, or what `select` makes of them. */
export function useTopic<S, U = ReadonlyMap<string, EntitySnapshot<S>>>(
  topic: Topic<S>,
  select?: Select<ReadonlyMap<string, EntitySnapshot<S>>, U>,
  isEqual?: IsEqual<U>,
): U {
  return useSelection(useFirst(topic), select, isEqual);
}

/** The state of a client's connection, or what `select` makes of it. */
export function useStatus<U = ClientStatus>(
  client: Pick<Client, 'status'>,
  select?: Select<ClientStatus, U>,
  isEqual?: IsEqual<U>,
): U {
  return useSelection(client.status, select, isEqual);
}
