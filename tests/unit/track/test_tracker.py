"""The run at MLflow, with servers that are not as they should be. tests/local/test_mlflow.py has the real one."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tools.receiver import receiver
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, TrainerError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.model_dir import layout
from trainer.supervisor.outside import run_facts, tracking
from trainer.supervisor.outside.tracking import Tracker
from trainer.supervisor.outside.webhook import Ending

DONE = Ending(Exit.OK, "", 40, {"steps": 40, "test_accuracy": 0.97}, 75.4, 2, 1)


def spec_of(folder: Path | str, address: str, **more: Any) -> JobSpec:
    tracked = {"tracking": {"mlflow": address}}
    return build({"name": "j", "strategy": "one_device", "model_dir": str(folder), **tracked, **more})


def held() -> None:
    """This chief has the lease."""


def follow(
    spec: JobSpec, during: Callable[[Tracker], Awaitable[None]] | None = None, require: Callable[[], None] = held,
    seconds: float = 0.5,
) -> None:  # fmt: skip
    async def run() -> None:
        assert spec.tracking is not None
        tracker = Tracker(spec, spec.tracking, tasks_of(spec)[0], 1e9, require)
        if during:
            await during(tracker)
        await tracker.end(DONE, seconds)

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_server_that_never_answers_costs_the_time_of_the_end_alone(
    tmp_path: Path, taken: int, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(spec_of(tmp_path, f"http://127.0.0.1:{taken}"))
    why = f"127.0.0.1:{taken} did not take them within 0.5 s (deadlines.notify)"
    assert (
        capsys.readouterr().out == f"warning: tracking.mlflow: the run may lack its end, or its last figures: {why}\n"
    )


def test_a_server_that_is_down_is_named_once_and_at_the_end(
    tmp_path: Path, free: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "PAUSES", (0.01,))

    async def several_attempts(tracker: Tracker) -> None:
        while tracker._failures < 5:
            await asyncio.sleep(0.01)

    follow(spec_of(tmp_path, f"http://127.0.0.1:{free}"), several_attempts)
    first, last = capsys.readouterr().out.splitlines()
    why = f"127.0.0.1:{free} refused"
    assert first == f"warning: tracking.mlflow: {why}; training continues, and figures are sent later"
    assert last == f"warning: tracking.mlflow: the run may lack its end, or its last figures: {why}"


def test_pauses_grow_while_a_server_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def pause(self: Tracker, seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Tracker, "_pause", pause)

    async def several_attempts(_: Tracker) -> None:
        while len(waited) < 7:
            await asyncio.sleep(0.01)

    with receiver(*[404] * 1000) as server:
        follow(spec_of(tmp_path, server.address), several_attempts)
    assert waited[:7] == [*tracking.PAUSES, tracking.PAUSES[-1], tracking.PAUSES[-1]]


def test_a_chief_that_has_lost_its_place_makes_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def lost() -> None:
        raise TrainerError("another one has it", Exit.REPLACED)

    with receiver() as server:
        follow(spec_of(tmp_path, server.address), require=lost)
    assert server.requests == []
    assert not layout.mlflow(tmp_path).exists()
    assert capsys.readouterr().out == ""


def test_nothing_is_sent_after_a_chief_has_lost_its_place(tmp_path: Path) -> None:
    async def run(spec: JobSpec) -> None:
        assert spec.tracking is not None
        tracker = Tracker(spec, spec.tracking, tasks_of(spec)[0], 1e9, held)
        while not server.requests:
            await asyncio.sleep(0.01)
        await tracker.drop()

    with receiver(0) as server:
        asyncio.run(asyncio.wait_for(run(spec_of(tmp_path, server.address)), 30))
        assert len(server.requests) == 1


@pytest.mark.parametrize("found", ["", "{", '{"id": 3}', '{"id": "x\' OR 1"}', None])
def test_the_id_of_a_run_is_made_once_and_before_any_request(tmp_path: Path, found: str | None) -> None:
    path = layout.mlflow(tmp_path)
    if found is not None:
        path.write_text(found)
    ids = []
    for _ in range(2):
        with receiver(0) as server:
            follow(spec_of(tmp_path, server.address), seconds=0.2)
        ids.append(json.loads(path.read_text())["id"])
    assert ids[0] == ids[1]
    assert len(ids[0]) == 32


def test_a_model_dir_that_cannot_be_written_is_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout.mlflow(tmp_path).mkdir()
    with receiver() as server:
        follow(spec_of(tmp_path, server.address))
    assert server.requests == []
    assert "mlflow.json: cannot be written" in capsys.readouterr().out


def test_parameters_are_those_that_runs_are_compared_by(tmp_path: Path) -> None:
    spec = build(
        {
            "name": "j", "strategy": "parameter_server", "workload": "digits",
            "settings": {"width": 8, "names": ["é", 1]}, "tasks": {"ps": 1, "worker": 2},
            "env": {"API_KEY": "secret"}, "train": {"steps": 7, "learning_rate": 1e-4},
        }
    )  # fmt: skip
    found = run_facts.params(spec, tasks_of(spec)[0])
    wanted = {
        "strategy": "parameter_server", "workload": "digits", "tasks.ps": "1", "tasks.worker": "2", "train.steps": "7",
        "train.learning_rate": "0.0001", "settings.width": "8", "settings.names": '["é", 1]', "global_batch": "64",
    }  # fmt: skip
    assert {name: found.get(name) for name in wanted} == wanted
    assert "secret" not in str(found)
    program = build({"name": "j", "strategy": "one_device", "program": ["python", "a b.py"]})
    assert run_facts.params(program, tasks_of(program)[0]) == {
        "strategy": "one_device", "tasks.worker": "1", "program": "python 'a b.py'",
    }  # fmt: skip


def test_the_commit_is_that_of_the_repository_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    spec = build({"name": "j", "strategy": "one_device", "workload": str(tmp_path / "model.py")})
    assert "mlflow.source.git.commit" not in run_facts.tags(spec)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "log", "-1", "--format=%H"], check=True, capture_output=True, text=True).stdout
    assert run_facts.tags(spec)["mlflow.source.git.commit"] == commit.strip()


def test_tags_of_an_earlier_end_are_emptied_for_a_job_that_runs_again() -> None:
    assert run_facts.no_longer_true({}) == {}
    ended = run_facts.end_tags(DONE)
    assert ended["trainer.exit_code"] == "0"
    assert run_facts.no_longer_true(ended | {"trainer.message": "x"}) == {
        "trainer.exit_code": "",
        "trainer.message": "",
    }
