// The job as the server tells it: one document, then its changes as server-sent events. What is kept is bounded, however
// long the page is open.

const JOB_POINTS = 2000;
const TASK_NUMBERS = 150_000; // points of a series, times the number of tasks
const MARKS = 2000;
const RECENT = 10; // points
const SILENT_SECONDS = 45; // the server sends something more often: then ask whether it is there
const RETRY_SECONDS = 5;
const RETRY_SECONDS_OVER = 30;
const FETCH_SECONDS = 30;

/** The version of the document that this page knows. */
export const VERSION = 2;

const object = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
const array = (value) => (Array.isArray(value) ? value : []);
const now = () => Date.now() / 1000;

/** Fetches JSON from the page's server. Throws when it does not answer well in time. */
export async function fetchJson(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(FETCH_SECONDS * 1000), cache: "no-store" });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${response.statusText}`);
  return response.json();
}

/** Series by name, each as long as `time`; those in an object (metrics, scores) as "metrics.accuracy". */
export class Series {
  constructor(document, limit) {
    const { time, ...others } = object(document);
    this.time = array(time);
    this.limit = limit;
    this.columns = new Map();
    for (const [name, values] of flat(others)) if (Array.isArray(values)) this.columns.set(name, values);
    for (const values of this.columns.values()) values.length = this.time.length;
  }

  get(name) {
    return this.columns.get(name) ?? [];
  }

  /** The newest value. A figure that is measured now and then is missing in some points. */
  last(name) {
    return this.get(name).slice(-RECENT).findLast((value) => typeof value === "number") ?? null;
  }

  /** Names of those below a prefix: "metrics." has "accuracy". */
  below(prefix) {
    return [...this.columns.keys()].filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
  }

  /** Appends a point, unless it is no newer than the last one. */
  append(point) {
    const { time, ...others } = object(point);
    if (typeof time !== "number" || time <= (this.time.at(-1) ?? -Infinity)) return;
    const values = new Map(flat(others));
    for (const name of values.keys()) {
      if (!this.columns.has(name)) this.columns.set(name, new Array(this.time.length).fill(null));
    }
    this.time.push(time);
    for (const [name, column] of this.columns) column.push(values.get(name) ?? null);
    if (this.time.length > this.limit) this.#thin();
  }

  /** Drops every second point of the older half. A figure that stands alone, such as a score, moves to its neighbour. */
  #thin() {
    const half = this.time.length >> 1;
    const kept = this.time.map((_, at) => at >= half || at % 2 === 0);
    for (const [name, column] of this.columns) {
      this.columns.set(name, column.map((value, at) => value ?? (kept[at + 1] === false ? column[at + 1] : null) ?? null)
        .filter((_, at) => kept[at]));
    }
    this.time = this.time.filter((_, at) => kept[at]);
  }
}

function* flat(values) {
  for (const [name, value] of Object.entries(values)) {
    if (value && typeof value === "object" && !Array.isArray(value)) {
      for (const [inner, each] of Object.entries(value)) yield [`${name}.${inner}`, each];
    } else yield [name, value];
  }
}

export class Store {
  version = VERSION;
  live = true;
  status = {};
  job = {};
  marks = [];
  history = new Series({}, JOB_POINTS);
  tasks = new Map(); // Series by the task's name
  finish = null; // when the last step is expected
  goodput = null;
  outcome = null; // how the job ended
  skew = 0; // the server's clock, less this one's
  revision = 0; // increases with each point or mark
  loaded = false;
  silentSince = null; // when the server stopped to answer
  #source = null;
  #loading = null; // a promise of the document
  #missed = []; // events since it was asked for
  #limit = JOB_POINTS; // points of a task
  #heard = now();
  #changed;

  /** @param {Function} changed is called after each change. */
  constructor(changed) {
    this.#changed = changed;
  }

  start() {
    this.#load().then(() => {
      if (!this.live) return;
      this.#listen();
      setInterval(() => this.#watch(), 5000);
    });
  }

  /** Now, by the server's clock; the end of what was recorded when the page shows files. */
  get now() {
    return this.live && !this.over ? now() + this.skew : this.endTime;
  }

  get endTime() {
    const latest = this.history.time.at(-1) ?? 0;
    return Math.max(latest, this.marks.at(-1)?.time ?? 0) || this.documentTime || now();
  }

  /** The slow task, {task, cause, text}; null if there is none. */
  get straggler() {
    const found = object(this.status.straggler);
    return typeof found.task === "string" ? found : null;
  }

  /** The stacks of all tasks when the job hung, the newest last. */
  get hangs() {
    return array(this.status.hangs).map(object);
  }

  get over() {
    return Boolean(this.status.end) || ["done", "failed", "stopped"].includes(this.status.phase);
  }

  /** The document, tried until it is there. */
  #load() {
    this.#loading ??= this.#tryToLoad().finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  async #tryToLoad() {
    for (;;) {
      try {
        this.#missed.length = 0;
        this.#take(await fetchJson("page/state"));
        for (const take of this.#missed.splice(0)) take();
        this.#answered();
        return;
      } catch {
        this.#silent();
        await new Promise((resolve) => setTimeout(resolve, this.#retrySeconds * 1000));
      }
    }
  }

  get #retrySeconds() {
    return this.over ? RETRY_SECONDS_OVER : RETRY_SECONDS;
  }

  #take(document) {
    const { job, tasks, marks } = object(document.history);
    this.version = document.version;
    this.live = document.live !== false;
    this.documentTime = document.now;
    if (typeof document.now === "number") this.skew = document.now - now();
    this.job = object(document.job);
    this.history = new Series(job, JOB_POINTS);
    this.#limit = Math.max(100, Math.min(JOB_POINTS, Math.floor(TASK_NUMBERS / Object.keys(object(tasks)).length)));
    this.tasks = new Map(Object.entries(object(tasks)).map(([name, series]) => [name, new Series(series, this.#limit)]));
    this.marks = array(marks).filter((mark) => typeof mark?.time === "number").slice(-MARKS);
    this.status = object(document.status);
    this.outcome = document.outcome ? object(document.outcome) : null;
    this.#takeSummary(document);
    this.loaded = true;
    this.revision++;
    this.#changed();
  }

  /** What the page's server adds to the status: it comes with the document and with points. */
  #takeSummary(from) {
    if ("eta" in from) this.finish = typeof from.eta === "number" ? now() + this.skew + from.eta : null;
    if ("goodput" in from) this.goodput = from.goodput;
  }

  #listen() {
    const source = new EventSource("page/events");
    this.#source = source;
    source.addEventListener("open", () => {
      this.#answered();
      Promise.resolve(this.#loading).then(() => this.#load()); // what happened before it was open
    });
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) this.#silent(); // it connects again by itself
      // Others may have taken all places: then the document comes alone, now and then.
      else this.#load().then(() => setTimeout(() => this.#listen(), this.#retrySeconds * 1000));
    });
    this.#on("status", (event) => {
      this.status = event;
    });
    this.#on("outcome", (event) => {
      this.outcome = event;
    });
    this.#on("points", ({ time, job, tasks, ...summary }) => {
      this.history.append({ time, ...object(job) });
      for (const [name, point] of Object.entries(object(tasks))) {
        if (!this.tasks.has(name)) this.tasks.set(name, new Series({}, this.#limit));
        this.tasks.get(name).append({ time, ...object(point) });
      }
      this.#takeSummary(summary);
      this.revision++;
    });
    this.#on("mark", (mark) => {
      if (typeof mark.time !== "number" || this.#has(mark)) return;
      this.marks.push(mark);
      if (this.marks.length > MARKS) this.marks.splice(0, this.marks.length - MARKS);
      this.revision++;
    });
  }

  #on(name, take) {
    this.#source.addEventListener(name, (event) => {
      this.#answered();
      const data = object(JSON.parse(event.data));
      take(data);
      if (this.#loading) this.#missed.push(() => take(data)); // the document may be older
      this.#changed();
    });
  }

  /** Whether a mark came with the document too. */
  #has(mark) {
    const text = JSON.stringify(mark);
    return this.marks.slice(-50).some((each) => JSON.stringify(each) === text);
  }

  #answered() {
    this.#heard = now();
    if (this.silentSince !== null) {
      this.silentSince = null;
      this.#changed();
    }
  }

  #silent() {
    if (this.silentSince !== null) return;
    this.silentSince = this.#heard;
    this.#changed();
  }

  /** A connection may be dead without an error, as after a laptop has slept. */
  async #watch() {
    if (this.silentSince !== null || now() - this.#heard < SILENT_SECONDS) return;
    this.#source.close();
    await this.#load();
    this.#listen();
  }
}
