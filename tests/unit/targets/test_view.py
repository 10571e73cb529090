"""What a user sees of a local job."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from trainer.job import environment
from trainer.job.load import build
from trainer.targets import view

SPEC = build({"name": "mnist-ps", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 2}})


def unexpected() -> None:
    raise AssertionError("somebody does read it")


def test_plain_lines_have_their_source_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    show = view.plain_lines(unexpected)
    show("worker:1", "step 100/1000")
    show("local", "worker:1 was killed")
    show("ps:0", "trainer: port in use", error=True)
    assert capsys.readouterr() == (
        "worker:1 | step 100/1000\nlocal | worker:1 was killed\n", "ps:0 | trainer: port in use\n",
    )  # fmt: skip


def test_on_a_terminal_the_same_error_of_several_tasks_is_shown_once() -> None:
    file = io.StringIO()
    show = view._lines_above(Console(file=file, width=80), unexpected)
    show("chief:0", "trainer: [no] such file: /a", error=True)
    show("worker:0", "trainer: [no] such file: /a", error=True)
    show("worker:0", "trainer: another", error=True)
    show("worker:1", "\x1b[31mred\x1b[0m [bold]not markup[/bold]")
    assert file.getvalue().splitlines() == [
        "chief:0 | trainer: [no] such file: /a",
        "worker:0 | trainer: another",
        "worker:1 | red [bold]not markup[/bold]",
    ]


def test_a_terminal_that_was_closed_ends_the_job() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    told: list[bool] = []
    view._lines_above(Console(file=Closed()), lambda: told.append(True))("worker:0", "x")
    assert told


def test_a_summary_has_the_test_figures_whatever_they_are() -> None:
    tests = {f"test_{i}": i / 100 for i in range(100)}
    shown = view.figures({"status": "succeeded", "steps": 5, "test_loss": 0.25, **tests, "generations": 1})
    assert shown[:4] == [("status", "succeeded"), ("steps", "5"), ("test_loss", "0.25"), ("test_0", "0")]
    assert shown[-1] == ("generations", "1")
    assert len(shown) == 3 + view.FIGURES_SHOWN


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.97123, "0.9712"),
        (1.0, "1"),
        (1.23456, "1.235"),
        (4.852776, "4.853"),
        (33.65346, "33.65"),
        (7e-7, "7e-07"),
        (-0.000123456, "-0.0001235"),
        (11195.96, "11,196"),
        (2000, "2,000"),
        (float("nan"), "nan"),
        (1e30, "1e+30"),
    ],
)
def test_a_figure_keeps_four_significant_digits(value: float, shown: str) -> None:
    assert view.figure(value) == shown


def test_a_summary_without_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (None, "cut o", "[]"):
        if content:
            Path("runs/mnist-ps").mkdir(parents=True, exist_ok=True)
            Path("runs/mnist-ps/result.json").write_text(content)
        lines = view.summary(SPEC, "trainer check x.yaml").split("\n")
        assert [line.split() for line in lines[:2]] == [[], ["result", "runs/mnist-ps/result.json"]]
        assert lines[-1].strip() == "trainer check x.yaml"


def test_a_program_is_named_so_that_it_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    beside = tmp_path / "venv/bin/tensorboard"
    beside.parent.mkdir(parents=True)
    beside.write_text("#!/bin/sh\n")
    beside.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    assert view.program("tensorboard") == str(beside)
    monkeypatch.chdir(tmp_path)
    assert view.program("tensorboard") == "venv/bin/tensorboard"
    assert view.program("absent") == "absent"
    monkeypatch.setenv("PATH", str(beside.parent))
    assert view.program("tensorboard") == "tensorboard"


# All of it on a terminal. -----------------------------------------------------------------------------

# The chief answers a few requests for /status, and the job is over.
CHIEF = """
import http.server, json, os
config = json.loads(os.environ["TF_CONFIG"])
if config["task"]["type"] == "chief":
    class Status(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"phase": "running", "step": 700, "steps": 1000}).encode())
        def log_message(self, *_): pass
    port = int(config["cluster"]["chief"][0].rpartition(":")[2]) + 1000
    print("a line of the chief", flush=True)
    with http.server.HTTPServer(("127.0.0.1", port), Status) as server:
        for _ in range(3): server.handle_request()
"""
RUN = """
import sys
from trainer.targets.local import run as local
from trainer.job.load import load_environment
sys.exit(local.run(load_environment(), command=[sys.executable, "-c", sys.argv[1]]))
"""


OnTerminal = Callable[[str, str], tuple[int, str]]


def read_all(terminal: int) -> str:
    text = b""
    with contextlib.suppress(OSError):  # the last process on the other side has ended
        while chunk := os.read(terminal, 1 << 16):
            text += chunk
    return text.decode()


@pytest.fixture
def on_terminal(tmp_path: Path) -> OnTerminal:
    """Runs a job whose tasks run this code on a terminal of this kind: its exit code, and what it wrote there."""

    def run(term: str, task: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        environ = {**os.environ, environment.JOB: SPEC.model_dump_json(exclude_defaults=True), "TERM": term}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            environ.pop(name, None)
        command = [sys.executable, "-c", RUN, task]
        process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environ, cwd=tmp_path)
        os.close(theirs)
        text = read_all(ours)
        os.close(ours)
        return process.wait(60), text

    return run


def test_a_terminal_gets_a_table_below_the_lines(on_terminal: OnTerminal) -> None:
    code, text = on_terminal("xterm", CHIEF)
    assert code == 0, text
    assert "a line of the chief" in text
    assert "step 700/1000" in text
    assert text.rindex("examples/s") < text.index("runs/mnist-ps/result.json"), "the table goes, the summary stays"


def test_a_dumb_terminal_gets_plain_lines(on_terminal: OnTerminal) -> None:
    code, text = on_terminal("dumb", "print('hello')")
    assert code == 0, text
    assert "chief:0 | hello\r\n" in text
    assert "\x1b" not in text
