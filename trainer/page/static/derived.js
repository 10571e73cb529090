// What the page concludes from the document: rows of tasks, the median, the verdict.

import { byName, clock, duration, known, percent, taskList } from "./format.js";

/** Of a step's time. */
export const PARTS = ["input", "compute", "wait", "network", "between"];
export const PART_TITLES = {
  input: "input", compute: "compute", wait: "wait for others", network: "network", between: "between steps",
};

export const median = (values) => middleOf(ascending(values));

/** The known values; typed arrays sort numbers in a fraction of the time. */
const ascending = (values) => Float64Array.from(values.filter(known)).sort();

function middleOf(sorted) {
  if (!sorted.length) return null;
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** One row per task: its state from the status, its newest figures from its series. */
export function taskRows(store) {
  const states = Object.entries(store.status.tasks ?? {});
  const known_ = new Set(states.map(([name]) => name));
  for (const name of store.tasks.keys()) if (!known_.has(name)) states.push([name, {}]);
  const rows = states.map(([name, row]) => taskRow(store, name, row ?? {}));
  const middle = median(rows.map((row) => row.rate));
  for (const row of rows) {
    row.ofMedian = known(row.rate) && middle ? row.rate / middle : null;
    row.urgency = urgency(row);
  }
  return rows;
}

function taskRow(store, name, state) {
  const series = store.tasks.get(name);
  const last = (column) => series?.last(column) ?? null;
  return {
    name,
    state: state.state ?? "unknown",
    generation: state.generation ?? null,
    restarts: state.restarts ?? null,
    step: state.step ?? last("step"),
    loss: state.figures?.loss ?? null,
    rate: last("examples_per_second") ?? state.figures?.examples_per_second ?? null,
    shares: Object.fromEntries(PARTS.map((part) => [part, state.shares?.[part] ?? last(part)])),
    slow: store.straggler?.task === name ? store.straggler : null,
    cpu: last("cpu"),
    memory: last("memory"),
    gpu: last("gpu"),
    gpuMemory: last("gpu_memory"),
    received: last("received"),
    sent: last("sent"),
  };
}

/** The larger, the sooner somebody should look: lost tasks, the straggler, those that are not there, then the slowest. */
function urgency(row) {
  const state = { lost: 400, absent: 200, waiting: 100 }[row.state] ?? 0;
  const slowness = known(row.ofMedian) ? Math.max(0, 1 - row.ofMedian) * 10 : 0;
  const own = known(row.shares.wait) ? 1 - row.shares.wait : 0; // where all step together, the slowest waits least
  return state + (row.slow ? 300 : 0) + Math.round(slowness * 2) + Math.round(own * 5) / 5; // coarse: rows stay where they are
}

export const mostUrgent = (one, other) => other.urgency - one.urgency || byName(one.name, other.name);

/** The rows that a text finds: in the name, or as the state. */
export function matching(rows, text) {
  const sought = text.trim().toLowerCase();
  return sought ? rows.filter((row) => row.name.toLowerCase().includes(sought) || row.state === sought) : rows;
}

/** Values of a series on other points of time: the last one before each, null where the series has a gap. */
export function onGrid(series, name, grid) {
  const { time } = series;
  const values = series.get(name);
  if (time === grid) return values;
  let at = -1;
  return grid.map((when, index) => {
    while (at + 1 < time.length && time[at + 1] <= when + 0.5) at++;
    const spacing = Math.max(when - (grid[index - 1] ?? when), 10);
    return at >= 0 && when - time[at] <= 2.5 * spacing ? values[at] ?? null : null;
  });
}

/** The points of time that charts of several tasks share. */
export function gridOf(store) {
  let longest = store.history.time;
  for (const { time } of store.tasks.values()) {
    if (time.length > longest.length) longest = time;
  }
  return longest;
}

/** By point of the grid the lowest, median and highest value over all tasks. */
export function spread(store, name, grid) {
  const columns = [...store.tasks.values()].filter((series) => series.get(name).some(known))
    .map((series) => onGrid(series, name, grid));
  const low = [], middle = [], high = [];
  for (let at = 0; at < grid.length; at++) {
    const values = ascending(columns.map((column) => column[at]));
    low.push(values[0] ?? null);
    middle.push(middleOf(values));
    high.push(values.at(-1) ?? null);
  }
  return { low, middle, high };
}

const STOPPED = 143; // the exit code of a job that was stopped
const HALTED = { lost: "lost", absent: "not there yet" };

/**
 * What a reader should know first: {level: "bad" | "warn" | "good", text}, the most important first, never empty.
 */
export function verdict(store) {
  const { status } = store;
  if (!store.loaded) return [{ level: "warn", text: "Waiting for the chief's first answer." }];
  const said = [];
  const say = (level, text) => said.push({ level, text });
  if (store.outcome) say({ done: "good", stopped: "warn" }[store.outcome.kind] ?? "bad", String(store.outcome.headline));
  else if (status.end?.code === STOPPED) say("warn", `Stopped: ${status.end.message}`);
  else if (status.end && status.end.code !== 0) say("bad", `Failed with exit code ${status.end.code}: ${status.end.message}`);
  else if (store.over) say("good", status.end?.message ? `The job is done: ${status.end.message}` : "The job is done.");
  if (!store.over) {
    halts(store, say);
    if (status.ending) say("good", `All steps are made: ${status.ending}.`);
  }
  for (const warning of status.warnings ?? []) say("warn", String(warning));
  if (!said.length) say("good", begins(status) ? `${running(status)}; no step is made yet.` : `Nothing stands out: ${running(status)}.`);
  return said;
}

function halts(store, say) {
  const { status } = store;
  const hang = store.hangs.at(-1);
  const formed = store.marks.findLast((mark) => mark.kind === "formed");
  if (hang && !(formed?.time > hang.time)) say("bad", `Hangs since ${clock(hang.time)}: ${hang.text || "the stacks of all tasks are alike"}`);
  for (const [state, title] of Object.entries(HALTED)) {
    if (state === "absent" && status.waiting_for) continue; // which says why
    const names = Object.keys(status.tasks ?? {}).filter((name) => status.tasks[name]?.state === state);
    if (names.length) say(state === "lost" ? "bad" : "warn", `${names.length === 1 ? names[0] : `${names.length} tasks`}`
      + ` ${names.length === 1 ? "is" : "are"} ${title}${names.length > 1 ? `: ${taskList(names)}` : ""}.`);
  }
  if (status.waiting_for) say("warn", `Waits for ${status.waiting_for}`);
  if (status.stalled) say("warn", String(status.stalled));
  if (store.straggler) say("warn", store.straggler.text ?? `${store.straggler.task} is slow: ${store.straggler.cause}`);
}

/** Whether the children of this generation have made no step yet. */
const begins = ({ phase, figures }) => phase === "running" && !known(figures?.loss) && !known(figures?.examples_per_second);

function running(status) {
  const states = Object.values(status.tasks ?? {});
  const here = states.filter((row) => row?.state === "running" || row?.state === "done").length;
  return `${here} of ${states.length} tasks run`;
}

export function phaseOf(store) {
  const { status } = store;
  if (!store.loaded) return "loading";
  if (status.end) return status.end.code === 0 ? "done" : status.end.code === STOPPED ? "stopped" : "failed";
  if (status.phase === "running") return status.finishing ? "finishing" : status.evaluating ? "evaluating" : "running";
  return String(status.phase ?? "unknown");
}

/** One sentence on the connection, empty while all is well. */
export function connection(store) {
  if (!store.live) return `From files, as of ${clock(store.documentTime)}: the page does not change.`;
  if (store.silentSince === null) return "";
  const since = clock(store.silentSince + store.skew);
  if (store.over) return `The job is over and its chief has left (${since}). This is its last state.`;
  return `The chief does not answer since ${since}; the page tries again every few seconds.`;
}

/** One sentence on the slowest task. */
export function slowest(store, rows) {
  if (store.straggler) return store.straggler.text ?? `${store.straggler.task} is slow: ${store.straggler.cause}`;
  const rated = rows.filter((row) => known(row.ofMedian)).sort((one, other) => one.ofMedian - other.ofMedian);
  if (rated.length < 2) return "No task is slow.";
  return `No task is slow: the slowest, ${rated[0].name}, makes ${percent(rated[0].ofMedian)} of the median.`;
}

export const stepText = (status) => {
  const { step, steps } = status;
  return known(step) && known(steps) && steps > 0 ? Math.min(1, step / steps) : null;
};

export const paused = (mark) => (known(mark.seconds) ? duration(mark.seconds) : "-");
