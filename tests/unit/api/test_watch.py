"""The live table of any target, without a notebook: tests/local/test_notebook.py has one."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import trainer
from tests.unit.cli import fake
from trainer.api.watch import draw
from trainer.model_dir.result import JobEvent
from trainer.protocol.status import TaskRow
from trainer.targets import base
from trainer.targets.base import ContainerState, JobOverview
from trainer.targets.show.table import Drawing


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(base.TARGETS, "fake", base.Entry("tests.unit.cli.fake:Fake", poll_seconds=0.0))
    monkeypatch.setattr(fake, "PHASES", [])


def text(drawing: Drawing) -> list[str]:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(drawing)
    return [line.rstrip() for line in console.export_text().splitlines()]


def html(drawing: Drawing) -> str:
    return drawing._repr_mimebundle_(include=[], exclude=[])["text/html"]


def test_the_table_has_the_tasks_of_the_target_and_the_figures_of_the_chief() -> None:
    tasks = {"chief:0": ContainerState("running", restarts=2), "worker:0": ContainerState("pending", reason="no node")}
    lines = text(draw(JobOverview("j", "running", tasks=tasks, job=fake.STATUS)))
    assert lines[1].split() == ["j", "multi_worker_mirrored", "running", "generation", "1"]
    assert lines[2].startswith("step 5/2000 ")
    assert [line.split() for line in lines[4:] if "──" not in line] == [
        ["worker:0:", "pending:", "no", "node"],
        ["task", "state", "step", "loss", "accuracy", "examples/s", "restarts"],
        ["chief:0", "starting", "-", "-", "-", "-", "2"],
        ["worker:0", "running", "4", "-", "-", "-", "1"],
    ]


def test_a_job_whose_chief_does_not_answer_is_described() -> None:
    tasks = {"chief:0": ContainerState("pending", reason="no node")}
    lines = text(draw(JobOverview("j", "pending", last_line="bye", tasks=tasks)))
    assert lines == [
        "j",
        "phase      pending",
        "last line  bye",
        "",
        "task     state    reason",
        "chief:0  pending  no node",
    ]


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&lt;b&gt;"])
def test_what_others_have_written_never_becomes_html(hostile: str) -> None:
    events = [JobEvent(0.0, hostile)]
    status = replace(
        fake.STATUS, job=hostile, strategy=hostile, waiting_for=hostile, events=events,
        tasks={hostile: TaskRow(state="running", figures={"step": hostile})},
    )  # fmt: skip
    tasks = {hostile: ContainerState("running", reason=hostile)}
    for found in (
        JobOverview(hostile, "running", tasks=tasks, job=status),
        JobOverview(hostile, "failed", last_line=hostile, tasks=tasks),
    ):
        shown = html(draw(found))
        assert hostile not in shown
        assert hostile.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:12] in shown


def test_what_others_have_written_is_no_markup() -> None:
    name = "[link=javascript:alert(1)]x[/link]"
    status = replace(fake.STATUS, tasks={name: TaskRow(state="running")})
    drawn = draw(JobOverview("j", "running", job=status))
    assert "href" not in html(drawn)
    assert name in "\n".join(text(drawn))


def test_outside_a_notebook_the_last_table_stays(capsys: pytest.CaptureFixture[str]) -> None:
    fake.PHASES[:] = ["running", "failed"]
    trainer.watch("j", "fake")
    assert fake.PHASES == []
    out = capsys.readouterr().out
    assert "j  multi_worker_mirrored" in out


def test_a_job_that_was_not_started_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started by a look at it."""
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("{name: j, strategy: one_device}")
    for job in ("job.yaml", trainer.load("job.yaml")):
        with pytest.raises(trainer.UserError, match=r"^runs/j: no job runs there on this machine; none was started"):
            trainer.watch(job, "local")
