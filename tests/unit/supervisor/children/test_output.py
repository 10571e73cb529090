"""What a program writes to stderr is copied, and its end kept."""

import os
import queue
import sys
from pathlib import Path

import pytest

from trainer.model_dir import rotation
from trainer.supervisor.children.output import STDERR, STDOUT, TAIL_BYTES, Output


def test_all_of_stderr_is_copied_and_its_end_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    stderr = Output(STDERR, log=log)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", "import sys; sys.stderr.write('y' * 300_000 + '\\nende \\u00fc\\n')"],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, stderr.theirs, 2)],
    )
    stderr.start()
    os.waitpid(pid, 0)
    stderr.wait(10)
    whole = "y" * 300_000 + "\nende ü\n"
    assert log.read_text() == f"before\n{whole}"
    assert capfd.readouterr().err == whole
    assert len(stderr.tail.encode()) == TAIL_BYTES
    assert stderr.tail.endswith("y\nende ü\n")


def test_a_log_that_is_full_becomes_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many children of a task as write to it: a program that logs a lot would fill the volume of its checkpoints."""
    monkeypatch.setattr(rotation, "MOST_BYTES", 1000)
    log, taken = tmp_path / "worker-0.log", queue.Queue[bytes]()
    outputs = [Output(None, log=log, take=taken.put) for _ in range(2)]
    pipes = [os.dup(output.theirs) for output in outputs]
    for output in outputs:
        output.start()
    lines = [f"line {number:03d} of one of two children of the task\n".encode() for number in range(100)]
    for number, line in enumerate(lines):
        os.write(pipes[number % 2], line)
        assert taken.get(timeout=10) == line
    for output, pipe in zip(outputs, pipes, strict=True):
        os.close(pipe)
        output.wait(10)
    files = [tmp_path / "worker-0.1.log", log]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(each.stat().st_size <= 1000 + len(lines[0]) for each in files)
    kept = b"".join(each.read_bytes() for each in files)
    assert kept
    assert b"".join(lines).endswith(kept), "the newest, without a gap"


def test_an_end_without_a_newline_does_not_begin_the_next_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Which is the verdict, that the launcher reads."""
    stderr = Output(STDERR, log=tmp_path / "log")
    os.write(stderr.theirs, b"no newline")
    stderr.start()
    stderr.wait(10)
    assert capfd.readouterr().err == "no newline\n"
    assert stderr.tail == "no newline"


def test_stdout_is_copied_and_taken_for_the_page(capfd: pytest.CaptureFixture[str]) -> None:
    taken: list[bytes] = []
    stdout = Output(STDOUT, take=taken.append)
    os.write(stdout.theirs, b"one\ntw")
    stdout.start()
    stdout.wait(10)
    assert b"".join(taken) == b"one\ntw"
    assert capfd.readouterr().out == "one\ntw"


def test_a_reader_of_stdout_that_is_gone_ends_no_copying() -> None:
    """As of a pipe into a program that has ended: the page goes on."""
    read, write = os.pipe()
    os.close(read)
    taken: list[bytes] = []
    stdout = Output(write, take=taken.append)
    os.write(stdout.theirs, b"x" * 100)
    stdout.start()
    stdout.wait(10)
    os.close(write)
    assert b"".join(taken) == b"x" * 100
