// What was asked for: the spec, and the TF_CONFIG of each task.

import { element, setOptions, setText } from "../dom.js";
import { byName, yaml } from "../format.js";

export function spec({ store }) {
  const text = element("pre", { tabindex: 0, role: "region", "aria-label": "The spec" });
  const config = element("pre", { tabindex: 0, role: "region", "aria-label": "TF_CONFIG of the task" });
  const task = element("select", { change: () => update() });
  const none = element("p", { class: "muted", hidden: true }, "Not known.");

  function update() {
    const configs = store.job.tf_config ?? {};
    const names = Object.keys(configs).sort(byName);
    setText(text, store.job.spec ? yaml(store.job.spec).trimStart() : "Not known.");
    setOptions(task, names.map((name) => [name, name]));
    setText(config, names.length ? JSON.stringify(configs[task.value], null, 2) : "");
    none.hidden = names.length > 0;
    config.hidden = task.parentElement.hidden = !names.length;
  }

  return {
    root: [element("h2", {}, "Spec"), text, element("h3", {}, "TF_CONFIG"),
      element("div", { class: "controls" }, element("label", {}, "Task ", task)), none, config],
    update,
  };
}
