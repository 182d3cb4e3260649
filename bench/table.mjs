/** A table in Markdown, aligned for the terminal: the first column to the left, numbers to the right. */
export function table(head, rows) {
  const text = [head, ...rows].map((row) => row.map((cell) => (cell === undefined ? '' : String(cell))));
  const width = head.map((_, at) => Math.max(3, ...text.map((row) => row[at].length)));
  const isNumber = head.map((_, at) => text.slice(1).every((row) => row[at] === '' || /^[-−~]?[\d.,]+/.test(row[at])));
  const line = (row) =>
    `| ${row.map((cell, at) => (isNumber[at] ? cell.padStart(width[at]) : cell.padEnd(width[at]))).join(' | ')} |`;
  const rule = `| ${width.map((size, at) => (isNumber[at] ? `${'-'.repeat(size - 1)}:` : '-'.repeat(size))).join(' | ')} |`;
  return [line(text[0]), rule, ...text.slice(1).map(line)].join('\n');
}
