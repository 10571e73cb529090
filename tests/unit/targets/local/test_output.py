"""The file of what a job has printed on this machine, as it is read while it is written."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from trainer.job.errors import UserError
from trainer.model_dir import layout, rotation
from trainer.targets.base import LogLine
from trainer.targets.local import output
from trainer.targets.local.output import Output


def test_lines_are_those_of_the_last_job(tmp_path: Path) -> None:
    """Whatever its tasks print, it began where the launcher says so."""
    with contextlib.closing(Output(str(tmp_path))) as kept:
        kept.line("local", output.started())
        kept.line("worker:0", "of the first")
        kept.line("local", output.started())
        kept.line("worker:0", f"x {output.STARTS}0.2")
        kept.line("worker:0", "of the | second")
    assert list(output.lines(str(tmp_path), lambda: False)) == [
        LogLine("worker:0", f"x {output.STARTS}0.2"),
        LogLine("worker:0", "of the | second"),
    ]


def test_lines_are_followed_into_the_next_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MOST_BYTES", 100)
    monkeypatch.setattr(output, "LINES_POLL_SECONDS", 0.0)
    steps = iter(range(8))
    with contextlib.closing(Output(str(tmp_path))) as kept:
        kept.line("local", output.started())

        def more() -> bool:
            """Writes one line whenever a reader wants more."""
            if (step := next(steps, None)) is None:
                return False
            kept.line("worker:0", f"step {step} of a job that prints a lot")
            return True

        found = [line.text for line in output.lines(str(tmp_path), more)]
    assert found == [f"step {step} of a job that prints a lot" for step in range(8)]
    assert (layout.logs(tmp_path) / "output.1.log").exists()


def test_the_file_shows_whether_it_is_still_written(tmp_path: Path) -> None:
    assert not output.written(str(tmp_path))
    with contextlib.closing(Output(str(tmp_path))) as kept:
        kept.line("local", "x")
        assert output.written(str(tmp_path))
    assert not output.written(str(tmp_path))


def test_the_next_file_is_locked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MOST_BYTES", 10)
    with contextlib.closing(Output(str(tmp_path))) as kept:
        kept.line("local", "longer than ten bytes")
        assert output.written(str(tmp_path))


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        (output.ended(13, "worker:1: the loss is nan"), "worker:1: the loss is nan"),
        (output.ended(0, ""), ""),
        ("worker:1 was killed, restarting it", ""),
    ],
)
def test_the_verdict_is_that_of_the_last_line(tmp_path: Path, last: str, verdict: str) -> None:
    with contextlib.closing(Output(str(tmp_path))) as kept:
        kept.line("local", output.started())
        kept.line("local", last)
    assert output.verdict(str(tmp_path)) == verdict


def test_a_folder_that_cannot_be_written_is_a_user_s_error(tmp_path: Path, unprivileged: None) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match=r"cannot be written: Permission denied; choose another one$"):
        output.begin(str(tmp_path / "run"))
