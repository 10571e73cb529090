// Lines of several tasks in one chart: each of a few, of many the spread, the median and the most urgent ones.

import { colourOf } from "./charts.js";
import { gridOf, matching, median, mostUrgent, onGrid, slowest, spread, taskRows } from "./derived.js";
import { figure, known, whole as count } from "./format.js";

const LINES = 8;
const PICKED = 4;

/** Grids and spreads are computed once for each change of the data. */
const cache = { revision: -1, found: new Map() };

function once(store, key, compute) {
  if (cache.revision !== store.revision) Object.assign(cache, { revision: store.revision, found: new Map() });
  if (!cache.found.has(key)) cache.found.set(key, compute());
  return cache.found.get(key);
}

/**
 * Lines of one figure of the tasks.
 * @param {Object} options {filter: of the tasks' names: only those that match, LINES of them; format: a value as text}
 * @returns {{grid, lines, count, summary}} `count`: of the tasks that have the figure and match.
 */
export function byTask(store, name, { filter = "", format = figure } = {}) {
  const grid = once(store, "grid", () => gridOf(store));
  const rows = once(store, "rows", () => taskRows(store).sort(mostUrgent));
  const having = once(store, `having ${name}`, () => rows.filter((row) => store.tasks.get(row.name)?.get(name).some(known)));
  const found = matching(having, filter);
  const all = found.length <= LINES;
  const picked = found.slice(0, all || filter ? LINES : PICKED);
  // A task keeps its colour while others come and go.
  const order = [...picked].sort((one, other) => one.name.localeCompare(other.name, "en", { numeric: true }));
  const lines = order.map((row, index) => ({
    label: row.name,
    values: once(store, `line ${name} ${row.name}`, () => onGrid(store.tasks.get(row.name), name, grid)),
    colour: colourOf(index),
    quiet: !row.slow,
  }));
  const summary = extremes(having);
  if (all && having.length < 3) return { grid, lines, count: found.length, summary };
  const { low, middle, high } = once(store, `spread ${name}`, () => spread(store, name, grid));
  const whole = all ? [] : [{ label: "all", values: middle, colour: "--band", fill: { low, high, label: `all ${count(having.length)} tasks` } }];
  return { grid, lines: [...whole, ...lines, { label: "median", values: middle, colour: "--muted", dash: true }], count: found.length, summary };

  /** "lowest now worker:1 0.4, median 0.87, highest worker:0 0.94". */
  function extremes(rows) {
    const now = rows.map((row) => [row.name, store.tasks.get(row.name).last(name)]).filter(([, value]) => known(value))
      .sort(([, one], [, other]) => one - other);
    if (now.length < 2) return null;
    const [low, high] = [now[0], now.at(-1)].map(([task, value]) => `${task} ${format(value)}`);
    return `now: lowest ${low}, median ${format(median(now.map(([, value]) => value)))}, highest ${high}`;
  }
}

export function examplesByTask(store) {
  const { grid, lines } = byTask(store, "examples_per_second");
  if (!lines.length) { // a job whose tasks have no figures of their own
    const values = store.history.get("examples_per_second");
    return { grid: store.history.time, lines: [{ label: "the job", values, colour: colourOf(0) }], summary: null };
  }
  return { grid, lines, summary: slowest(store, once(store, "rows", () => taskRows(store).sort(mostUrgent))) };
}
