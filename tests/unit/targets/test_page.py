"""Where the page of a job is, by its state and its files."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.fake import STATUS
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.model_dir import layout
from trainer.targets import page
from trainer.targets.base import ContainerState, JobOverview, Page
from trainer.targets.tunnel import Dial, ProcessStream


@contextlib.asynccontextmanager
async def tunnel() -> AsyncIterator[Dial]:
    yield ProcessStream.start


PENDING = JobOverview("j", "pending", tasks={"chief:0": ContainerState("pending", reason="no node has 9 GPUs")})
MUTE = JobOverview("j", "running", tasks={"chief:0": ContainerState("running")})
RUNNING = JobOverview("j", "running", job=STATUS)
FAILED = JobOverview("j", "failed", 13)


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes with each look."""
    seconds = itertools.count()
    monkeypatch.setattr("trainer.targets.page.time.monotonic", lambda: next(seconds))
    monkeypatch.setattr(page, "CHIEF_POLL_SECONDS", 0.0)


def behind(*found: JobOverview, said: list[str] | None = None, **spec: Any) -> Page:
    answers = itertools.chain(found, itertools.repeat(found[-1]))
    given = build({"name": "j", "strategy": "one_device", **spec}) if spec else None
    return page.behind(tunnel, lambda: next(answers), ([] if said is None else said).append, given)


def test_a_chief_that_runs_is_reached_through_the_tunnel() -> None:
    said = list[str]()
    assert behind(PENDING, PENDING, MUTE, RUNNING, said=said) == Page(tunnel=tunnel)
    assert said == [
        "waiting for the chief: chief:0 is pending: no node has 9 GPUs",
        "waiting for the chief: chief:0 does not answer yet",
    ]


def test_a_chief_that_does_not_come_is_an_error_after_a_time() -> None:
    with pytest.raises(TrainerError) as caught:
        behind(PENDING)
    assert caught.value.code is Exit.TARGET
    assert str(caught.value) == "j: its chief does not run after 120 s: chief:0 is pending: no node has 9 GPUs"


def test_a_job_that_has_ended_is_shown_from_its_folder_if_that_is_here(tmp_path: Path) -> None:
    (layout.make_own(tmp_path) / "result.json").write_text("{}")
    assert behind(FAILED, model_dir=str(tmp_path)) == Page(folder=str(tmp_path))
    specs: list[dict[str, Any]] = [{"model_dir": str(tmp_path / "elsewhere")}, {}]
    for spec in specs:
        with pytest.raises(TrainerError, match=r"^j: has ended \(failed\), and its files are in its volume: copy its"):
            behind(FAILED, said=None, **spec)


@pytest.mark.parametrize("name", ["history.json", "result.json", "state.json", "metrics.jsonl"])
def test_a_folder_is_shown_if_a_job_has_left_something_there(name: str, tmp_path: Path) -> None:
    (tmp_path / name if name == "metrics.jsonl" else layout.make_own(tmp_path) / name).write_text("{}")
    assert page.of_files(str(tmp_path)) == Page(folder=str(tmp_path))


@pytest.mark.parametrize(("name", "why"), [("", "no job has left anything there"), ("gone", "there is no such folder")])
def test_a_folder_without_a_job_is_an_error(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=why):
        page.of_files(str(tmp_path / name))
