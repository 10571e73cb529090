// Where the time of a step goes in each task: who is the straggler, and why.

import { columns, partsLegend, taskFilter } from "../columns.js";
import { matching, mostUrgent, slowest, taskRows } from "../derived.js";
import { element, setAttribute, setText } from "../dom.js";
import { known } from "../format.js";
import { table } from "../table.js";

const EXPLAINED = "Input: a step waits for its data. Compute: its gradients, its update, and all that is not known. Wait for "
  + "others: it has its gradients, and another task has not. Network: gradients are exchanged. Between steps: checkpoints, "
  + "validation, callbacks. The task that waits least for others is the one that they wait for.";

export function steps({ store }) {
  const filter = taskFilter(() => update());
  const answer = element("p", { class: "answer" });
  const { task, rate, ofMedian, split, input, compute, wait, network, between, why } = columns;
  const rows = table("Where a step's time goes, by task", [task, split, why, input, compute, wait, network, between, rate, ofMedian],
    { key: (row) => row.name, order: mostUrgent, empty: "No task has measured its steps yet." });

  function update() {
    const all = taskRows(store);
    setText(answer, slowest(store, all));
    setAttribute(answer, "data-level", store.straggler ? "warn" : "good");
    rows.update(matching(all.filter((row) => known(row.rate) || Object.values(row.shares).some(known)), filter.text));
  }

  return {
    root: [element("h2", {}, "Where a step's time goes"), answer, element("p", { class: "muted" }, EXPLAINED),
      element("div", { class: "controls" }, filter.root, partsLegend()), rows.root],
    update,
  };
}
