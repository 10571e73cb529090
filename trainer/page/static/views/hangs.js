// Who hangs, and where: tasks whose threads are at the same place are one group.

import { element, replace } from "../dom.js";
import { moment, taskList } from "../format.js";

const array = (value) => (Array.isArray(value) ? value : []);

export function hangs({ store }) {
  const list = element("div");
  const update = () => replace(list, JSON.stringify(store.hangs), () => (store.hangs.length
    ? [...store.hangs].reverse().map(hang)
    : [element("p", {}, "No task has hung. When one does, the stacks of all tasks are here, in groups.")]));
  return { root: [element("h2", {}, "Hangs"), list], update };
}

function hang({ time, text, groups }) {
  return element("article", {}, element("h3", {}, moment(time)),
    text ? element("p", { class: "answer", "data-level": "bad" }, String(text)) : null, ...array(groups).map(group));
}

function group({ tasks, state, doing, threads }) {
  const names = array(tasks);
  const title = `${names.length} ${names.length === 1 ? "task" : "tasks"}: ${taskList(names)}`;
  const facts = [state, doing].filter(Boolean).join(", ");
  return element("section", { class: "group" }, element("h4", {}, title), facts ? element("p", {}, facts) : null,
    ...array(threads).map((frames) => element("ol", { class: "frames" }, ...array(frames).map(frame))));
}

/** A call: [file, line, function, whether it is in the user's code]; the innermost is first. */
function frame(call) {
  const [file, line, name, theirs] = array(call);
  return element("li", { class: theirs ? "theirs" : null }, element("code", {}, `${file}:${line} ${name}`));
}
