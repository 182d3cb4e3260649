// The storm as a picture: dials per piece of time after the gateway came back.
const WIDTH = 860;
const HEIGHT = 380;
const LEFT = 64;
const RIGHT = 24;
const TOP = 76;
const BOTTOM = 48;

/** How much time is drawn, in seconds. */
const SHOWN_S = 25;

const COLOURS = ['#0f766e', '#b45309', '#7c3aed', '#c2222b'];

const escape = (text) => text.replace(/[&<]/g, (sign) => (sign === '&' ? '&amp;' : '&lt;'));

/** `storms`: `{name, shares}` with the share of the clients that dialed in each piece after the return, in percent. */
export function draw(storms, { clients, away, piece, gate }) {
  const pieces = (SHOWN_S * 1_000) / piece;
  const highest = Math.max(gate, ...storms.flatMap(({ shares }) => shares.slice(0, pieces)));
  const top = [2.5, 4, 5, 8, 10, 16, 20, 25, 40, 50, 100].find((round) => round >= highest) ?? 100;
  const x = (index) => LEFT + (index / pieces) * (WIDTH - LEFT - RIGHT);
  const y = (share) => HEIGHT - BOTTOM - (share / top) * (HEIGHT - TOP - BOTTOM);
  const round = (value) => value.toFixed(1);
  const parts = [];
  for (let i = 0; i <= 4; i++) {
    const share = (top / 4) * i;
    parts.push(
      `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${round(y(share))}" y2="${round(y(share))}" stroke="#e2e6eb"/>`,
      `<text x="${LEFT - 8}" y="${round(y(share) + 4)}" text-anchor="end">${share} %</text>`,
    );
  }
  for (let second = 0; second <= SHOWN_S; second += 5) {
    const at = round(x((second * 1_000) / piece));
    parts.push(`<text x="${at}" y="${HEIGHT - BOTTOM + 20}" text-anchor="middle">${second} s</text>`);
  }
  const limit = round(y(gate));
  parts.push(
    `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${limit}" y2="${limit}" stroke="#10151d" stroke-dasharray="5 4"/>`,
    `<text x="${WIDTH - RIGHT}" y="${round(y(gate) - 6)}" text-anchor="end">at most ${gate} %</text>`,
  );
  storms.forEach(({ name, shares }, index) => {
    const colour = COLOURS[index % COLOURS.length];
    const line = shares.slice(0, pieces).map((share, at) => `${round(x(at + 0.5))},${round(y(share))}`);
    parts.push(
      `<polyline points="${line.join(' ')}" fill="none" stroke="${colour}" stroke-width="${index === 0 ? 2.5 : 1.3}"/>`,
      `<rect x="${LEFT + index * 190}" y="46" width="14" height="4" fill="${colour}"/>`,
      `<text x="${LEFT + index * 190 + 20}" y="52">${escape(name)}</text>`,
    );
  });
  const title = `Dials per ${piece} ms after the gateway came back, in percent of ${clients.toLocaleString('en')} clients`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${title}">
<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>
<g font-family="system-ui, sans-serif" font-size="12" fill="#4d5766">
<text x="${LEFT}" y="26" font-size="15" font-weight="600" fill="#10151d">${title}</text>
${parts.join('\n')}
<text x="${WIDTH - RIGHT}" y="${HEIGHT - 10}" text-anchor="end">it was away for ${away / 1_000} s</text>
</g>
</svg>
`;
}
