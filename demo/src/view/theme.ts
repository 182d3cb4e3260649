import { part, setAttribute } from '../dom';

const SUN =
  '<circle cx="12" cy="12" r="4"/><path d="M12 2v3M12 19v3M2 12h3M19 12h3M4.9 4.9 7 7M17 17l2.1 2.1M4.9 19.1 7 17M17 7l2.1-2.1"/>';
const MOON = '<path d="M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z"/>';

/** The button that changes between light and dark. `onChange` is told when colours changed. */
export function mountTheme(onChange: () => void): void {
  const button = part('theme');
  const root = document.documentElement;
  const show = (): void => {
    const dark = root.dataset['theme'] === 'dark';
    button.innerHTML = `<svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true">${dark ? SUN : MOON}</svg>`;
    setAttribute(button, 'aria-label', dark ? 'Use light colours' : 'Use dark colours');
    setAttribute(button, 'title', dark ? 'Use light colours' : 'Use dark colours');
  };
  const use = (theme: string): void => {
    root.dataset['theme'] = theme;
    show();
    onChange();
  };
  button.addEventListener('click', () => {
    const theme = root.dataset['theme'] === 'dark' ? 'light' : 'dark';
    try {
      localStorage.setItem('theme', theme);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
    use(theme);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', ({ matches }) => {
    let chosen: string | null = null;
    try {
      chosen = localStorage.getItem('theme');
    } catch {
      // Nothing was chosen.
    }
    if (!chosen) use(matches ? 'dark' : 'light');
  });
  show();
}

/** A colour of the page by its name in the style sheet. */
export const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
