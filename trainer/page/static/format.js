// Numbers, times and names as text. Each function shows what is unknown (null, undefined, NaN) as a dash.

export const UNKNOWN = "-";
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

export const known = (value) => typeof value === "number" && Number.isFinite(value);

export const whole = (value) => (known(value) ? WHOLE.format(value) : UNKNOWN);

/** Four digits, such as a loss. */
export function figure(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e9) ? value.toExponential(2) : SHORT.format(value);
}

export const rate = (value) => (known(value) ? (Math.abs(value) >= 100 ? WHOLE : SHORT).format(value) : UNKNOWN);

export const cores = (value) => (known(value) ? value.toLocaleString("en", { maximumFractionDigits: 2 }) : UNKNOWN);

export const percent = (value) => (known(value) ? `${WHOLE.format(value * 100)}%` : UNKNOWN);

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  for (; Math.abs(value) >= 999.5 && unit < units.length - 1; unit++) value /= 1000;
  return `${value.toLocaleString("en", { maximumSignificantDigits: 3 })} ${units[unit]}`;
}

export const bytesPerSecond = (value) => (known(value) ? `${bytes(value)}/s` : UNKNOWN);

/** A duration in seconds: "850 ms", "12 s", "3 min 5 s", "2 h 10 min", "3 d 4 h". */
export function duration(value) {
  if (!known(value)) return UNKNOWN;
  if (value < 0) value = 0;
  if (value < 1) return value === 0 ? "0 s" : `${WHOLE.format(value * 1000)} ms`;
  if (value < 10) return `${value.toLocaleString("en", { maximumSignificantDigits: 2 })} s`;
  const seconds = Math.round(value);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return two(seconds, 60, "min", 1, "s");
  if (seconds < 86400) return two(seconds, 3600, "h", 60, "min");
  return two(seconds, 86400, "d", 3600, "h");
}

function two(seconds, large, largeName, small, smallName) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/** How long ago; its texts change at most each second. */
export const ago = (seconds) => (known(seconds) ? `${duration(Math.max(0, Math.floor(seconds)))} ago` : UNKNOWN);

const pad = (value) => String(value).padStart(2, "0");

/** Seconds since 1970 as the time of day where the reader is. */
export function clock(seconds) {
  const date = new Date(seconds * 1000);
  if (!known(seconds) || Number.isNaN(date.getTime())) return UNKNOWN;
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** With the day. */
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  if (!known(seconds) || Number.isNaN(date.getTime())) return UNKNOWN;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(seconds)}`;
}

/** Control characters as visible ones, and without the characters that reverse the direction of a text. */
export function visible(text) {
  return String(text)
    .replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "") // colours of a terminal
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (found) => String.fromCharCode(0x2400 + found.charCodeAt(0)))
    .replace(/[\u007f\u0080-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, "\ufffd");
}

export const shortened = (text, longest) => (text.length > longest ? `${text.slice(0, longest)}…` : text);

/** worker:2 before worker:10. */
export const byName = (one, other) => one.localeCompare(other, "en", { numeric: true });

/** Names of tasks, with those in a row as one: "chief:0, worker:0 to worker:7". */
export function taskList(names) {
  const parts = [];
  for (const name of [...names].map(String).sort(byName)) {
    const [, type, index] = /^(.*):(\d+)$/.exec(name) ?? [null, name, "-1"];
    const last = parts.at(-1);
    if (last && last.type === type && last.to + 1 === Number(index)) Object.assign(last, { to: Number(index), end: name });
    else parts.push({ type, to: Number(index), begin: name, end: name });
  }
  return parts.map(({ begin, end }) => (begin === end ? begin : `${begin} to ${end}`)).join(", ");
}

/** A value as YAML, for reading. */
export function yaml(value, indent = "") {
  if (Array.isArray(value) && value.length) {
    return value.map((each) => `\n${indent}- ${yaml(each, `${indent}  `).replace(/^\n\s*/, "")}`).join("");
  }
  if (value && typeof value === "object" && Object.keys(value).length) {
    return Object.entries(value)
      .map(([key, each]) => `\n${indent}${scalar(key)}:${spaced(yaml(each, `${indent}  `))}`).join("");
  }
  return scalar(value);
}

const spaced = (text) => (text.startsWith("\n") ? text : ` ${text}`);

function scalar(value) {
  const plain = typeof value === "string" && /^[A-Za-z_/.][\w./@-]*$/.test(value)
    && !/^(true|false|null|yes|no|on|off|y|n|~)$/i.test(value) && !/^\.(inf|nan)$/i.test(value);
  return plain ? value : JSON.stringify(value ?? null);
}
