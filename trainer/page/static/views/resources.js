// Processors, memory, GPUs and network by task.

import { timeChart } from "../charts.js";
import { columns, taskFilter } from "../columns.js";
import { byTask } from "../curves.js";
import { matching, mostUrgent, taskRows } from "../derived.js";
import { debounced, element, setText } from "../dom.js";
import { bytes, bytesPerSecond, cores, percent, whole } from "../format.js";
import { table } from "../table.js";

const CHARTS = [
  ["cpu", { title: "CPU, cores", format: cores, zero: true }],
  ["memory", { title: "Memory", format: bytes, zero: true }],
  ["gpu", { title: "GPU, use", format: percent, zero: true, top: 1 }],
  ["gpu_memory", { title: "GPU memory", format: bytes, zero: true }],
  ["received", { title: "Network, received", format: bytesPerSecond, zero: true }],
  ["sent", { title: "Network, sent", format: bytesPerSecond, zero: true }],
];

export function resources(page) {
  const { store } = page;
  const filter = taskFilter(debounced(150, () => update()));
  const note = element("p", { class: "muted" });
  const charts = CHARTS.map(([name, options]) => ({ name, options, chart: timeChart(page, options) }));
  const { task, cpu, memory, gpu, gpuMemory, received, sent } = columns;
  const rows = table("Resources by task, now", [task, cpu, memory, gpu, gpuMemory, received, sent],
    { key: (row) => row.name, order: mostUrgent, empty: "No task matches." });

  function update() {
    let most = 0;
    for (const { name, options, chart } of charts) {
      const { grid, lines, count, summary } = byTask(store, name, { filter: filter.text, format: options.format });
      chart.root.hidden = !count && name.startsWith("gpu");
      chart.update(grid, lines, store.marks, summary);
      most = Math.max(most, count);
    }
    const shown = `of ${whole(most)} tasks the charts show the range, the median and the most urgent few; a filter chooses others`;
    setText(note, most > 8 ? `${shown[0].toUpperCase()}${shown.slice(1)}.` : "");
    rows.update(matching(taskRows(store), filter.text));
  }

  return {
    root: [element("h2", {}, "Resources"), element("div", { class: "controls" }, filter.root), note,
      element("div", { class: "charts" }, ...charts.map(({ chart }) => chart.root)), element("h3", {}, "Now"), rows.root],
    charts: true,
    update,
  };
}
