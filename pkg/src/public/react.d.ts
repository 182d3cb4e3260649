/// <reference lib="esnext.disposable" />
/**
 * Hooks for React 18 and newer.
 *
 * @module inorder/react
 */
import type { ClientStatus, Entity, EntitySnapshot, Store, Topic } from './api.js';

/**
 * The current snapshot of an entity; the component renders again when it changes.
 *
 * The entity may be made while rendering: `useEntity(client.entity(`job/${id}`))`. It is followed as long as the
 * component is mounted. A server renders `getServerSnapshot()`.
 */
export declare function useEntity<S>(entity: Entity<S, any>): EntitySnapshot<S>;

/**
 * What `select` makes of an entity's snapshot; the component renders again only when that changes.
 *
 * A selection that is equal to the one before, by `isEqual` (default: `Object.is`), keeps its identity. `select` must
 * be pure; it may be written in place.
 */
export declare function useEntity<S, U>(
  entity: Entity<S, any>,
  select: (snapshot: EntitySnapshot<S>) => U,
  isEqual?: (a: U, b: U) => boolean,
): U;

/** The snapshots of a topic's members by name; the component renders again when one changes. */
export declare function useTopic<S>(topic: Topic<S>): ReadonlyMap<string, EntitySnapshot<S>>;

/** What `select` makes of a topic's members, as with {@link useEntity}. */
export declare function useTopic<S, U>(
  topic: Topic<S>,
  select: (members: ReadonlyMap<string, EntitySnapshot<S>>) => U,
  isEqual?: (a: U, b: U) => boolean,
): U;

/** The state of the connection, and when the next attempt is due. */
export declare function useStatus(client: { readonly status: Store<ClientStatus> }): ClientStatus;

/** What `select` makes of the connection's state, as with {@link useEntity}. */
export declare function useStatus<U>(
  client: { readonly status: Store<ClientStatus> },
  select: (status: ClientStatus) => U,
  isEqual?: (a: U, b: U) => boolean,
): U;
