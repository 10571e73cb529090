"""What a task reports of its logs, and what the chief makes of the reports."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

from trainer.job.load import build
from trainer.page.lines import LogQuery
from trainer.protocol import reports
from trainer.protocol.reports import LONGEST_BODY, NOBODY_LOOKS, Report
from trainer.supervisor.task import task_logs
from trainer.supervisor.task.job_logs import LOOKS_SECONDS, JobLogs
from trainer.supervisor.task.task_logs import TaskLogs


def logs(folder: Path, tasks: int = 1, **spec: Any) -> TaskLogs:
    (folder / "log").touch()
    return TaskLogs(build({"name": "j", "strategy": "one_device", **spec}), folder / "log", tasks)


def texts(batch: task_logs.Batch) -> list[str]:
    return [text for _, text in batch[1]]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("trainer.clocks.monotonic", lambda: now[0])
    return now


def test_nothing_is_reported_while_nobody_looks(tmp_path: Path) -> None:
    own = logs(tmp_path)
    own.add("a line")
    assert own.report() == (0, [])
    own.want(0)
    assert texts(own.report()) == ["a line"]
    own.want(NOBODY_LOOKS)
    assert own.report() == (0, [])


def test_the_same_lines_are_reported_until_they_have_arrived_and_new_ones_a_second_later(
    tmp_path: Path, clock: list[float]
) -> None:
    own = logs(tmp_path)
    own.want(0)
    own.add("one")
    first = own.report()
    own.add("two")
    assert own.report() == first  # the first may have been lost
    own.want(1)
    assert own.report() == (0, [])
    clock[0] += task_logs.BATCH_SECONDS
    assert own.report()[0] == 2
    assert texts(own.report()) == ["two"]


def test_stdout_stderr_and_the_supervisors_own_lines_are_there(tmp_path: Path) -> None:
    own = logs(tmp_path)
    own.stream()(b"printed by the child\n")
    own.add("the supervisor's")
    (tmp_path / "log").write_bytes(b"2026-11-25 01:02:03.500000: I tensorflow/x.cc:1] on stderr\nrest")
    own.read_log()
    with (tmp_path / "log").open("ab") as file:
        file.write(b" of it\n")
    own.read_log()
    assert texts(own.lines(0)) == [
        "printed by the child",
        "the supervisor's",
        "2026-11-25 01:02:03.500000: I tensorflow/x.cc:1] on stderr",
        "rest of it",
    ]


def test_of_a_huge_log_the_end_is_read(tmp_path: Path) -> None:
    own = logs(tmp_path)
    with (tmp_path / "log").open("wb") as file:
        file.seek(500 << 20)  # a hole
        file.write(b"\nthe end\n")
    own.read_log()
    assert texts(own.lines(0))[-1] == "the end"


@pytest.mark.parametrize("gone", [True, False])
def test_a_log_that_is_gone_or_begins_again_is_no_error(gone: bool, tmp_path: Path) -> None:
    own = logs(tmp_path)
    (tmp_path / "log").write_bytes(b"a long line of the first child\n")
    own.read_log()
    (tmp_path / "log").unlink()
    if not gone:
        (tmp_path / "log").write_bytes(b"short\n")
    own.read_log()
    assert texts(own.lines(0))[1:] == ([] if gone else ["short"])


def test_the_values_of_secrets_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "very-secret-value")
    own = logs(tmp_path, secrets={"API_KEY": {}}, env={"RATE": "5", "MY_TOKEN": "another-secret-value"})
    own.add("calling with very-secret-value and another-secret-value, 5 times")
    assert texts(own.lines(0)) == ["calling with [hidden: API_KEY] and [hidden: MY_TOKEN], 5 times"]


def sent(own: TaskLogs) -> Report:
    """The report with all lines, as the chief reads it."""
    first, lines = own.lines(0)
    report = Report("worker:1", "abc", "digest", "spec", "workload", {}, lines=lines, first_line=first)
    body = reports.question(report, 0)
    assert len(body) < LONGEST_BODY
    return reports.read_question(body).report


@pytest.mark.parametrize(
    "line",
    [
        b"\ta\ttab", b"\x00\x07\x7f\x1b[2J",
        b"\xff\xfe\xed\xa0\x80", "\u2028\u202e\x85".encode(), b"x" * 100_000, b"\r",
        b"9999-12-31 23:59:59.999999: I x", b"0001-01-01 00:00:00.000000: I x", b"I0000 00:00:9999999999.999999 x",
    ],
)  # fmt: skip
def test_no_line_makes_a_report_invalid_for_which_its_task_would_be_lost(line: bytes, tmp_path: Path) -> None:
    own = logs(tmp_path)
    own.stream()(line + b"\n")
    assert len(sent(own).lines) == 1


@given(chunks=strategies.lists(strategies.binary(max_size=200), max_size=20), own=strategies.text(max_size=50))
def test_whatever_a_task_writes_its_report_is_one(chunks: list[bytes], own: str) -> None:
    made = TaskLogs(build({"name": "j", "strategy": "one_device"}), Path(os.devnull), 1)
    take = made.stream()
    for chunk in chunks:
        take(chunk)
    made.add(own)
    sent(made)


def test_hidden_values_make_no_report_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VERY_LONG_NAME_OF_A_KEY", "k3y9")
    own = logs(tmp_path, secrets={"A_VERY_LONG_NAME_OF_A_KEY": {}})
    own.stream()(b"k3y9 \xf0\x9f\x98\x80 " * 150 + b"\n")
    own.stream()((b"k3y9 " * 400 + b"\n") * 200)
    assert len(sent(own).lines) > 2


@pytest.mark.parametrize("tasks", [1, 1000])
@pytest.mark.parametrize("line", [b"x" * 100, "\u20ac".encode() * 600, b"\x01" * 300])
def test_a_chatty_task_reports_the_newest_lines_that_fit(tasks: int, line: bytes, tmp_path: Path) -> None:
    own = logs(tmp_path, tasks)
    own.stream()(b"".join(b"%d %s\n" % (number, line) for number in range(3000)))
    own.want(0)
    first, found = own.report()
    assert first + len(found) - 1 == 3000
    assert found[-1][1].startswith("2999 ")
    report = replace(REPORT, lines=found, first_line=first)
    body = reports.question(report, 0)
    assert reports.read_question(body).report == report
    assert len(body) < LONGEST_BODY
    assert tasks * sum(len(text) for _, text in found) <= max(task_logs.ALL_BYTES, tasks * task_logs.FEWEST_BYTES)


REPORT = Report("worker:1", "abc", "digest", "spec", "workload", {})


class Chief:
    """Its lines, with a clock."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.own = logs(folder)
        self.logs = JobLogs("chief:0", self.own, lambda: self.now)

    def report(self, first: int, *lines: str, incarnation: str = "abc") -> int:
        """A task reports these lines; returns the reply's lines_after."""
        at = [(float(first + n), text) for n, text in enumerate(lines)]
        self.logs.take(replace(REPORT, incarnation=incarnation, first_line=first, lines=at))
        return self.logs.after("worker:1", incarnation)

    def found(self) -> tuple[list[str], object]:
        found = self.logs.find(LogQuery())
        assert isinstance(found["lines"], list)
        return [row["text"] for row in found["lines"]], found["left_out"]


def test_the_chief_asks_for_lines_only_while_somebody_looks(tmp_path: Path) -> None:
    chief = Chief(tmp_path)
    assert chief.logs.after("worker:1", "abc") == NOBODY_LOOKS
    assert chief.report(1, "ignored") == NOBODY_LOOKS
    assert chief.logs.look()
    assert not chief.logs.look()
    assert chief.report(1, "a", "b") == 2
    chief.own.add("the chief's own")
    chief.logs.tick()
    assert chief.found() == (["a", "b", "the chief's own"], 0)
    chief.now += LOOKS_SECONDS + 1
    chief.logs.tick()
    assert chief.logs.after("worker:1", "abc") == NOBODY_LOOKS
    assert chief.found() == ([], 0)
    assert chief.logs.look()
    assert chief.report(1, "a", "b", "c") == 3


def test_lines_that_come_twice_are_shown_once_and_missing_ones_are_counted(tmp_path: Path) -> None:
    chief = Chief(tmp_path)
    chief.logs.look()
    assert chief.report(1, "a", "b") == 2
    assert chief.report(1, "a", "b", "c") == 3
    assert chief.report(10, "j") == 10
    assert chief.found() == (["a", "b", "c", "j"], 6)


def test_a_new_supervisor_counts_from_the_beginning(tmp_path: Path) -> None:
    chief = Chief(tmp_path)
    chief.logs.look()
    chief.report(7, "of the old one")
    assert chief.logs.after("worker:1", "new") == 0
    assert chief.report(1, "of the new one", incarnation="new") == 1
    assert chief.found()[0] == ["of the new one", "of the old one"]


def test_the_chief_knows_when_it_has_lines_of_all(tmp_path: Path) -> None:
    chief = Chief(tmp_path)
    chief.own.add("own")
    chief.logs.look()
    assert not chief.logs.have_all({"chief:0", "worker:1"})
    chief.report(1, "a")
    assert chief.logs.have_all({"chief:0", "worker:1"})


def test_a_task_without_a_log_reports_what_it_printed(tmp_path: Path) -> None:
    own = TaskLogs(build({"name": "j", "strategy": "one_device"}), Path(os.devnull), 1)
    own.add("a line")
    own.read_log()
    assert texts(own.lines(0)) == ["a line"]
