/** Whether `value` is what JSON calls an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether `value` is a list of strings. */
export const isNames = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((name) => typeof name === 'string');

/**
 * Applies a JSON merge patch (RFC 7396) and returns the result; neither argument is changed.
 *
 * Spreads and `fromEntries` define own properties and call no setter, so `__proto__` is inert data here (R37).
 */
export function merge(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const old = isObject(target) ? target : {};
  const mergeOne = ([key, value]: [string, unknown]) => [key, merge(Object.hasOwn(old, key) && old[key], value)];
  const merged = { ...old, ...Object.fromEntries(Object.entries(patch).map(mergeOne)) };
  for (const key of Object.keys(patch)) if (patch[key] === null) delete merged[key];
  return merged;
}

/** Joins the parts of a snapshot in order: objects at the top level, arrays end to end (R17). */
export function join(parts: readonly unknown[]): unknown {
  if (parts.every(Array.isArray)) return parts.flat();
  return parts.every(isObject) ? Object.fromEntries(parts.flatMap(Object.entries)) : undefined;
}
