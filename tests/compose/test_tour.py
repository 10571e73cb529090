"""One job in containers, from its submit to its delete, at which these tests look in turn: three workers, evaluator.

Each test needs those before it: `pytest tests/compose/test_tour.py`, never one of them alone. Those that change nothing
come first; then the chief is killed, and the job ends.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compose.project import Submitted, left_of, run_in, trainer
from tests.local import specs
from tests.tools.debugged import Debugged
from tests.tools.harness import TRAINER
from tests.tools.opened import opened, require_that_a_second_one_ends
from trainer.job.errors import Exit

STEPS = specs.TOUR_STEPS
GATE = "/workspace/runs/tour/go"
TASKS = {"worker:0", "worker:1", "worker:2", "evaluator:0"}


@dataclass
class Tour:
    job: Submitted
    folder: Path
    following: subprocess.Popen[str]
    """`trainer logs --follow`, from the submit to the job's end."""


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    folder = tmp_path_factory.mktemp("tour")
    with Submitted(folder, {**specs.tour(GATE), "name": "tour"}) as job:
        following = subprocess.Popen([*TRAINER, "logs", *job.words, "--follow"], stdout=subprocess.PIPE, text=True)
        try:
            yield Tour(job, folder, following)
        finally:
            following.kill()
            following.communicate()


def test_status_shows_each_task(tour: Tour) -> None:
    tour.job.until_step(1)
    status = trainer("status", *tour.job.words)
    assert status.returncode == 0, status.stderr
    rows = [line.split() for line in status.stdout.splitlines()]
    assert {row[0] for row in rows if row[1:2] == ["running"]} == {*TASKS, "phase"}


def test_another_spec_of_its_name_is_refused_while_it_runs(tour: Tour) -> None:
    before = {name: tour.job.container(name).id for name in TASKS}
    other = trainer("submit", *tour.job.words, "--set", "train.steps=7")
    assert (other.returncode, other.stdout) == (Exit.USER, "")
    assert f"name: 'tour': is taken by another job, which runs (train.steps: {STEPS} there, 7 here" in other.stderr
    assert other.stderr.count("\n") == 1
    assert trainer("submit", *tour.job.words).returncode == 0, "its own spec changes nothing"
    assert {name: tour.job.container(name).id for name in TASKS} == before


def test_stacks_are_of_each_task(tour: Tour) -> None:
    shown = trainer("stacks", *tour.job.words)
    assert shown.returncode == 0, shown.stderr
    assert all(task in shown.stdout for task in TASKS), shown.stdout


def test_an_archive_of_a_job_that_runs_has_files_of_its_chief_and_stacks(tour: Tour, tmp_path: Path) -> None:
    tour.job.until("a checkpoint", lambda s: s["last_checkpoint"])
    found = Debugged(tmp_path, *tour.job.words)
    assert found.headline == "tour runs (running), and nothing has failed"
    assert json.loads(found.text("model_dir/state.json"))["generation"] == 1
    assert "worker:0" in found.text("stacks/now.txt")


def last_step(job: Submitted) -> int:
    step: int = json.loads(job.file("metrics.jsonl").splitlines()[-1])["step"]
    return step


def relays(job: Submitted) -> list[str]:
    """The processes of open connections."""
    top = job.container("worker:0").top(ps_args="-o pid,args")
    return [words[1] for words in top["Processes"] if "relay" in words[1]]


def test_the_page_is_live_and_goes_on_when_the_chief_is_killed_until_the_job_ends(tour: Tour) -> None:
    job = tour.job
    with opened(*job.words) as page:
        found = page.require_live(lambda: last_step(job), TASKS, 1)
        require_that_a_second_one_ends(*job.words)
        deadline = time.monotonic() + 20
        while relays(job):
            assert time.monotonic() < deadline, f"connections are left: {relays(job)}"
            time.sleep(0.1)
        job.kill("worker:0")
        again = page.until_next_chief(found)
        assert run_in(job.container("worker:0"), f"open({GATE!r}, 'w')")[0] == 0
        code, out, err = page.until_it_ends()
    assert (code, out, err.splitlines()[-1]) == (Exit.OK, "", "trainer: tour is over: done")
    assert {line.partition(": ")[2].partition(": ")[0] for line in err.splitlines()[:-1]} <= {"waiting for the chief"}
    ended = trainer("ui", *job.words)
    assert ended.returncode == Exit.TARGET
    advice = re.fullmatch(
        r"trainer: tour: has ended \(done\), and its files are in its volume: `(.+)`, then `trainer ui (.+)`\n",
        ended.stderr,
    )
    assert advice, ended.stderr
    subprocess.run(shlex.split(advice[1]), check=True, cwd=tour.folder, timeout=60)
    with opened(str(tour.folder / advice[2])) as page:
        kept = page.state()
    assert (kept["live"], kept["status"]["phase"], kept["status"]["step"]) == (False, "done", STEPS)
    assert kept["history"]["marks"][: len(again["history"]["marks"])] == again["history"]["marks"]


def test_logs_are_followed_to_the_end_and_read_after_it(tour: Tour) -> None:
    followed, _ = tour.following.communicate(timeout=60)
    assert tour.following.returncode == 0
    # Ends too where the job is over.
    again = trainer("logs", *tour.job.words, "--follow")
    assert again.returncode == 0, again.stderr
    for printed in (followed, again.stdout):
        assert f"done: steps={STEPS} " in printed
        assert TASKS <= {line.split()[0] for line in printed.splitlines()} <= {*TASKS, "compose"}


def test_status_shows_the_end(tour: Tour) -> None:
    status = trainer("status", *tour.job.words)
    assert status.returncode == 0, status.stderr
    rows = [line.split() for line in status.stdout.splitlines()]
    assert ["steps", f"{STEPS:,}"] in rows
    assert ["worker:0", "exited", "1"] in rows, "with its restart"
    assert ["worker:1", "exited"] in rows


def test_delete_keeps_the_volumes_and_then_leaves_nothing(tour: Tour) -> None:
    assert trainer("delete", *tour.job.words).returncode == 0
    assert sorted(left_of("tour")) == ["tour_tour", "tour_tour-report-secret"], "the volumes stay"
    assert trainer("delete", *tour.job.words, "--volumes").returncode == 0
    assert left_of("tour") == []
