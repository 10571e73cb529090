"""When a tracker begins, waits and ends. tests/local/test_mlflow.py has the real server."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.track.test_facts import write
from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.model_dir import layout
from trainer.model_dir import state as job_state
from trainer.protocol.facts import Began, Ended
from trainer.track.identity import Identity
from trainer.track.stop import Stop
from trainer.track.tracker import Asked, Life, settings

COMMAND = [sys.executable, "-m", "trainer", "track"]


class Asking(Stop):
    """A request to end that a test makes."""

    def __init__(self, asked: bool = False) -> None:
        self.asked = asked

    def wait(self, seconds: float | None) -> bool:
        return self.asked


def over(model_dir: Path, stop: bool = False, **asked: object) -> bool:
    made = Asked(str(model_dir), **asked)  # type: ignore[arg-type]
    return Life(made, Asking(stop)).look()[1]


def test_a_job_that_has_ended_is_over_unless_another_start_is_awaited(tmp_path: Path) -> None:
    write(tmp_path, Began("1"), Ended(0))
    assert over(tmp_path)
    assert not over(tmp_path, keep=True)
    assert not over(tmp_path, next=True)
    assert over(tmp_path, next=True, wait=-1)
    assert over(tmp_path, stop=True, keep=True)


def test_an_end_is_the_awaited_one_if_it_is_new_or_a_chief_was_seen(tmp_path: Path) -> None:
    write(tmp_path, Began("1"), Ended(0))
    life = Life(Asked(str(tmp_path), next=True), Asking())
    with job_state.lock(str(tmp_path)):
        assert not life.look()[1]
    assert life.look()[1]
    life = Life(Asked(str(tmp_path), next=True), Asking())
    write(tmp_path, Began("2"), Ended(0), at=time.time() + 1)
    assert life.look()[1]


def test_a_job_whose_chief_is_away_is_over_after_the_wait(tmp_path: Path) -> None:
    write(tmp_path, Began("1"))
    assert not over(tmp_path)
    assert over(tmp_path, wait=-1)
    assert not over(tmp_path, wait=-1, keep=True)
    with job_state.lock(str(tmp_path)):
        assert not over(tmp_path, wait=-1)
        assert not over(tmp_path, stop=True)  # its end comes
    assert over(tmp_path, stop=True)


def test_the_command_line_takes_precedence_over_the_spec() -> None:
    tracking = {"mlflow": "http://a/", "experiment": "e", "register_as": "m"}
    spec = build({"name": "j", "strategy": "one_device", "tracking": tracking})
    assert settings(Asked("d"), spec).model_dump() == {**tracking, "mlflow": "http://a"}
    asked = Asked("d", mlflow="http://b", experiment="f", register="n")
    assert settings(asked, spec).model_dump() == {"mlflow": "http://b", "experiment": "f", "register_as": "n"}
    with pytest.raises(UserError, match=r"^--mlflow: is missing: the spec of d has no tracking.mlflow"):
        settings(Asked("d"), build({"name": "j", "strategy": "one_device"}))


@pytest.mark.parametrize("found", ["", "{", '{"id": 3}', '{"id": "x\' OR 1"}', None])
def test_the_id_of_a_run_is_made_once(tmp_path: Path, found: str | None) -> None:
    path = layout.make_own(tmp_path) / "mlflow.json"
    if found is not None:
        path.write_text(found)
    made = Identity(str(tmp_path))
    assert json.loads(path.read_text()) == {"id": made.id}
    assert len(made.id) == 32
    with pytest.raises(UserError, match="another `trainer track` sends this job"):
        Identity(str(tmp_path))
    shutil.rmtree(path.parent)  # a program empties its model_dir
    made.keep()
    assert json.loads(path.read_text()) == {"id": made.id}
    made.close()
    with contextlib.closing(Identity(str(tmp_path))) as again:
        assert again.id == made.id


def test_a_model_dir_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (layout.make_own(tmp_path) / "mlflow.json").mkdir()
    with pytest.raises(UserError, match=r"mlflow.json: cannot be written: Is a directory; it keeps the id"):
        Identity(str(tmp_path))


def ended(folder: Path, address: str) -> Path:
    write(folder, Began("1"), Ended(0))
    spec = {"name": "j", "strategy": "one_device", "tracking": {"mlflow": address}, "deadlines": {"notify": 1}}
    (layout.make_own(folder) / "spec.json").write_text(json.dumps(spec))
    return folder


def test_a_server_that_is_away_at_the_end_is_two_lines_and_an_exit_code(tmp_path: Path, free: int) -> None:
    command = [*COMMAND, str(ended(tmp_path, f"http://127.0.0.1:{free}"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (Exit.TARGET, "")
    why = f"127.0.0.1:{free} refused the connection"
    assert done.stdout.splitlines() == [
        f"warning: tracking.mlflow: {why}; it is asked again, and nothing is lost meanwhile",
        f"warning: tracking.mlflow: the run may lack its end, or its last figures: {why}; `trainer track {tmp_path}` "
        "sends them",
    ]


def test_a_request_to_end_before_any_job_has_begun_is_quiet(tmp_path: Path) -> None:
    command = [*COMMAND, "--keep", str(tmp_path / "none")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        deadline = time.monotonic() + 60
        while not waits_for_signals(process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (Exit.STOPPED, "")


def waits_for_signals(pid: int) -> bool:
    """Whether the process handles SIGTERM (proc(5), SigCgt)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_without_mlflow_the_command_to_install_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.py").write_text("raise ModuleNotFoundError(\"No module named 'mlflow'\", name='mlflow')\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*COMMAND, "d"], capture_output=True, text=True, env=environ, timeout=120)
    assert done.returncode == Exit.USER
    wanted = "trainer: trainer track: MLflow's client is not installed; run: pip install 'mlflow-skinny>=3.17,<4'\n"
    assert done.stderr == wanted
