// The page: its header, its views, and when they are drawn.

import { element, setAttribute, setText } from "./dom.js";
import { header } from "./header.js";
import { Store } from "./store.js";
import { checkpoints } from "./views/checkpoints.js";
import { hangs } from "./views/hangs.js";
import { logs } from "./views/logs.js";
import { overview } from "./views/overview.js";
import { resources } from "./views/resources.js";
import { spec } from "./views/spec.js";
import { steps } from "./views/steps.js";
import { task } from "./views/task.js";
import { tasks } from "./views/tasks.js";
import { timelineView } from "./views/timeline.js";

// In the order of the navigation; a view without a title has no link there.
const VIEWS = {
  overview: { title: "Overview", make: overview },
  tasks: { title: "Tasks", make: tasks },
  steps: { title: "Step time", make: steps },
  resources: { title: "Resources", make: resources },
  timeline: { title: "Time line", make: timelineView },
  logs: { title: "Logs", make: logs },
  checkpoints: { title: "Checkpoints", make: checkpoints },
  hangs: { title: "Hangs", make: hangs },
  spec: { title: "Spec", make: spec },
  task: { make: task },
};
const RANGES = [["", "All"], ["600", "10 min"], ["3600", "1 h"], ["21600", "6 h"]];
const DRAW_MILLISECONDS = 200;

const store = new Store(() => schedule());
const page = { store, range, zoom };
const chosen = { view: null, argument: "", seconds: null, zoomed: null };
const made = new Map(); // views by name
const main = document.getElementById("content");
const rangeChooser = element("fieldset", { class: "ranges" }, element("legend", { class: "hidden" }, "Time that the charts show"),
  ...RANGES.map(rangeButton), element("button", { type: "button", class: "unzoom", click: () => zoom(null), hidden: true }, "Reset zoom"));
const head = header(document.getElementById("header"), store);
let drawing = 0;
let drawnAt = 0;

/** The time that the charts show, as [from, to]. */
function range() {
  if (chosen.zoomed) return chosen.zoomed;
  const to = store.endTime;
  const first = Math.min(store.history.time[0] ?? to, store.marks[0]?.time ?? to, store.job.started ?? to);
  return [chosen.seconds ? Math.max(to - chosen.seconds, Math.min(first, to - 1)) : first, to];
}

/** Shows a part of the time in all charts; null: all of it again. */
function zoom(part) {
  chosen.zoomed = part;
  rangeChooser.querySelector(".unzoom").hidden = !part;
  schedule();
}

function rangeButton([value, title]) {
  const choose = () => {
    chosen.seconds = Number(value) || null;
    zoom(null);
  };
  const input = element("input", { type: "radio", name: "range", value, checked: value === "", change: choose });
  return element("label", {}, input, title);
}

function navigation() {
  const links = Object.entries(VIEWS).filter(([, { title }]) => title)
    .map(([name, { title }]) => element("li", {}, element("a", { href: `#${name}` }, title)));
  document.getElementById("nav").append(element("ul", {}, ...links), rangeChooser);
}

/** Shows the view that the address names: #logs, #task/worker:1, #logs/worker:1. */
function route(focus) {
  const [name, argument = ""] = location.hash.slice(1).split("/", 2);
  chosen.view = Object.hasOwn(VIEWS, name) ? name : "overview";
  try {
    chosen.argument = decodeURIComponent(argument);
  } catch {
    chosen.argument = argument;
  }
  if (!made.has(chosen.view)) {
    const view = VIEWS[chosen.view].make(page);
    const section = element("section", { id: `view-${chosen.view}` }, ...[view.root].flat());
    main.append(section);
    made.set(chosen.view, { ...view, section });
  }
  for (const [each, { section }] of made) section.hidden = each !== chosen.view;
  const linked = chosen.view === "task" ? "tasks" : chosen.view;
  for (const link of document.querySelectorAll("#nav a")) {
    setAttribute(link, "aria-current", link.hash === `#${linked}` ? "page" : null);
    if (link.hash === `#${linked}`) link.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  rangeChooser.hidden = !made.get(chosen.view).charts;
  made.get(chosen.view).open?.(chosen.argument);
  draw();
  if (focus) main.focus({ preventScroll: true });
}

/** Draws soon, but not for each of many events. */
function schedule() {
  if (drawing || document.hidden) return;
  drawing = setTimeout(draw, Math.max(0, drawnAt + DRAW_MILLISECONDS - performance.now()));
}

function draw() {
  clearTimeout(drawing);
  drawing = 0;
  head.update();
  setText(document.querySelector("title"), head.title());
  if (store.loaded && chosen.view) made.get(chosen.view).update(chosen.argument);
  drawnAt = performance.now();
}

navigation();
addEventListener("hashchange", () => route(true));
document.addEventListener("visibilitychange", schedule);
setInterval(() => document.hidden || head.update(), 1000); // what it says of "ago" goes on by itself
route(false);
store.start();
