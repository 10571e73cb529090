// One task.

import { timeChart } from "../charts.js";
import { PART_TITLES, PARTS, taskRows } from "../derived.js";
import { byTask } from "../curves.js";
import { element, facts, setAttribute, setText } from "../dom.js";
import { bytes, bytesPerSecond, cores, percent, rate, UNKNOWN, whole } from "../format.js";
import { Series } from "../store.js";

const EMPTY = new Series({}, 1);

export function task(page) {
  const { store } = page;
  const title = element("h2");
  const answer = element("p", { class: "answer", "data-level": "warn" });
  const links = element("p", {}, element("a", { href: "#tasks" }, "All tasks"), " · ", element("a", {}, "Its log"));
  const summary = element("dl", { class: "facts" });
  const speed = timeChart(page, { title: "Examples/s against the median", format: rate, zero: true });
  const parts = timeChart(page, { title: "Where a step's time goes", format: percent, zero: true, top: 1 });
  const cpu = timeChart(page, { title: "CPU, cores", format: cores, zero: true });
  const memory = timeChart(page, { title: "Memory", format: bytes, zero: true });
  const gpu = timeChart(page, { title: "GPU, use", format: percent, zero: true, top: 1 });
  const network = timeChart(page, { title: "Network", format: bytesPerSecond, zero: true });

  function update(name) {
    const series = store.tasks.get(name) ?? EMPTY;
    const row = taskRows(store).find((each) => each.name === name);
    const marks = store.marks.filter((mark) => !mark.task || mark.task === name);
    setText(title, name);
    setAttribute(links.lastChild, "href", `#logs/${encodeURIComponent(name)}`);
    setText(answer, row?.slow?.text ?? "");
    answer.hidden = !row?.slow;
    facts(summary, row ? factsOf(row, store.status.tasks?.[name] ?? {}) : [["State", "there is no such task"]]);
    const rates = byTask(store, "examples_per_second");
    const middle = rates.lines.find((line) => line.label === "median");
    const own = byTask(store, "examples_per_second", { filter: name }).lines.find((line) => line.label === name);
    speed.update(rates.grid, [own, middle].filter(Boolean), marks);
    const line = (label, column, colour) => ({ label, values: series.get(column), colour });
    parts.update(series.time, PARTS.map((part) => line(PART_TITLES[part], part, `--part-${part}`)).filter(hasValues), marks);
    cpu.update(series.time, [line("CPU", "cpu", "--line-1")].filter(hasValues), marks);
    memory.update(series.time, [line("memory", "memory", "--line-1")].filter(hasValues), marks);
    const gpus = [line("use", "gpu", "--line-1")].filter(hasValues);
    gpu.root.hidden = !gpus.length;
    gpu.update(series.time, gpus, marks);
    network.update(series.time, [line("received", "received", "--line-1"), line("sent", "sent", "--line-2")].filter(hasValues), marks);
  }

  return {
    root: [title, links, answer, summary,
      element("div", { class: "charts" }, ...[speed, parts, cpu, memory, gpu, network].map(({ root }) => root))],
    charts: true,
    update,
  };
}

const hasValues = ({ values }) => values.length > 0;

function factsOf(row, status) {
  const known_ = [
    ["State", row.slow ? `${row.state}, slow (${row.slow.cause})` : row.state],
    ["Step", whole(row.step)],
    ["Examples/s", rate(row.rate)],
    ["Of median", percent(row.ofMedian)],
    ["Generation", whole(row.generation)],
    ["Restarts", whole(row.restarts)],
    ["Supervisor", status.pid ? `process ${status.pid}` : UNKNOWN],
    ["Child", status.child_pid ? `process ${status.child_pid}` : UNKNOWN],
  ];
  return known_.filter(([, text]) => text !== UNKNOWN);
}
