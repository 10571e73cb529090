// Charts on one axis of time, by uPlot. Each has a text that says the same, and a table of its points.

import { element, replace, setAttribute, setText } from "./dom.js";
import { clock, figure, known, moment, UNKNOWN } from "./format.js";

const HEIGHT = 190;
const TABLE_ROWS = 40;
const SYNC = "time";
const MARKED = { lost: "--bad", restarted: "--bad", stalled: "--bad", hung: "--bad", slow: "--warn", resized: "--accent", formed: "--muted" };
const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6", "--line-7", "--line-8"];

/** Of the axes' labels: the charts and the time line are aligned. */
export const LEFT = 62;
export const RIGHT = 22;

export const colourOf = (index) => COLOURS[index % COLOURS.length];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

let theme = 0;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme++);

/**
 * A chart in a <figure>.
 *
 * @param {Object} page has `range()`, the [from, to] that all charts show, and `zoom(range)`.
 * @param {Object} options {title, format: a value as text, zero: whether the axis begins at 0, top: where it ends}
 * @returns {{root: Element, update(grid, lines, marks)}} `lines`: [{label, values, colour, dots, dash, quiet, fill}], in
 *   which `fill` is {low, high, label}: two more columns with an area between them. `summary` overrides the text.
 */
export function timeChart(page, { title, format = figure, zero = false, top = null, height = HEIGHT }) {
  const plot = element("div", { class: "plot", role: "img" });
  const legend = element("ul", { class: "legend" });
  const caption = element("p", { class: "summary" });
  const rows = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}: the points` });
  const details = element("details", { toggle: () => details.open && fillTable() }, element("summary", {}, "As a table"), rows);
  const heading = element("h3", {}, title);
  const root = element("figure", {}, element("figcaption", {}, heading, caption), plot, legend, details);
  const chart = { uplot: null, key: null, grid: [], lines: [], marks: [], values: [] };

  function update(grid, lines, marks = [], summary = null) {
    Object.assign(chart, { grid, lines, marks });
    const text = summary ?? lines.map((line) => summarised(line, format)).filter(Boolean).join("; ");
    setText(caption, text || "No figures yet.");
    setAttribute(plot, "aria-label", `${title}. ${text || "No figures yet."}`);
    draw();
    if (details.open) fillTable();
  }

  function draw() {
    const width = plot.clientWidth;
    if (!width) return; // not shown
    const key = JSON.stringify([theme, chart.lines.map(({ label, colour, dots, dash, fill }) => [label, colour, dots, dash, fill?.label])]);
    const data = [chart.grid, ...chart.lines.flatMap((line) => (line.fill ? [line.fill.high, line.fill.low] : [line.values]))];
    if (chart.key !== key) {
      chart.uplot?.destroy();
      chart.key = key;
      chart.uplot = new uPlot(options(width), data, plot);
      replace(legend, key, legendItems);
    } else {
      if (chart.uplot.width !== width) chart.uplot.setSize({ width, height });
      chart.uplot.setData(data, false);
    }
    const [min, max] = page.range();
    chart.uplot.setScale("x", { min, max: Math.max(max, min + 1) });
    showValues(null);
  }

  function options(width) {
    const lines = chart.lines.flatMap((line) => (line.fill ? bandSeries(line) : [lineSeries(line)]));
    const bands = [];
    let at = 1;
    for (const line of chart.lines) {
      if (line.fill) bands.push({ series: [at, at + 1], fill: css("--band") });
      at += line.fill ? 2 : 1;
    }
    return {
      width,
      height,
      legend: { show: false },
      padding: [10, RIGHT, 0, 0],
      cursor: {
        sync: { key: SYNC },
        drag: { x: true, y: false, setScale: false },
        points: { size: 7 },
        bind: { dblclick: () => () => { page.zoom(null); return null; } },
      },
      scales: { x: { time: true }, y: { range: (_, low, high) => rangeOfY(low, high, zero, top) } },
      axes: [axis({ values: (_, ticks) => ticks.map(axisTime), space: 70, size: 30 }),
        axis({ values: (_, ticks) => ticks.map(format), size: LEFT, space: 34 })],
      series: [{}, ...lines],
      bands,
      hooks: {
        drawClear: [(self) => drawMarks(self, chart.marks)],
        setCursor: [(self) => showValues(self.cursor.idx ?? null)],
        setSelect: [(self) => zoomTo(self, page)],
      },
    };
  }

  function legendItems() {
    chart.values = [];
    return chart.lines.map((line) => {
      const value = element("b");
      chart.values.push(value);
      const swatch = element("i", { class: line.fill ? "band" : line.dots ? "dot" : line.dash ? "dash" : null, "aria-hidden": "true" });
      swatch.style.setProperty("--colour", line.fill ? "var(--band)" : `var(${line.colour})`);
      return element("li", {}, swatch, `${line.fill?.label ?? line.label} `, value);
    });
  }

  /** The values under the cursor, without one the newest. */
  function showValues(index) {
    chart.lines.forEach((line, at) => {
      const node = chart.values[at];
      if (!node) return;
      const { values, fill } = line;
      if (fill) {
        const last = index ?? fill.low.findLastIndex(known);
        setText(node, known(fill.low[last]) ? `${format(fill.low[last])} to ${format(fill.high[last])}` : UNKNOWN);
      } else setText(node, format(index === null ? values.findLast(known) : values[index]));
    });
  }

  function fillTable() {
    const { grid, lines } = chart;
    const [from, to] = page.range();
    const shown = grid.map((_, at) => at).filter((at) => grid[at] >= from && grid[at] <= to);
    const every = Math.max(1, Math.ceil(shown.length / TABLE_ROWS));
    const picked = shown.filter((_, at) => (shown.length - 1 - at) % every === 0);
    const columns = lines.flatMap(({ label, values, fill }) => (fill
      ? [[`lowest of ${fill.label}`, fill.low], [`highest of ${fill.label}`, fill.high]] : [[label, values]]));
    const head = element("tr", {}, ...["Time", ...columns.map(([label]) => label)].map((text) => element("th", { scope: "col" }, text)));
    const body = picked.map((at) => element("tr", {}, element("th", { scope: "row" }, moment(grid[at])),
      ...columns.map(([, values]) => element("td", { class: "number" }, format(values[at])))));
    rows.replaceChildren(element("table", {}, element("caption", { class: "hidden" }, title),
      element("thead", {}, head), element("tbody", {}, ...body)));
  }

  new ResizeObserver(() => requestAnimationFrame(() => chart.lines.length && draw())).observe(plot);
  return { root, update };
}

const lineSeries = ({ label, colour, dash, dots, quiet }) => ({
  label,
  stroke: css(colour),
  width: quiet ? 1.25 : 2,
  dash: dash ? [5, 4] : undefined,
  paths: dots ? () => null : undefined,
  points: dots ? { show: true, size: 8, fill: css(colour) } : { show: lonely },
  spanGaps: false,
});

const bandSeries = ({ fill }) => [fill.high, fill.low].map(() => ({
  label: fill.label, stroke: css("--band-edge"), width: 1, points: { show: false },
}));

/** A line of one point is drawn as a point. */
const lonely = (self, at) => self.data[at].filter(known).length === 1;

const axis = (own) => ({
  stroke: css("--muted"),
  font: `12px ${css("--font")}`,
  grid: { stroke: css("--grid"), width: 1 },
  ticks: { stroke: css("--grid"), width: 1, size: 4 },
  ...own,
});

const axisTime = (seconds) => (seconds % 60 ? clock(seconds) : clock(seconds).slice(0, 5));

function rangeOfY(low, high, zero, top) {
  if (!known(low) || !known(high)) return [0, top ?? 1];
  const bottom = zero ? Math.min(0, low) : low;
  const margin = (high - bottom || Math.abs(high) || 1) * 0.08;
  return [bottom === 0 ? 0 : bottom - margin, top !== null && high <= top ? top : high + margin];
}

function drawMarks(self, marks) {
  const { ctx } = self;
  const { left, top, width, height } = self.bbox;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  let last = {};
  for (const { kind, time } of marks) {
    const x = Math.round(self.valToPos(time, "x", true));
    if (!MARKED[kind] || x < left || x > left + width || last[kind] === x) continue;
    last = { ...last, [kind]: x };
    ctx.strokeStyle = css(MARKED[kind]);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
  }
  ctx.restore();
}

function zoomTo(self, page) {
  const { left, width } = self.select;
  if (width < 6) return;
  const range = [self.posToVal(left, "x"), self.posToVal(left + width, "x")];
  self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  page.zoom(range);
}

/** "loss 2.3 to 0.12, lowest 0.11, highest 2.3". */
function summarised({ label, values, fill }, format) {
  if (fill) return null;
  const all = values.filter(known);
  if (!all.length) return null;
  const [low, high] = all.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [all[0], all[0]]);
  if (all.length === 1) return `${label} ${format(all[0])}`;
  return `${label} from ${format(all[0])} to ${format(all.at(-1))}, lowest ${format(low)}, highest ${format(high)}`;
}
