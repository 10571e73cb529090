// What happened to the job, drawn on the axis of the charts.

import { LEFT, RIGHT } from "./charts.js";
import { element, replace, setAttribute, setText } from "./dom.js";
import { clock } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const LANE = 22;
const CLOSE = 5; // pixels, within which marks of a kind are drawn as one

/** Kinds of marks, and how many of them are counted: one, and more. */
export const KINDS = {
  formed: ["generation", "generations"],
  lost: ["lost task", "lost tasks"],
  restarted: ["restart", "restarts"],
  stalled: ["stall", "stalls"],
  hung: ["hang", "hangs"],
  slow: ["slow task", "slow tasks"],
  resized: ["new size", "new sizes"],
  checkpoint: ["checkpoint", "checkpoints"],
  score: ["score", "scores"],
  stopped: ["stop", "stops"],
  ended: ["end", "ends"],
};
const LANES = [
  { title: "Cluster", kinds: ["formed", "resized", "stopped", "ended"] },
  { title: "Troubles", kinds: ["lost", "restarted", "stalled", "hung", "slow"] },
  { title: "Saved", kinds: ["checkpoint", "score"] },
];


/** The class of a kind's symbol; an unknown kind has that of "ended". */
export const kindClass = (kind) => `kind-${Object.hasOwn(KINDS, kind) ? kind : "ended"}`;

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** @returns {{root: Element, update(marks, range, end)}} */
export function timeLine(heading = "What happened") {
  const picture = shape("svg", { role: "img", height: LANES.length * LANE + 4, class: "lanes" });
  const caption = element("p", { class: "summary" });
  const root = element("figure", {}, element("figcaption", {}, element("h3", {}, heading), caption), picture);
  let last = null;

  function update(marks, range, end) {
    last = [marks, range, end];
    const width = root.clientWidth;
    if (!width) return;
    const text = counted(marks);
    setText(caption, text);
    setAttribute(picture, "aria-label", `${heading}. ${text}`);
    setAttribute(picture, "width", String(width));
    const [from, to] = range;
    const scale = (time) => LEFT + ((time - from) / Math.max(1, to - from)) * (width - LEFT - RIGHT);
    const within = marks.filter((mark) => mark.time >= from && mark.time <= to);
    replace(picture, JSON.stringify([width, range.map(Math.round), marks.length, marks.at(-1)?.time, end]), () => [
      ...LANES.map(laneTitle),
      ...generations(marks, range, end, scale),
      ...LANES.flatMap(({ kinds }, lane) => symbols(within.filter((mark) => kinds.includes(mark.kind)), lane, scale)),
    ]);
  }

  new ResizeObserver(() => requestAnimationFrame(() => last && update(...last))).observe(root);
  return { root, update };
}

function laneTitle({ title }, lane) {
  const text = shape("text", { x: 0, y: lane * LANE + 15, class: "lane-title" });
  text.textContent = title;
  return text;
}

/** A bar for each generation, until its loss or the next one. */
function generations(marks, [from, to], end, scale) {
  const begins = marks.filter((mark) => mark.kind === "formed");
  return begins.map((mark, at) => {
    const next = begins[at + 1]?.time ?? Math.min(end, to);
    const [left, right] = [scale(Math.max(from, mark.time)), scale(Math.min(to, next))];
    if (right <= left) return null;
    const bar = shape("rect", { x: left, y: 3, width: Math.max(1, right - left - 1), height: LANE - 8, rx: 3, class: `generation-${at % 2}` });
    bar.append(titled(`generation ${mark.generation ?? "?"}, from ${clock(mark.time)}`));
    return bar;
  }).filter(Boolean);
}

function symbols(marks, lane, scale) {
  const drawn = [];
  const lastX = {};
  for (const mark of marks) {
    const x = scale(mark.time);
    if (mark.kind === "formed" || x - (lastX[mark.kind] ?? -Infinity) < CLOSE) continue;
    lastX[mark.kind] = x;
    const y = lane * LANE + LANE / 2 - 1;
    const symbol = mark.kind === "checkpoint"
      ? shape("rect", { x: x - 1.5, y: y - 6, width: 3, height: 12 })
      : mark.kind === "lost" || mark.kind === "stalled"
        ? shape("path", { d: `M${x} ${y - 7}l7 13h-14z` })
        : shape("circle", { cx: x, cy: y, r: 5 });
    symbol.setAttribute("class", kindClass(mark.kind));
    symbol.append(titled(`${clock(mark.time)} ${mark.kind}: ${mark.text ?? ""}`));
    drawn.push(symbol);
  }
  return drawn;
}

function titled(text) {
  const title = shape("title", {});
  title.textContent = text;
  return title;
}

/** "2 generations, 1 lost, 12 checkpoints". */
function counted(marks) {
  const counts = new Map();
  for (const { kind } of marks) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const text = [...counts].map(([kind, count]) => `${count} ${Object.hasOwn(KINDS, kind) ? KINDS[kind][+(count > 1)] : kind}`).join(", ");
  return text || "Nothing happened yet.";
}
