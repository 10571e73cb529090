"""The parts of the compose target that need no engine; the rest is tested in tests/compose."""

from __future__ import annotations

import io
import itertools
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.targets.base import Job, LogLine
from trainer.targets.compose import engine
from trainer.targets.compose.target import Compose


@pytest.mark.parametrize(("version", "oldest"), [("24.0.7", (24, 0)), ("26.1.5+dfsg1", (24, 0)), ("2.40.3-3", (2, 24))])
def test_new_enough(version: str, oldest: tuple[int, int]) -> None:
    engine._require("it", version, oldest)


@pytest.mark.parametrize(("version", "oldest"), [("20.10.24+dfsg1", (24, 0)), ("2.9.0", (2, 24)), ("1.29.2", (2, 24))])
def test_too_old(version: str, oldest: tuple[int, int]) -> None:
    with pytest.raises(TrainerError, match=f"^it is too old; {oldest[0]}.{oldest[1]} or newer is needed$") as caught:
        engine._require("it", version, oldest)
    assert caught.value.code is Exit.TARGET


# What `docker compose logs` does, in its own form; it follows for ever, as compose may.
DOCKER = r"""#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
printf 'j-worker-0-1   | step 1 | loss 0.5\n'
printf 'j-worker-1-1   | \n' >&2
printf 'j-worker-0-1   | 1/9\r9/9\n'
printf '\r\033[K\n\r\033[Kj-worker-1-1 exited with code 0\n'
case "$*" in *--follow*) exec sleep 600;; esac
exit "${CODE:-0}"
"""
LINES = [
    LogLine("worker:0", "step 1 | loss 0.5"),
    LogLine("worker:1", ""),
    LogLine("worker:0", "1/9\r9/9"),
    LogLine("compose", "j-worker-1-1 exited with code 0"),
]
SPEC = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}})


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program `docker`, and an engine on which the job has ended when it is looked at for the third time."""
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    looks = itertools.count(1)
    monkeypatch.setattr(engine, "connect", lambda: None)
    monkeypatch.setattr(engine, "_all_ended", lambda *_: next(looks) > 2)
    monkeypatch.setattr(engine, "CONTAINERS_POLL_SECONDS", 0.01)


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("follow", [False, True])
def test_lines_name_their_tasks_until_the_job_has_ended(follow: bool) -> None:
    assert list(engine.logs(SPEC, None, follow)) == LINES


@pytest.mark.usefixtures("docker")
def test_of_one_task_only_its_service_is_asked_for(tmp_path: Path) -> None:
    list(engine.logs(SPEC, "worker:1", follow=False))
    assert (tmp_path / "asked").read_text() == "compose --project-name j logs --no-color j-worker-1\n"
    with pytest.raises(UserError, match=r"^task: 'worker:2': must be TYPE:INDEX of a task of j: worker:0, worker:1; "):
        list(engine.logs(SPEC, "worker:2", follow=False))


@pytest.mark.usefixtures("docker")
def test_a_caller_that_wants_no_more_lines_ends_compose() -> None:
    lines = engine.logs(SPEC, None, follow=True)
    assert next(lines) == LINES[0]
    lines.close()


@pytest.mark.usefixtures("docker")
def test_a_job_that_is_removed_while_it_is_followed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count(1)

    def all_ended(*_: object) -> bool:
        if next(looks) > 1:
            raise engine._problem("j: no such job")
        return False

    monkeypatch.setattr(engine, "_all_ended", all_ended)
    with pytest.raises(TrainerError, match="no such job"):
        list(engine.logs(SPEC, None, follow=True))


@pytest.mark.usefixtures("docker")
def test_a_failure_of_compose_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODE", "3")
    with pytest.raises(TrainerError, match="`docker compose logs` ended with exit code 3"):
        list(engine.logs(SPEC, None, follow=False))


def test_a_name_alone_is_refused() -> None:
    with pytest.raises(UserError, match=r"^JOB: 'digits': is no file; compose knows a job by its spec$"):
        Compose().delete(Job("digits"))


class Ended:
    """A container that has ended: the engine knows its files."""

    def __init__(self, **files: str) -> None:
        self.files = {path.replace("__", "/"): text.encode() for path, text in files.items()}

    def get_archive(self, path: str) -> tuple[Iterator[bytes], dict[str, object]]:
        whole, content = io.BytesIO(), self.files.get(path.removeprefix("/workspace/runs/j/"))
        if content is None:
            raise NotFound(path)
        with tarfile.open(fileobj=whole, mode="w") as archive:
            member = tarfile.TarInfo(path.rpartition("/")[2])
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        return iter([whole.getvalue()]), {}


RESULT = (Path(__file__).parents[3] / "compatibility/0.2.0/program/result.json").read_text()


@pytest.mark.parametrize(
    ("files", "succeeded"),
    [
        ({".trainer/.lock": "", ".trainer/result.json": RESULT, "result.json": "of the program"}, True),
        ({".trainer/.lock": "", "result.json": RESULT, ".lock": "of the program"}, False),
        ({"result.json": RESULT}, False),
        ({".lock": "", "result.json": RESULT}, True),
        ({".lock": ""}, False),
    ],
    ids=["", "a program's", "a program's, before the job", "of 0.2", "of 0.2, stopped"],
)
def test_the_result_of_a_container_that_has_ended_is_trainer_s(files: dict[str, str], succeeded: bool) -> None:
    container: Any = Ended(**files)
    found, problem = engine._result(container, SPEC)
    assert (found is not None, problem) == (succeeded, None)
