// The logs of all tasks, merged. The page keeps a window of them; the server searches all.

import { debounced, element, setOptions, setText } from "../dom.js";
import { byName, clock, moment, shortened, visible, whole } from "../format.js";
import { fetchJson } from "../store.js";

const LINES = 1000; // in the page, of however many
const LONGEST = 4000;
const POLL_MILLISECONDS = 2000;
const MOST_TASKS = 2000;

export function logs({ store }) {
  const task = element("select", { change: () => restart() });
  const search = element("input", { type: "search", autocomplete: "off", spellcheck: "false", input: debounced(300, () => restart()) });
  const follow = element("input", { type: "checkbox", checked: true, change: () => follow.checked && restart() });
  const note = element("p", { class: "muted", role: "status" });
  const list = element("ol");
  const scroller = element("div", { class: "lines", tabindex: 0, role: "region", "aria-label": "Log lines, the newest last" }, list);
  const state = { last: 0, asked: 0, timer: 0, leftOut: 0 };

  /** Reads anew: what the old lines were asked for has changed. */
  function restart() {
    state.asked++;
    state.last = 0;
    poll();
  }

  async function poll() {
    clearTimeout(state.timer);
    const turn = state.asked;
    const unseen = !list.isConnected || list.closest("section").hidden || document.hidden;
    if (unseen || (state.last && !follow.checked)) {
      state.timer = setTimeout(poll, POLL_MILLISECONDS);
      return;
    }
    try {
      const found = await fetchJson(`page/logs?${question()}`);
      if (turn === state.asked) show(found);
    } catch {
      if (turn === state.asked) setText(note, "The logs cannot be read now; the page tries again.");
    }
    if (turn === state.asked && store.live) state.timer = setTimeout(poll, POLL_MILLISECONDS);
  }

  function question() {
    const asked = new URLSearchParams({ limit: LINES });
    if (state.last) asked.set("after", state.last);
    if (task.value) asked.set("task", task.value);
    if (search.value) asked.set("search", search.value);
    return asked;
  }

  function show({ lines = [], left_out: leftOut = 0 }) {
    const first = !state.last;
    if (first) list.replaceChildren();
    list.append(...lines.map((line) => logLine(line, search.value)));
    while (list.childElementCount > LINES) list.firstChild.remove();
    state.last = lines.at(-1)?.n ?? state.last;
    if (first || leftOut) state.leftOut = leftOut; // between two polls too
    setText(note, noteOf());
    if (follow.checked && lines.length) scroller.scrollTop = scroller.scrollHeight;
  }

  function noteOf() {
    if (!list.childElementCount) return search.value || task.value ? "No line matches." : "No line yet.";
    const count = `${whole(list.childElementCount)} lines${search.value ? " that match" : ""}`;
    return state.leftOut > 0 ? `The newest ${count}; a search reads all.` : `${count}.`;
  }

  function update() {
    const names = [...new Set([...Object.keys(store.status.tasks ?? {}), ...store.tasks.keys()])].sort(byName);
    setOptions(task, [["", "all"], ...names.slice(0, MOST_TASKS).map((name) => [name, name])]);
  }

  function open(argument) {
    update();
    if (argument) task.value = argument;
    restart();
  }

  return {
    root: [element("h2", {}, "Logs"),
      element("div", { class: "controls" }, element("label", {}, "Task ", task), element("label", {}, "Search ", search),
        element("label", {}, follow, " Follow")),
      note, scroller],
    update,
    open,
  };
}

function logLine({ time, task, text }, sought) {
  return element("li", {},
    element("time", { title: moment(time) }, clock(time)), " ",
    element("a", { href: `#task/${encodeURIComponent(task ?? "")}` }, String(task ?? "")), " ",
    element("bdi", {}, ...found(shortened(visible(text ?? ""), LONGEST), sought)));
}

/** The text with what was sought marked. */
function found(text, sought) {
  if (!sought) return [text];
  const parts = [];
  const [low, needle] = [text.toLowerCase(), sought.toLowerCase()];
  let from = 0;
  for (let at = low.indexOf(needle); at >= 0 && needle; at = low.indexOf(needle, from)) {
    parts.push(text.slice(from, at), element("mark", {}, text.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  return [...parts, text.slice(from)];
}
