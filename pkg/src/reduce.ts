/** Sets an own property; `__proto__` becomes inert data too, instead of calling its setter (R37). */
export function put(target: object, key: string, value: unknown): void {
  if (key === '__proto__') {
    Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });
  } else {
    (target as Record<string, unknown>)[key] = value;
  }
}

/** Whether `value` is what JSON calls an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Applies a JSON merge patch (RFC 7396) and returns the result; neither argument is changed. */
export function merge(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  // A spread copies own properties only, `__proto__` among them, and calls no setter.
  const merged: Record<string, unknown> = isObject(target) ? { ...target } : {};
  for (const key of Object.keys(patch)) {
    const value = patch[key];
    if (value === null) delete merged[key];
    else if (isObject(value)) put(merged, key, merge(Object.hasOwn(merged, key) ? merged[key] : undefined, value));
    else put(merged, key, value);
  }
  return merged;
}

/** Joins the parts of a snapshot in order: objects at the top level, arrays end to end (R17). */
export function join(parts: readonly unknown[]): unknown {
  if (parts.every(Array.isArray)) return parts.flat(1);
  const joined = {};
  for (const part of parts) {
    if (!isObject(part)) return undefined;
    for (const key of Object.keys(part)) put(joined, key, part[key]);
  }
  return joined;
}
