// Who hangs, and where: tasks whose threads wait at the same place are one group.

import { element, replace } from "../dom.js";
import { moment, taskList } from "../format.js";

export function hangs({ store }) {
  const list = element("div");
  const update = () => replace(list, JSON.stringify(store.hangs), () => (store.hangs.length
    ? [...store.hangs].reverse().map(hang)
    : [element("p", {}, "No task has hung. When the job makes no step for a while, the stacks of all tasks are here, in groups.")]));
  return { root: [element("h2", {}, "Hangs"), list], update };
}

function hang({ time, text, groups }) {
  return element("article", {}, element("h3", {}, moment(time)), element("p", { class: "answer", "data-level": "bad" }, String(text ?? "")),
    ...(Array.isArray(groups) ? groups : []).map(group));
}

function group({ tasks, frames }) {
  const names = Array.isArray(tasks) ? tasks : [];
  const title = `${names.length} ${names.length === 1 ? "task" : "tasks"}: ${taskList(names)}`;
  return element("section", { class: "group" }, element("h4", {}, title),
    element("ol", { class: "frames" }, ...(Array.isArray(frames) ? frames : []).map((frame) => element("li", {}, element("code", {}, String(frame))))));
}
