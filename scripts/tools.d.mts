/** Arguments for Chromium in tests. */
export const chromiumFlags: readonly string[];
