"""One run of a user's program: real processes, which need no TensorFlow."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.protocol.facts import Cause, Loss
from trainer.supervisor.children.program import Program, exit_loss

SECONDS = 10


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program's, with a file for its stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").touch()
    return tmp_path


async def start(folder: Path, *words: str, **more: Any) -> Program:
    spec = build(
        {
            "name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 1}, "program": list(words),
            "code": [str(folder)], **more,
        }
    )  # fmt: skip
    return await Program.run(spec, tasks_of(spec)[0], folder / "log", {}, 1, lambda *_: None)


async def until(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, path
        await asyncio.sleep(0.01)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), SECONDS)

    asyncio.run(limited())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("echo x\n", r"is no program of this machine.* begin it with #!"),
        ("", r"is no program of this machine"),
        ("#!/no/such/python3\n", r"its interpreter is not there: '#!/no/such/python3'"),
        ("#!/usr/bin/env sh\r\n", None),
        ("#!/bin/sh\r\necho x\r\n", r"its interpreter is not there: '#!/bin/sh\\r'"),
        ("#!/etc/passwd\n", r"may not be executed: '#!/etc/passwd'"),
    ],
)
def test_a_file_that_the_system_does_not_execute_is_explained(folder: Path, text: str, rule: str | None) -> None:
    path = folder / "run"
    path.write_bytes(text.encode())
    path.chmod(0o755)

    async def test() -> None:
        if rule is None:
            child = await start(folder, "./run")
            await child.ended()
            assert child.failure is not None
            return
        with pytest.raises(UserError, match=rule) as caught:
            await start(folder, "./run")
        assert str(caught.value).startswith(f"program: {path}: ")

    run(test)


def test_what_a_program_runs_has_until_the_deadline_to_save(folder: Path) -> None:
    """A shell ends at SIGTERM, while the training that it runs in its group still saves."""
    (folder / "train.py").write_text(
        "import signal, time\n"
        "def save(*_):\n    time.sleep(0.5)\n    open('saved', 'w').close()\n    raise SystemExit\n"
        "signal.signal(signal.SIGTERM, save)\nopen('ready', 'w').close()\ntime.sleep(60)\n"
    )

    async def test() -> None:
        child = await start(folder, "sh", "-c", "python3 train.py; true", deadlines={"stop": 8})
        await until(folder / "ready")
        await child.dismiss()
        assert (folder / "saved").exists()
        child._kill_out_of_time()
        assert not child.out_of_time

    run(test)


def test_what_a_program_runs_is_killed_after_the_deadline(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ignores = "import signal, time; signal.signal(15, signal.SIG_IGN); open('ready', 'w').close(); time.sleep(60)"

    async def test() -> None:
        child = await start(folder, "sh", "-c", f'python3 -c "{ignores}"; true', deadlines={"stop": 1})
        await until(folder / "ready")
        began = time.monotonic()
        await child.dismiss()
        assert 1 <= time.monotonic() - began < SECONDS
        assert child.out_of_time
        killed = "worker:0: its program was killed: it had not ended within 1 s of SIGTERM (deadlines.stop)"
        assert capfd.readouterr().out.splitlines() == [killed]

    run(test)


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("sleep 600 & true", "sleep"),
        ("(setsid sleep 600 &) ; true", "sleep"),
        ("sleep 600 & wait_for=$!; kill $wait_for; true", None),
        ("echo x | cat", None),
        ("sleep 0.1 & true", None),
        ("sleep 600 & exit 3", None),
    ],
)
def test_a_program_that_leaves_its_training_in_the_background_is_noticed(
    folder: Path, capfd: pytest.CaptureFixture[str], script: str, left: str | None
) -> None:
    async def test() -> None:
        child = await start(folder, "sh", "-c", script)
        await child.ended()
        warned = "left processes that still ran, and were ended: "
        assert (warned in child.left_behind) == (left is not None)
        if left:
            assert re.search(
                rf"were ended: {left} \(\d+\); a script that starts its training with &", child.left_behind
            )
            assert f"warning: {child.left_behind}\n" in capfd.readouterr().out
            assert child.result is not None

    run(test)


def test_a_signal_from_elsewhere_is_not_explained_by_what_the_program_wrote(folder: Path) -> None:
    async def test() -> None:
        for number, why in ((9, "killed by SIGKILL"), (15, "killed by SIGTERM"), (6, "killed by SIGABRT: epoch 3")):
            child = await start(folder, "sh", "-c", f"echo epoch 3 >&2; kill -{number} $$$$")
            await child.ended()
            assert (child.loss().cause, str(child.loss())) == (Cause.KILLED, why)

    run(test)


def test_the_folder_of_the_reports_fits_a_socket_and_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch system may set a long TMPDIR; the address of a socket has at most 107 bytes."""
    (deep := folder / ("x" * 100)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))

    async def test() -> None:
        child = await start(folder, "sh", "-c", "test -S $TRAINER_REPORTS && echo $TRAINER_REPORTS > place")
        await child.ended()
        assert child.result is not None
        place = Path((folder / "place").read_text().strip())
        assert place.name == "reports"
        assert not place.parent.exists()
        assert folder.exists()

    run(test)


def test_figures_that_no_report_sends_are_left_out(folder: Path) -> None:
    """A program may write to the socket by itself, and all that read the status rely on plain JSON."""
    (folder / "report").write_bytes(rb'{"step": 7, "loss": NaN, "rows": [[1]], "big": 1e999, "text": "a\u001b[2J\nb"}')
    (folder / "send.py").write_text(
        "import os, pathlib, socket\n"
        "sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "for data in (b'[1]', pathlib.Path('report').read_bytes()):\n"
        "    sender.sendto(data, os.environ['TRAINER_REPORTS'])\n"
    )

    async def test() -> None:
        child = await start(folder, sys.executable, "send.py")
        await child.ended()
        assert child.status.step == 7
        assert child.status.figures == {"loss": "nan", "big": "inf", "text": "a?[2J?b"}

    run(test)


def test_a_hang_names_the_deadline_that_has_passed(folder: Path) -> None:
    async def test() -> None:
        child = await start(folder, "true")
        for step, deadline in ((9, "progress"), (10, "evaluation")):
            child._take_report(json.dumps({"step": step, "total": 10}).encode())
            assert child.silence_limit(child._spec.deadlines) == getattr(child._spec.deadlines, deadline)
            assert child.silence(7) == Loss(Cause.HANG, seconds=7, setting=f"deadlines.{deadline}")
            assert str(child.silence(7)) == f"no report for 7 s (deadlines.{deadline})"
        await child.ended()

    run(test)


def test_endings_in_words() -> None:
    assert [str(exit_loss(code)) for code in (3, 137, 255, -11, -40)] == [
        "exited with code 3", "exited with code 137 (SIGKILL)", "exited with code 255", "killed by SIGSEGV",
        "killed by signal 40",
    ]  # fmt: skip
    assert exit_loss(137, "x") == Loss(Cause.PROGRAM_ENDED, "x", signal="SIGKILL", status=137)
