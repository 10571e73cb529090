"""index.html of an archive: it opens with the verdict. All that it shows is escaped, and it needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

from trainer.debug.archive import Entry
from trainer.debug.evidence import Evidence, Moment, clock
from trainer.debug.history import history
from trainer.debug.symptoms import plain
from trainer.debug.verdict import Verdict, meaning

MOST_MOMENTS = 400
LONGEST = 600
"""Characters of a line."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #1b1f24;
  background: #fff }
h1 { font-size: 1.3em } h2 { font-size: 1.1em; margin-top: 2em }
.verdict { border-left: 6px solid #57606a; background: #f6f8fa; padding: .6em 1.2em }
.failed, .vanished { border-color: #cf222e } .succeeded { border-color: #1a7f37 }
.stopped, .waiting, .never { border-color: #bf8700 }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .2em .9em .2em 0 }
th { font-weight: 600 } tr + tr td { border-top: 1px solid #d8dee4 }
code, pre, .line { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap }
.dim { color: #57606a } dt { font-weight: 600; margin-top: .7em } dd { margin: 0 }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117 } .verdict { background: #161b22 }
  tr + tr td { border-color: #30363d } .dim { color: #8d96a0 } a { color: #6cb6ff } }
"""
_ABOUT = {"failed": "First failure", "stopped": "Stopped", "waiting": "Waits for"}
"""Titles of the row with the time and task of what the verdict is about, by outcome."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(evidence: Evidence, found: Verdict, entries: Sequence[Entry], made: str) -> str:
    """The page.

    Args:
        made: when, and by which version.
    """
    kind = found.outcome.split()[0]
    parts = [
        f"<h1>{escape(found.headline[:LONGEST])}</h1>",
        f'<div class="verdict {kind}">{_verdict(found)}</div>',
        _section("What happened", _table(("time (UTC)", "task", ""), _moments(history(evidence)))),
        _section("Tasks", _table(("task", "state", "exit code", "restarts", "node", "reason"), _tasks(evidence))),
        _section("Files", _table(("file", "bytes", ""), _files(entries))),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(evidence.job)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(filter(None, parts))
        + f'\n<p class="dim">{escape(evidence.job)}, {escape(evidence.place)}; {escape(made)}. Values of secrets '
        "and of variables that are not known to be harmless are hidden, as <code>[hidden: NAME]</code>.</p>\n"
        "</body></html>\n"
    )


def _verdict(found: Verdict) -> str:
    rows: list[tuple[str, str]] = []
    if cause := found.cause:
        when = f"{clock(cause.time)} UTC, " if cause.time is not None else ""
        if when or cause.task:
            rows.append((_ABOUT.get(found.outcome, "Last known"), f"{when}{escape(cause.task) or 'the job'}"))
        rows.append(("Message", f'<span class="line">{_line(cause.text)}</span>{_link(cause.path)}'))
    if found.place:
        rows.append(("In the code", f"<code>{escape(found.place)}</code>"))
    if found.details:
        rows.append(("More", "<br>".join(f'<span class="line">{_line(each)}</span>' for each in found.details)))
    if found.code is not None:
        rows.append((f"Exit code {found.code}", escape(found.meaning) or "not one of trainer's"))
    if found.followed:
        texts = [f"{escape(clock(each.time)[11:])} {escape(each.task)} {_line(each.text)}" for each in found.followed]
        rows.append(("What followed", "<br>".join(f'<span class="line">{each.strip()}</span>' for each in texts)))
    for each in found.advice:
        seen = f'<span class="dim">{_markdown(each.shown)}: {_markdown(each.cause)}</span>'
        rows.append(("What to try", f"{_markdown(each.advice)}.<br>{seen}"))
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{text}</dd>' for name, text in _once(rows))}</dl>"


def _once(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Rows of one name in one row."""
    shown: dict[str, str] = {}
    for name, text in rows:
        shown[name] = f"{shown[name]}<br>{text}" if name in shown else text
    return list(shown.items())


def _moments(told: Sequence[Moment]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [(_dim(clock(each.time)), escape(each.task), _line(each.text)) for each in told]
    if len(rows) > MOST_MOMENTS:
        half = MOST_MOMENTS // 2
        rows[half:-half] = [("", "", _dim(f"... {len(rows) - MOST_MOMENTS} more ..."))]
    return rows


def _tasks(evidence: Evidence) -> list[tuple[str, ...]]:
    return [
        (
            escape(name),
            escape(each.state),
            "" if each.code is None else f'<span title="{escape(meaning(each.code))}">{each.code}</span>',
            str(each.restarts or ""),
            escape(each.node),
            _line(each.reason),
        )
        for name, each in evidence.tasks.items()
    ]


def _files(entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    return [
        (f'<a href="{quote(each.path)}">{escape(each.path)}</a>', f"{each.size:,}", _dim(each.note))
        for each in sorted(entries)
    ]


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _section(title: str, content: str) -> str:
    return f"<h2>{title}</h2>\n{content}" if content else ""


def _markdown(cell: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(plain(cell)))


def _line(text: str) -> str:
    return escape(text if len(text) <= LONGEST else f"{text[:LONGEST]}...")


def _dim(text: str) -> str:
    return f'<span class="dim">{escape(text)}</span>' if text else ""


def _link(path: str) -> str:
    return f' <a href="{quote(path)}">{escape(path)}</a>' if path else ""
