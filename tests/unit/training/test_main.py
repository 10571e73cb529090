"""How a child starts, loads its workload and ends."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer import host
from trainer.job import environment
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.training import main as child
from trainer.workloads.digests import file_digests

pytestmark = pytest.mark.part("training")


def test_a_child_whose_log_is_on_a_full_disk_still_reports_its_error() -> None:
    ours, theirs = os.pipe()
    environ = {**os.environ, environment.EVENTS: str(theirs), "TRAINER_JOB": "{"}
    with (
        Path("/dev/full").open("w") as full,
        os.fdopen(ours) as events,
        subprocess.Popen(
            [sys.executable, "-m", "trainer.training.main"],
            stdin=subprocess.PIPE, stderr=full, env=environ, pass_fds=[theirs],
        ) as running,
    ):  # fmt: skip
        os.close(theirs)
        reported = [json.loads(line) for line in events]
        assert running.wait(60) == Exit.USER
    assert [(event["event"], event["code"]) for event in reported if event["event"] != "alive"] == [
        ("error", Exit.USER)
    ]


@pytest.mark.skipif(not host.LINUX, reason="elsewhere a thread has no priority of its own")
@pytest.mark.parametrize("index", [0, -1], ids=["chief", "ps"])
def test_no_thread_of_a_child_that_was_started_ahead_keeps_a_low_priority(index: int) -> None:
    spec = build({"name": "j", "strategy": "parameter_server", "workload": "digits", "tasks": {"worker": 1, "ps": 1}})
    ours, theirs = os.pipe()
    environ = {
        **os.environ, environment.EVENTS: str(theirs), environment.JOB: spec.model_dump_json(exclude_defaults=True),
        environment.WORKLOAD: json.dumps(file_digests(spec)), "TF_CONFIG": tasks_of(spec)[index].tf_config(),
        environment.AHEAD: "1",
    }  # fmt: skip
    with (
        os.fdopen(ours) as events,
        subprocess.Popen(
            [sys.executable, "-m", "trainer.training.main"], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environ, pass_fds=[theirs],
        ) as running,
    ):  # fmt: skip
        os.close(theirs)
        last = next(event for line in events if (event := json.loads(line))["event"] != "alive")
        own = os.getpriority(os.PRIO_PROCESS, 0)
        deadline = time.monotonic() + 10
        # The kernel may end a thread later than Python joins it: later still where its priority is low.
        while (found := _priorities(running.pid)) != {own} and time.monotonic() < deadline:
            time.sleep(0.01)
        running.kill()
    assert last == {"event": "warm"}
    assert found == {own}


def _priorities(process: int) -> set[int]:
    priorities = set()
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            priorities.add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
    return priorities


LOADER = "def model(): ...\ndef data(shard):\n    import beside\n"
LOADS_LATE = LOADER + "import keras\nN = keras.layers.Normalization()\n"


class Loader:
    """A child's, of a file with a module beside it; `loads` counts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = LOADER) -> None:
        self.path, self.beside, self.loads = folder / "mine.py", folder / "beside.py", 0
        self.path.write_text(text)
        self.beside.write_text("x = 1\n")
        self._spec = build({"name": "j", "strategy": "one_device", "workload": str(self.path)})
        monkeypatch.setenv(environment.WORKLOAD, json.dumps(file_digests(self._spec)))

    def stand_by(self) -> Callable[[], Any]:
        return child._loader(self._spec, self.load)

    def load(self) -> int:
        self.loads += 1
        return self.loads


@pytest.mark.parametrize(("text", "loads"), [(LOADER, 1), (LOADS_LATE, 0)], ids=["early", "late"])
def test_a_workload_is_loaded_once_while_standing_by_or_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, loads: int
) -> None:
    loader = Loader(tmp_path, monkeypatch, text)
    loaded = loader.stand_by()
    assert loader.loads == loads
    assert loaded() == loaded() == 1


def test_a_file_that_was_edited_before_the_child_came_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in (LOADER, LOADS_LATE):
        loader = Loader(tmp_path, monkeypatch, text)
        loader.path.write_text("def model(:\n")
        with pytest.raises(UserError, match=r"^workload: mine\.py changed while the job ran, .* start the job again, "):
            loader.stand_by()
        assert loader.loads == 0


@pytest.mark.parametrize("text", [LOADER, LOADS_LATE], ids=["early", "late"])
def test_a_child_that_stood_by_during_an_edit_does_not_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    loader = Loader(tmp_path, monkeypatch, text)
    loaded = loader.stand_by()
    loader.beside.write_text("x = 2\n")
    with pytest.raises(UserError, match=r"^workload: beside\.py changed while the job ran"):
        loaded()
    assert loader.loads == (text == LOADER), "edited code does not run"
    loader.beside.write_text("x = 1\n")
    assert loaded() == 1


def test_an_edit_while_the_file_is_loaded_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(tmp_path, monkeypatch)
    monkeypatch.setattr(loader, "load", lambda: loader.path.write_text(LOADS_LATE))
    with pytest.raises(UserError, match=r"^workload: mine\.py changed while the job ran"):
        loader.stand_by()
