"""The output of a local job."""

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
from trainer.targets.local import view

SPEC = build({"name": "mnist-ps", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 2}})


def unexpected() -> None:
    raise AssertionError("the output has a reader")


def test_plain_lines_have_their_source_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    show = view.plain_lines(unexpected)
    show("worker:1", "step 100/1000")
    show("local", "worker:1 was killed")
    show("ps:0", "trainer: port in use", error=True)
    assert capsys.readouterr() == (
        "worker:1 | step 100/1000\nlocal | worker:1 was killed\n", "ps:0 | trainer: port in use\n",
    )  # fmt: skip


def test_on_a_terminal_markup_is_text() -> None:
    file = io.StringIO()
    show = view._lines_above(Console(file=file, width=80), unexpected)
    show("chief:0", "trainer: [no] such file: /a", error=True)
    show("worker:1", "\x1b[31mred\x1b[0m [bold]not markup[/bold]")
    assert file.getvalue().splitlines() == [
        "chief:0 | trainer: [no] such file: /a",
        "worker:1 | red [bold]not markup[/bold]",
    ]


def test_a_terminal_that_was_closed_ends_the_job() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    reported: list[bool] = []
    view._lines_above(Console(file=Closed()), lambda: reported.append(True))("worker:0", "x")
    assert reported


# All of it on a terminal. -----------------------------------------------------------------------------

# The chief answers a few requests for /status, and the job is over.
CHIEF = """
import http.server, json, os
config = json.loads(os.environ["TF_CONFIG"])
status = {
    "job": "mnist-ps", "task": "chief:0", "strategy": "parameter_server", "phase": "running", "generation": 1,
    "restarts": 0, "standby": False, "step": 700, "steps": 1000, "last_checkpoint": None, "waiting_for": None,
    "seconds": 3.5, "events": [], "tasks": {}, "end": None,
}
if config["task"]["type"] == "chief":
    class Status(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(status).encode())
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
    assert text.rindex("examples/s") < text.index("runs/mnist-ps/.trainer/result.json"), (
        "the table goes, the summary stays"
    )


def test_a_dumb_terminal_gets_plain_lines(on_terminal: OnTerminal) -> None:
    code, text = on_terminal("dumb", "print('hello')")
    assert code == 0, text
    assert "chief:0 | hello\r\n" in text
    assert "\x1b" not in text
