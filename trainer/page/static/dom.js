// Elements. All that a job says (log lines, names of tasks and metrics, messages) becomes text, never HTML.

/**
 * Creates an element.
 * @param {string} name of the element.
 * @param {Object} attributes by name; a function is an event's listener, `true` an empty attribute; null and false add none.
 * @param {...(Node|string|null)} children
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Sets a text, and leaves the element alone if it has it: a screen reader and a selection are not disturbed. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Replaces the children unless `key`, which stands for all that they show, is the same as at the last call. */
export function replace(node, key, children) {
  if (node.shownKey === key) return;
  node.shownKey = key;
  node.replaceChildren(...children());
}

/** A list of facts: pairs of a name and a text. */
export function facts(list, pairs) {
  replace(list, JSON.stringify(pairs), () =>
    pairs.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
}

/** A <select> whose options, pairs of a value and a label, are renewed only if they have changed. */
export function setOptions(select, options) {
  const chosen = select.value;
  replace(select, JSON.stringify(options), () =>
    options.map(([value, label]) => element("option", { value }, label)));
  select.value = options.some(([value]) => value === chosen) ? chosen : options[0]?.[0] ?? "";
}

/** Calls a function once its caller has been quiet for a while. */
export function debounced(milliseconds, call) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, milliseconds);
  };
}
