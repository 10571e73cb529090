// All that happened, with the reasons.

import { element, setAttribute, setOptions, setText } from "../dom.js";
import { duration, bytes, known, moment, whole } from "../format.js";
import { table, taskColumn } from "../table.js";
import { KINDS, kindClass, timeLine } from "../timeline.js";

export function timelineView(page) {
  const { store } = page;
  const line = timeLine("The job's time line");
  const kind = element("select", { change: () => update() });
  const rows = table("What happened, the newest first", COLUMNS, {
    key: ({ index }) => index,
    order: (one, other) => other.time - one.time || other.index - one.index,
    empty: "Nothing happened yet.",
  });

  function update() {
    const kinds = [...new Set([...Object.keys(KINDS), ...store.marks.map((mark) => mark.kind)])]
      .filter((each) => store.marks.some((mark) => mark.kind === each));
    setOptions(kind, [["", "all"], ...kinds.map((each) => [String(each), String(each)])]);
    line.update(store.marks, page.range(), store.endTime);
    rows.update(store.marks.map((mark, index) => ({ ...mark, index: `${index} ${mark.time} ${mark.text}` }))
      .filter((mark) => !kind.value || mark.kind === kind.value));
  }

  return {
    root: [element("h2", {}, "Time line"), line.root,
      element("div", { class: "controls" }, element("label", {}, "Show ", kind)), rows.root],
    charts: true,
    update,
  };
}

const COLUMNS = [
  {
    title: "Time",
    heading: true,
    value: (mark) => mark.time,
    draw(cell, mark) { // a phone shows no date
      const [date, time] = moment(mark.time).split(" ");
      if (!cell.firstChild) cell.append(element("span", { class: "date" }), element("span"));
      setText(cell.firstChild, `${date} `);
      setText(cell.lastChild, time ?? "");
    },
  },
  {
    title: "What",
    value: (mark) => mark.kind,
    draw(cell, mark) {
      const badge = cell.firstChild ?? cell.appendChild(element("span"));
      setAttribute(badge, "class", `kind ${kindClass(mark.kind)}`);
      setText(badge, String(mark.kind));
    },
  },
  { title: "Why", value: (mark) => mark.text ?? null, text: described },
  {
    title: "Task",
    value: (mark) => mark.task ?? null,
    draw: (cell, mark) => (mark.task ? taskColumn.draw(cell, { name: mark.task }) : cell.replaceChildren()),
  },
];

/** The text of a mark, with its figures. */
function described({ text, step, bytes: size, seconds }) {
  const said = (number) => new RegExp(`\\b${number}\\b`).test(text ?? "");
  return [
    text,
    known(step) && !said(step) ? `step ${whole(step)}` : null,
    known(size) ? bytes(size) : null,
    known(seconds) && !said(seconds.toFixed(1)) ? duration(seconds) : null,
  ].filter(Boolean).join(", ");
}
