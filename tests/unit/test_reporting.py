"""trainer.report as a program calls it: real sockets, and real processes where it takes a process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainer
from tests.unit import reports
from trainer import reporting
from trainer.job.environment import REPORTS
from trainer.protocol import reports as protocol
from trainer.protocol.child import ChildStatus
from trainer.protocol.events import Step
from trainer.protocol.reports import Report
from trainer.supervisor.children.child_status import take

ROOT = Path(__file__).parents[2]
PYTHONS = [sys.executable, *filter(None, os.environ.get("TRAINER_TEST_PYTHONS", "").split(os.pathsep))]
"""More interpreters, Python 3.10 to 3.13, may be named by the variable; they need no package."""


def run(program: str, path: Path | None, *words: str, python: str = sys.executable) -> str:
    """Runs a program in a fresh interpreter without any package but trainer; returns what it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINER_", "PYTHON"))}
    if path is not None:
        environ[REPORTS] = str(path)
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    command = [python, "-I", "-S", "-c", start + program, *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_a_report_arrives_as_it_was_given(reader: reports.Reader) -> None:
    trainer.report(step=500, total=2000, loss=0.25, examples_per_second=1200.0, phase="warm-up", frozen=False)
    assert reader.all() == [
        {"step": 500, "total": 2000, "loss": 0.25, "examples_per_second": 1200.0, "phase": "warm-up", "frozen": False}
    ]


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (np.float32(0.25), 0.25),
        (np.float16(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.bool_(True), True),
        (np.array(1.5), 1.5),
        (np.array([[3]]), 3),
        (np.str_("text"), "text"),
        (Fraction(1, 4), 0.25),
        (float("nan"), "nan"),
        (np.float32("inf"), "inf"),
        (-float("inf"), "-inf"),
        ("a\ud800b", "a?b"),
        (2**63 - 1, 2**63 - 1),
    ],
    ids=repr,
)
def test_a_number_of_another_kind_is_converted(reader: reports.Reader, value: object, sent: object) -> None:
    trainer.report(figure=value)
    [figures] = reader.all()
    assert figures == {"figure": sent}
    assert type(figures["figure"]) is type(sent)


@pytest.mark.parametrize("step", [np.int32(3), np.array(3), 3.0, np.float64(3)], ids=repr)
def test_a_step_of_another_kind_is_a_whole_number(reader: reports.Reader, step: object) -> None:
    trainer.report(step=step)
    assert reader.all() == [{"step": 3}]


@pytest.mark.parametrize(
    ("figures", "error", "text"),
    [
        ({"step": "x"}, TypeError, "step must be a whole number from 0 on, not 'x'"),
        ({"step": True}, TypeError, "step must be a whole number from 0 on, not True"),
        ({"step": [1]}, TypeError, r"step must be a whole number from 0 on, not \[1\]"),
        ({"step": -1}, ValueError, "step must be a whole number from 0 on, not -1"),
        ({"total": 1.5}, ValueError, "total must be a whole number from 0 on, not 1.5"),
        ({"total": float("nan")}, ValueError, "total must be a whole number from 0 on, not nan"),
        ({"loss": None}, TypeError, "loss must be a number, a bool or a short text, not NoneType"),
        ({"loss": [0.5]}, TypeError, "loss must be a number, a bool or a short text, not list"),
        ({"loss": b"12"}, TypeError, "loss must be a number, a bool or a short text, not bytes"),
        ({"loss": 1j}, TypeError, "loss must be a number, a bool or a short text, not complex"),
        ({"loss": np.ones(2)}, TypeError, "loss must be a number, a bool or a short text, not ndarray"),
        ({"seen": 10**5000}, ValueError, "seen must fit into 64 bits"),
        ({"val loss": 1.0}, ValueError, "the name of a figure must be an identifier such as val_loss, not 'val loss'"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_mistake_names_the_value_and_the_rule(
    reader: reports.Reader, figures: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"^{text}"):
        trainer.report(**figures)
    assert reader.all() == []


def test_reports_in_quick_succession_are_merged(reader: reports.Reader) -> None:
    begin = time.monotonic()
    trainer.report(step=0, once="kept")
    for step in range(1, 500):
        trainer.report(step=step, loss=step / 2)
    trainer.report(accuracy=0.5)
    most = 1 + (time.monotonic() - begin) / reporting.INTERVAL
    reporting.flush()
    found = reader.all()
    assert len(found) <= most + 1
    assert found[0] == {"step": 0, "once": "kept"}
    assert reports.merged(found) == {"step": 499, "loss": 249.5, "accuracy": 0.5, "once": "kept"}


def test_what_was_kept_is_sent_with_the_next_report(reader: reports.Reader) -> None:
    trainer.report(step=1)
    trainer.report(accuracy=0.5)
    assert reader.all() == [{"step": 1}]
    deadline = time.monotonic() + 60
    while not (found := reader.all()):
        assert time.monotonic() < deadline
        trainer.report(step=2)
    assert found == [{"step": 2, "accuracy": 0.5}]


def test_the_last_step_is_sent_at_once_and_once(reader: reports.Reader) -> None:
    trainer.report(step=1, total=3, loss=2.0)
    trainer.report(step=2, loss=1.0)
    trainer.report(step=3)
    assert reader.all()[-1] == {"step": 3, "loss": 1.0}
    begin = time.monotonic()
    for i in range(100):
        trainer.report(step=3, total=3, batch=i)
    assert len(reader.all()) <= 1 + (time.monotonic() - begin) / reporting.INTERVAL


def test_outside_of_a_job_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_report", None)
    monkeypatch.delenv(REPORTS, raising=False)
    trainer.report(step=1, loss=object())
    monkeypatch.setenv(REPORTS, "")
    trainer.report(step=1, loss=object())
    reporting.flush()


def test_a_socket_that_is_full_neither_blocks_nor_fails(reader: reports.Reader) -> None:
    for step in range(3000):  # each is sent at once
        trainer.report(step=step, total=step)
    found = reader.all()
    assert [each["step"] for each in found] == list(range(len(found)))
    assert len(found) < 3000
    reporting.flush()
    assert reader.all() == [{"step": 2999, "total": 2999}]


def test_a_socket_that_is_not_there_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_report", reporting._Report())
    path = tmp_path / "reports.sock"
    file, long, stream = tmp_path / "file", tmp_path / ("a" * 200), tmp_path / "stream"
    file.write_text("")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(stream))
        for step, place in enumerate((path, tmp_path, file, long, stream, tmp_path / "no" / "folder")):
            monkeypatch.setenv(REPORTS, str(place))
            trainer.report(step=step, total=step)
    monkeypatch.setenv(REPORTS, str(path))
    with reports.reader(path) as late:
        reporting.flush()
        assert late.all() == [{"step": 5, "total": 5}]
    trainer.report(step=6, total=6)
    with reports.reader(path) as another:
        reporting.flush()
        assert another.all() == [{"step": 6, "total": 6}]


def test_a_datagram_is_bounded(reader: reports.Reader) -> None:
    trainer.report(note="x" * 100_000)
    assert reader.all() == [{"note": "x" * reporting.TEXT_BYTES}]
    trainer.report(**{f"figure_{i}": "\N{SNOWMAN}" * 1000 for i in range(900)}, last=1.0)  # each takes 2000 bytes
    trainer.report(step=7, total=7)
    [figures] = reader.all()
    assert reader.sizes[-1] <= reporting.DATAGRAM_BYTES
    assert list(figures)[:2] == ["step", "total"]
    assert len(figures) == 2 + 29 + 1
    assert figures["last"] == 1.0


@pytest.mark.parametrize("text", ["\N{GRINNING FACE}", "\N{SNOWMAN}", "\u00e9", "\\", "\ud800"])
def test_texts_have_room_in_a_report_to_the_chief(text: str) -> None:
    status = ChildStatus()
    for number in range(200):
        take(status, Step(figures={f"a{number}": reporting.plain("a", text * 5000)}))
    report = Report("worker:1", "x", "c", "s", "w", {}, status=status)
    body = protocol.question(report, 0)
    assert len(body) < protocol.LONGEST_BODY / 2
    assert len(protocol.read_question(body).report.status.figures) == 100


def test_figures_that_cannot_be_sent_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_report", reporting._Report())
    monkeypatch.setenv(REPORTS, str(tmp_path / "nobody.sock"))
    for i in range(3000):
        trainer.report(**{f"figure_{i}": i})
    assert len(reporting._report._waiting) == 1000


def test_threads_may_report(reader: reports.Reader) -> None:
    def work(name: str) -> None:
        for i in range(300):
            trainer.report(**{name: i})

    threads = [threading.Thread(target=work, args=[f"thread_{i}"]) for i in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    reporting.flush()
    assert reader.latest() == {f"thread_{i}": 299 for i in range(8)}


# Whole programs. ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", PYTHONS)
def test_a_program_reports_its_last_figures_at_its_end(tmp_path: Path, python: str) -> None:
    program = """
from trainer import report
report(step=1, total=10, loss=2.0)
report(step=2, loss=1.0)
report(accuracy=0.5)
"""
    with reports.reader(tmp_path / "reports.sock") as reader:
        run(program, reader.path, python=python)
        first, *others = reader.all()  # on a busy machine the second report may be due before the end
        assert first == {"step": 1, "total": 10, "loss": 2.0}
        assert {name: value for each in others for name, value in each.items()} == {
            "step": 2, "loss": 1.0, "accuracy": 0.5,
        }  # fmt: skip


@pytest.mark.parametrize("python", PYTHONS)
def test_only_the_standard_library_is_imported(tmp_path: Path, python: str) -> None:
    program = """
import trainer
trainer.report(step=1)
trainer.keras.Report(batch_size=32)
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded - sys.stdlib_module_names - {"__main__", "trainer"}))
print(sorted(name for name in sys.modules if name.startswith("trainer.")))
"""
    with reports.reader(tmp_path / "reports.sock") as reader:
        others, ours = run(program, reader.path, python=python).splitlines()
        assert reader.all() == [{"step": 1}]
    assert others == "[]"
    own = ["trainer.job", "trainer.job.environment", "trainer.keras", "trainer.reporting", "trainer.stack_dump"]
    assert ours == str(own)


def test_keras_is_a_submodule_either_way(tmp_path: Path) -> None:
    assert run("import trainer.keras; print(trainer.keras.Report.__name__)", None) == "Report\n"
    assert run("import trainer; print(trainer.keras.Report.__name__)", None) == "Report\n"
    assert run("from trainer.keras import Report; print(Report.__name__)", None) == "Report\n"


@pytest.mark.parametrize("python", PYTHONS)
def test_a_fork_reports_for_itself(tmp_path: Path, python: str) -> None:
    """And does not send again what its parent has yet to send, even if a thread of the parent holds the lock."""
    program = """
import os, threading
import trainer
from trainer import reporting
trainer.report(step=1)
trainer.report(parent=1)
held, done = threading.Event(), threading.Event()
def hold():
    with reporting._report._lock:
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
import warnings
warnings.simplefilter("ignore")  # Python 3.12 and later warn of threads
pid = os.fork()
if pid == 0:
    trainer.report(child=1)
    trainer.report(child=2)
    sys.exit()
os.waitpid(pid, 0)
done.set()
thread.join()
"""
    with reports.reader(tmp_path / "reports.sock") as reader:
        run(program, reader.path, python=python)
        assert reader.all() == [{"step": 1}, {"child": 1}, {"child": 2}, {"parent": 1}]


def test_a_subprocess_may_report(tmp_path: Path) -> None:
    program = """
import subprocess
import trainer
inner = f"import sys; sys.path[:0] = {sys.path!r}; import trainer; trainer.report(inner=1)"
subprocess.run([sys.executable, "-c", inner])
trainer.report(outer=1)
"""
    with reports.reader(tmp_path / "reports.sock") as reader:
        run(program, reader.path)
        assert reader.all() == [{"inner": 1}, {"outer": 1}]


def test_a_signal_handler_may_report_while_its_thread_does(tmp_path: Path) -> None:
    """It neither waits for the lock of its own thread, nor is its figure lost."""
    program = """
import json, signal, socket
import trainer
from trainer import reporting
path = sys.argv[1]
reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
reader.bind(path)
reader.setblocking(False)
seen, count, step = [], 0, 0
def read():
    try:
        while True:
            seen.append(json.loads(reader.recv(1 << 16)))
    except BlockingIOError:
        pass
def handler(*_):
    global count
    count += 1
    trainer.report(**{f"signal_{count}": True})
    if count < 300:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0001)
while count < 300:
    step += 1
    trainer.report(step=step, total=step)  # sent at once
    read()
reporting.flush()
read()
names = {name for figures in seen for name in figures}
print(len(names & {f"signal_{i}" for i in range(1, 301)}))
"""
    path = tmp_path / "reports.sock"
    assert run(program, path, str(path)) == "300\n"
