// A table that is sorted by its reader, with pages: of 1,000 rows fifty are in the document.

import { element, setAttribute, setText } from "./dom.js";
import { known, UNKNOWN, whole } from "./format.js";

const ROWS = 50;

/**
 * @param {string} caption says what the table is.
 * @param {Array} columns {title, value(row), text(row), draw(cell, row), numeric, help, heading}: `value` is what the table
 *   sorts by; `draw` fills a cell, otherwise it holds `text`; `heading` marks the row's header.
 * @param {Object} options {key(row), order(one, other): the first order, empty: the text when there are no rows}
 * @returns {{root: Element, update(rows)}}
 */
export function table(caption, columns, { key, order, empty = "Nothing yet." }) {
  const state = { column: null, descending: false, page: 0, rows: [], places: new Map() };
  const body = element("tbody");
  const headers = columns.map((column) => header(column, () => sortBy(column)));
  const summary = element("p", { class: "muted" });
  const back = element("button", { type: "button", click: () => turn(-1) }, "Previous");
  const next = element("button", { type: "button", click: () => turn(1) }, "Next");
  const pages = element("div", { class: "pages" }, back, summary, next);
  const grid = element("table", {}, element("caption", { class: "hidden" }, caption),
    element("thead", {}, element("tr", {}, ...headers)), body);
  const root = element("div", {}, element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, grid),
    pages);
  const shown = new Map(); // table rows by key

  function sortBy(column) {
    state.descending = state.column === column ? !state.descending : Boolean(column.numeric);
    state.column = column;
    state.page = 0;
    state.places.clear();
    show();
  }

  function turn(by) {
    state.page += by;
    show();
    back.disabled && next.focus();
  }

  function ordered() {
    const { column, places } = state;
    const rows = [...state.rows].sort(column ? comparison(column, state.descending) : order);
    // While somebody reads or uses the rows, they stay where they are.
    const held = (matchMedia("(hover: hover)").matches && body.matches(":hover")) || body.contains(document.activeElement);
    if (held && places.size) rows.sort((one, other) => (places.get(key(one)) ?? Infinity) - (places.get(key(other)) ?? Infinity));
    state.places = new Map(rows.map((row, at) => [key(row), at]));
    return rows;
  }

  function show() {
    const rows = ordered();
    const count = Math.max(1, Math.ceil(rows.length / ROWS));
    state.page = Math.min(Math.max(0, state.page), count - 1);
    const first = state.page * ROWS;
    const page = rows.slice(first, first + ROWS);
    place(page);
    columns.forEach((column, at) => setAttribute(headers[at], "aria-sort",
      column === state.column ? (state.descending ? "descending" : "ascending") : null));
    setText(summary, rows.length ? `${whole(first + 1)} to ${whole(first + page.length)} of ${whole(rows.length)}` : empty);
    back.disabled = state.page === 0;
    next.disabled = state.page >= count - 1;
    back.hidden = next.hidden = count === 1;
    summary.hidden = count === 1 && rows.length > 0;
  }

  /** Puts the rows of a page in order, and leaves alone what is in its place. */
  function place(page) {
    const keys = new Set(page.map(key));
    for (const [each, line] of shown) {
      if (!keys.has(each)) {
        line.remove();
        shown.delete(each);
      }
    }
    page.forEach((row, at) => {
      let line = shown.get(key(row));
      if (!line) shown.set(key(row), (line = newLine(columns)));
      if (body.children[at] !== line) body.insertBefore(line, body.children[at] ?? null);
      columns.forEach((column, index) => {
        const cell = line.children[index];
        if (column.draw) column.draw(cell, row);
        else setText(cell, column.text(row));
      });
    });
  }

  return {
    root,
    update(rows) {
      state.rows = rows;
      show();
    },
  };
}

function header(column, click) {
  const button = element("button", { type: "button", click, title: column.help ?? null }, column.title);
  return element("th", { scope: "col", class: column.numeric ? "number" : null }, button);
}

function newLine(columns) {
  return element("tr", {}, ...columns.map((column) => (column.heading
    ? element("th", { scope: "row" })
    : element("td", { class: column.numeric ? "number" : null }))));
}

/** Unknown values are last, whichever the direction. */
function comparison(column, descending) {
  return (one, other) => {
    const [a, b] = [column.value(one), column.value(other)];
    const missing = (value) => value === null || value === undefined || value === UNKNOWN;
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const found = known(a) && known(b) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return descending ? -found : found;
  };
}

/** A column that links to a task. */
export const taskColumn = {
  title: "Task",
  heading: true,
  value: (row) => row.name,
  draw(cell, row) {
    const link = cell.firstChild ?? cell.appendChild(element("a"));
    setAttribute(link, "href", `#task/${encodeURIComponent(row.name)}`);
    setText(link, row.name);
  },
};
