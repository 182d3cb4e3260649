// Section 1: how many events per second, against the floor and the peers.
import { bundle, inPage, launch, serve } from '../browser.mjs';
import { median, THROUGHPUT } from '../gates.mjs';
import { table } from '../table.mjs';
import { WORKLOADS } from './workloads.mjs';

const NAMES = {
  parse: 'parse only',
  parseTurns: 'parse, microtask',
  floor: 'floor',
  floorWithIds: 'floor, ids',
  sync: 'inorder',
  microtask: 'inorder microtask',
  centrifuge: 'centrifuge',
  azure: 'web-pubsub',
  reconnecting: 'reconnecting-ws',
};

/** Measures and prints; returns all numbers and whether the gates hold. */
export async function throughput({ only, runs, passes }, about) {
  await bundle({ throughput: 'throughput/page.mjs' });
  const { server, address } = await serve();
  const names = Object.keys(WORKLOADS).filter((name) => !only || name.startsWith(only));
  const measured = Object.fromEntries(names.map((name) => [name, []]));
  try {
    // Runs outside, workloads inside: the runs of one workload are minutes apart.
    for (let run = 1; run <= runs; run++) {
      for (const name of names) {
        process.stderr.write(`\r  run ${run} of ${runs}: ${name.padEnd(20)}`);
        const browser = await launch();
        about.versions.Chromium = browser.version();
        try {
          const results = {};
          for (const only of pages(WORKLOADS[name].contenders)) {
            const measure = (page) =>
              page.evaluate(([name, options]) => globalThis.measure(name, options), [name, { passes, only }]);
            Object.assign(results, await inPage(browser, `${address}/throughput`, measure));
          }
          measured[name].push(results);
        } finally {
          await browser.close();
        }
      }
    }
  } finally {
    process.stderr.write('\n');
    server.close();
  }
  return report(measured, { runs, passes });
}

/**
 * Who shares a page. An application has one client of inorder; two in one page share its code, and what the compilers of
 * the browser learn of one holds back the other.
 */
function pages(contenders) {
  const isApart = (key) => key === 'microtask' || key === 'parseTurns';
  return [contenders.filter((key) => !isApart(key)), contenders.filter(isApart)];
}

function report(measured, { runs, passes }) {
  const wrong = [];
  const rows = [];
  const ratios = {};
  for (const [workload, results] of Object.entries(measured)) {
    const row = { workload };
    for (const key of Object.keys(results[0])) {
      row[key] = Math.round(median(results.map((result) => result[key].best)));
      const each = results.map((result) => result[key].best / result.sync.best);
      if (key !== 'sync')
        (ratios[workload] ??= {})[key] = { median: median(each), from: Math.min(...each), to: Math.max(...each) };
      for (const result of results) {
        if (result[key].wrong) wrong.push(`${workload}: ${key}: ${result[key].wrong}`);
      }
    }
    for (const { floor, sync } of results) {
      if (floor.checksum !== sync.checksum || floor.delivered !== sync.delivered) {
        wrong.push(`${workload}: floor and inorder did not deliver the same in the same order`);
      }
    }
    rows.push(row);
  }
  const columns = Object.keys(NAMES).filter((key) => rows.some((row) => row[key] !== undefined));
  console.log(
    `\nTime per event in ns, median of ${runs} runs (minimum of ${passes} passes per chunk, mean of the chunks)\n`,
  );
  console.log(
    table(
      ['workload', ...columns.map((key) => NAMES[key])],
      rows.map((row) => [row.workload, ...columns.map((key) => row[key])]),
    ),
  );

  const gates = THROUGHPUT.filter(({ workload, over }) => ratios[workload]?.[over]).map((gate) => {
    const ratio = ratios[gate.workload][gate.over];
    return { ...gate, ...ratio, holds: ratio.median >= gate.gate };
  });
  console.log("\nThroughput of inorder (`flush: 'sync'`) over the other, median of the runs and spread\n");
  console.log(
    table(
      ['workload', 'over', 'ratio', 'spread', 'gate', 'goal', ''],
      gates.map(({ workload, over, median, from, to, gate, goal, holds }) => [
        workload,
        NAMES[over],
        median.toFixed(2),
        `${from.toFixed(2)}–${to.toFixed(2)}`,
        gate.toFixed(2),
        goal.toFixed(2),
        holds ? (median >= goal ? 'goal' : 'holds') : 'FAILS',
      ]),
    ),
  );
  for (const line of new Set(wrong)) console.log(`WRONG ${line}`);
  return {
    holds: wrong.length === 0 && gates.every(({ holds }) => holds),
    runs,
    passes,
    gates,
    ratios,
    wrong,
    measured,
  };
}
