// Columns of the tables of tasks, and the bar that shows where a step's time goes.

import { PART_TITLES, PARTS } from "./derived.js";
import { element, setAttribute, setText } from "./dom.js";
import { bytes, bytesPerSecond, cores, figure, known, percent, rate, UNKNOWN, whole } from "./format.js";
import { taskColumn } from "./table.js";

const number = (title, value, text, help) => ({ title, value, text: (row) => text(value(row)), numeric: true, help });

export const stateColumn = {
  title: "State",
  value: (row) => row.state,
  draw(cell, row) {
    const badge = cell.firstChild ?? cell.appendChild(element("span", { class: "state" }));
    setAttribute(badge, "data-state", row.slow ? "slow" : row.state);
    setText(badge, row.slow ? `${row.state}, slow` : row.state);
  },
};

const part = (name) => number(PART_TITLES[name], (row) => row.shares[name], percent);

export const columns = {
  task: taskColumn,
  state: stateColumn,
  step: number("Step", (row) => row.step, whole),
  loss: number("Loss", (row) => row.loss, figure),
  rate: number("Examples/s", (row) => row.rate, rate),
  ofMedian: number("Of median", (row) => row.ofMedian, percent, "Examples/s, as a share of the median of all tasks"),
  restarts: number("Restarts", (row) => row.restarts, (value) => (value === 0 ? "" : whole(value)), "Of its child alone"),
  cpu: number("CPU", (row) => row.cpu, (value) => (known(value) ? `${cores(value)} cores` : UNKNOWN)),
  memory: number("Memory", (row) => row.memory, bytes),
  gpu: number("GPU", (row) => row.gpu, percent),
  gpuMemory: number("GPU memory", (row) => row.gpuMemory, bytes),
  received: number("Received", (row) => row.received, bytesPerSecond),
  sent: number("Sent", (row) => row.sent, bytesPerSecond),
  input: part("input"),
  compute: part("compute"),
  wait: part("wait"),
  network: part("network"),
  between: part("between"),
  why: { title: "Why", value: (row) => row.slow?.cause ?? null, text: (row) => row.slow?.cause ?? "" },
  split: {
    title: "A step's time",
    value: (row) => (known(row.shares.wait) ? 1 - row.shares.wait : null),
    draw: (cell, row) => splitBar(cell, row.shares),
  },
};

/** A bar of the shares of a step's time. The numbers are in columns beside it. */
export function splitBar(cell, shares) {
  const bar = cell.firstChild ?? cell.appendChild(element("div", { class: "split", role: "img" },
    ...PARTS.map((name) => element("i", { class: `part-${name}` }))));
  const text = PARTS.filter((name) => known(shares[name])).map((name) => `${PART_TITLES[name]} ${percent(shares[name])}`).join(", ");
  setAttribute(bar, "aria-label", text || "unknown");
  setAttribute(bar, "title", text || null);
  PARTS.forEach((name, at) => {
    const width = `${known(shares[name]) ? Math.min(1, Math.max(0, shares[name])) * 100 : 0}%`;
    if (bar.children[at].style.width !== width) bar.children[at].style.width = width;
  });
}

/** The meaning of the bar's colours. */
export function partsLegend() {
  return element("ul", { class: "legend" }, ...PARTS.map((name) => {
    const swatch = element("i", { class: "swatch", "aria-hidden": "true" });
    swatch.style.setProperty("--colour", `var(--part-${name})`);
    return element("li", {}, swatch, PART_TITLES[name]);
  }));
}

/** A field that filters tasks by name or state. */
export function taskFilter(changed) {
  const input = element("input", { type: "search", placeholder: "worker:1, lost …", autocomplete: "off", spellcheck: "false", input: changed });
  return { root: element("label", {}, "Filter tasks ", input), get text() { return input.value; } };
}
