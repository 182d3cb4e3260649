// What is used of React, an optional peer that is not installed here. The frameworks' tests use the real one.
declare module 'react' {
  export function useEffect(effect: () => void): void;
  export function useMemo<T>(make: () => T, dependencies: readonly unknown[]): T;
  export function useRef<T>(initial: T): { current: T };
  export function useSyncExternalStore<T>(
    subscribe: (onStoreChange: () => void) => () => void,
    getSnapshot: () => T,
    getServerSnapshot: () => T,
  ): T;
}
