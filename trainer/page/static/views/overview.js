// How the job learns and how fast it is, with what happened to it.

import { timeChart } from "../charts.js";
import { examplesByTask } from "../curves.js";
import { element, setText } from "../dom.js";
import { rate } from "../format.js";
import { timeLine } from "../timeline.js";

const METRICS = 8;

export function overview(page) {
  const { store } = page;
  const loss = timeChart(page, { title: "Loss" });
  const speed = timeChart(page, { title: "Examples/s by task", format: rate, zero: true });
  const line = timeLine();
  const grid = element("div", { class: "charts" }, loss.root, speed.root);
  const more = element("p", { class: "muted", hidden: true });
  const metrics = new Map(); // charts by metric

  function update() {
    const { history } = store;
    loss.update(history.time, [curve("loss", history.get("loss"), 0), ...scoresOf(history, "loss")], store.marks);
    const names = [...new Set([...history.below("metrics."), ...history.below("scores.")])].filter((name) => name !== "loss");
    for (const name of names.slice(0, METRICS)) metric(name).update(history.time,
      [curve(name, history.get(`metrics.${name}`), 0), ...scoresOf(history, name)], store.marks);
    more.hidden = names.length <= METRICS;
    setText(more, `${names.length - METRICS} more metrics have no chart here: ${names.slice(METRICS, METRICS + 20).join(", ")}.`);
    const { grid: points, lines, summary } = examplesByTask(store);
    speed.update(points, lines, store.marks, summary);
    line.update(store.marks, page.range(), store.endTime);
  }

  function metric(name) {
    if (!metrics.has(name)) {
      metrics.set(name, timeChart(page, { title: name }));
      grid.insertBefore(metrics.get(name).root, speed.root);
    }
    return metrics.get(name);
  }

  const key = element("p", { class: "muted" }, "Dashed lines in the charts: the cluster formed (grey), a task was lost (red) or slow (orange).");
  return { root: [element("h2", {}, "Overview"), line.root, key, grid, more], charts: true, update };
}

const curve = (label, values, colour) => ({ label: `${label} in training`, values, colour: `--line-${colour + 1}` });

function scoresOf(history, name) {
  // A score holds until the next one: only where it changes is it new.
  const values = history.get(`scores.${name}`).map((value, at, all) => (value === all[at - 1] ? null : value));
  return values.length ? [{ label: `${name} by the evaluator`, values, colour: "--line-2", dots: true }] : [];
}
