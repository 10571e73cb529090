// All tasks, the lost and slowest ones first.

import { columns, taskFilter } from "../columns.js";
import { matching, mostUrgent, taskRows } from "../derived.js";
import { element } from "../dom.js";
import { table } from "../table.js";

export function tasks({ store }) {
  const filter = taskFilter(() => update());
  const { task, state, step, rate, ofMedian, split, cpu, memory, gpu, received, sent, restarts } = columns;
  const rows = table("Tasks", [task, state, rate, ofMedian, split, step, cpu, memory, gpu, received, sent, restarts],
    { key: (row) => row.name, order: mostUrgent, empty: "No task matches." });

  const update = () => rows.update(matching(taskRows(store), filter.text));

  const intro = element("p", { class: "muted" }, "Lost and slow tasks come first. A column's title sorts by it.");
  return { root: [element("h2", {}, "Tasks"), intro, element("div", { class: "controls" }, filter.root), rows.root], update };
}
