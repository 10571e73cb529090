// Checkpoints: how old, how large, and for how long training paused for them.

import { timeChart } from "../charts.js";
import { element, facts } from "../dom.js";
import { ago, bytes, duration, known, moment, percent, whole } from "../format.js";
import { table } from "../table.js";

export function checkpoints(page) {
  const { store } = page;
  const summary = element("dl", { class: "facts" });
  const pauses = timeChart(page, { title: "Pause for each checkpoint", format: duration, zero: true });
  const rows = table("Checkpoints, the newest first", [
    { title: "Step", heading: true, value: (mark) => mark.step, text: (mark) => whole(mark.step) },
    { title: "Written", value: (mark) => mark.time, text: (mark) => moment(mark.time) },
    { title: "Age", numeric: true, value: (mark) => -mark.time, text: (mark) => ago(store.now - mark.time) },
    { title: "Size", numeric: true, value: (mark) => mark.bytes, text: (mark) => bytes(mark.bytes) },
    { title: "Pause", numeric: true, value: (mark) => mark.seconds, text: (mark) => duration(mark.seconds) },
  ], { key: (mark) => `${mark.time} ${mark.step}`, order: (one, other) => other.time - one.time, empty: "No checkpoint yet." });

  function update() {
    const { status } = store;
    const saved = marksOf(store);
    facts(summary, [
      ["Newest", known(status.last_checkpoint) ? `step ${whole(status.last_checkpoint)}` : "none yet"],
      ["Age", known(status.checkpoint_time) ? ago(store.now - status.checkpoint_time) : "-"],
      ["Size", bytes(status.checkpoint_bytes)],
      ["Written", whole(status.checkpoints)],
      ["Training paused", duration(status.seconds_saving)],
      ["Goodput", percent(store.goodput)],
    ]);
    const values = saved.map((mark) => mark.seconds ?? null);
    pauses.update(saved.map((mark) => mark.time), [{ label: "pause", values, colour: "--line-1", dots: true }]);
    rows.update(saved);
  }

  return { root: [element("h2", {}, "Checkpoints"), summary, pauses.root, rows.root], charts: true, update };
}

/** The checkpoints on the time line; without them the newest, which the status has. */
function marksOf({ marks, status }) {
  const saved = marks.filter((mark) => mark.kind === "checkpoint");
  if (saved.length || !known(status.last_checkpoint) || !known(status.checkpoint_time)) return saved;
  return [{ time: status.checkpoint_time, step: status.last_checkpoint, bytes: status.checkpoint_bytes }];
}
