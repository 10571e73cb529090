// The head of the page: what job this is, how far it is, and what a reader should know first.

import { phaseOf, connection, stepText, verdict } from "./derived.js";
import { element, facts, replace, setAttribute, setText } from "./dom.js";
import { ago, clock, duration, figure, known, moment, percent, rate, UNKNOWN, whole } from "./format.js";
import { VERSION } from "./store.js";

const VERDICTS = 4;

export function header(root, store) {
  const name = element("h1", {}, "trainer");
  const phase = element("span", { class: "phase" });
  const kind = element("span", { class: "muted" });
  const bar = element("progress", { max: 1, "aria-label": "Steps made" });
  const share = element("span", { class: "share" });
  const key = element("dl", { class: "facts" });
  const said = element("ul", { class: "verdict" });
  const ended = element("section", { class: "outcome", "aria-label": "How the job ended", hidden: true });
  const link = element("p", { class: "notice", hidden: true });
  const announcer = document.getElementById("announcer");
  root.append(element("div", { class: "title" }, name, phase, kind), said, ended, link,
    element("div", { class: "progress" }, bar, share), key);

  function update() {
    const { status } = store;
    const now = phaseOf(store);
    const part = stepText(status);
    setText(name, String(status.job ?? store.job.spec?.name ?? "trainer"));
    setText(phase, now);
    setAttribute(phase, "data-phase", now);
    setText(kind, [status.strategy, known(status.generation) && status.generation ? `generation ${status.generation}` : null]
      .filter(Boolean).join(", "));
    setAttribute(bar, "value", part === null ? null : String(part));
    bar.hidden = share.hidden = part === null;
    setText(share, `step ${whole(status.step)} of ${whole(status.steps)}, ${percent(part)}`);
    facts(key, figures(store));
    showVerdict();
    showOutcome();
    showConnection();
    setText(announcer, store.loaded ? [now, ...verdict(store).map(({ text }) => text)].join(". ") : "");
  }

  function showVerdict() {
    const found = verdict(store);
    const more = found.length - VERDICTS;
    replace(said, JSON.stringify(found), () => [
      ...found.slice(0, VERDICTS).map(({ level, text }) => element("li", { class: level }, symbol(level), text)),
      ...(more > 0 ? [element("li", { class: "warn" }, symbol("warn"), `and ${more} more`)] : []),
    ]);
  }

  function showOutcome() {
    ended.hidden = !store.outcome;
    replace(ended, JSON.stringify(store.outcome), () => (store.outcome ? outcomeOf(store.outcome) : []));
  }

  function showConnection() {
    const version = store.version > VERSION
      ? `The data have version ${store.version}, this page knows version ${VERSION}: some of it may be missing.` : "";
    const text = [connection(store), version].filter(Boolean).join(" ");
    setText(link, text);
    link.hidden = !text;
  }

  return { update, title: () => `${phaseOf(store)} ${percent(stepText(store.status))} · ${name.textContent} · trainer` };
}

/** The rows of a result or a verdict, and what happened meanwhile. */
function outcomeOf({ rows, happened }) {
  const pairs = array(rows).map((row) => array(row).map(String));
  const news = array(happened).map(([time, text]) => element("li", {}, element("time", { title: moment(time) }, clock(time)), ` ${text}`));
  return [
    element("dl", {}, ...pairs.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
    element("h2", {}, "What happened"),
    news.length ? element("ol", {}, ...news) : element("p", { class: "muted" }, "No task was lost."),
  ];
}

/** A figure of the result, as text. */
const ofResult = ({ outcome }, name) => array(outcome?.rows).find((row) => array(row)[0] === name)?.[1] ?? null;

const array = (value) => (Array.isArray(value) ? value : []);

function symbol(level) {
  return element("span", { class: "symbol", "aria-hidden": "true" }, { good: "✓", warn: "!", bad: "✕" }[level]);
}

function figures(store) {
  const { status, history } = store;
  const over = store.over;
  const passed = known(store.job.started) ? store.now - store.job.started : status.seconds;
  const saved = known(status.checkpoint_time) ? store.now - status.checkpoint_time : null;
  const states = Object.values(status.tasks ?? {});
  const here = states.filter((row) => row?.state === "running" || row?.state === "done").length;
  const eta = known(store.finish) ? `${duration(Math.max(0, store.finish - store.now))} (${clock(store.finish)})` : UNKNOWN;
  return [
    ["Left", over ? "over" : status.ending ? String(status.ending) : eta],
    ["Elapsed", duration(passed)],
    ["Loss", figure(status.figures?.loss ?? history.last("loss"))],
    ["Examples/s", ofResult(store, "examples_per_second") ?? rate(status.figures?.examples_per_second ?? history.last("examples_per_second"))],
    ["Goodput", percent(store.goodput)],
    ["Tasks running", `${whole(here)} of ${whole(states.length)}`],
    ["Checkpoint", known(status.last_checkpoint)
      ? `step ${whole(status.last_checkpoint)}${saved === null ? "" : over ? "" : `, ${ago(saved)}`}` : "none yet"],
  ];
}
