"""The page of real jobs on this machine: what it shows is true, and no secret; live and from files."""

from __future__ import annotations

import json
import secrets
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.local import specs
from tests.tools.harness import Job
from tests.tools.opened import Shown
from trainer.page import files

WORKLOAD = """
import json, os, sys, time
import keras, numpy as np, tensorflow as tf
from trainer.workloads.digits import DATASET, model

SETTINGS = {"folder": ""}
INDEX = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
print("9999-12-31 23:59:59.999999: I a line\\tthat no report may have", flush=True)
for file in (sys.stdout, sys.stderr):
    print("it has", os.environ["API_KEY"], "and", os.environ["PLAIN_TOKEN"], file=file, flush=True)


def count():
    with open(f"{SETTINGS['folder']}/{INDEX}", "ab") as file:
        file.write(b".")
    time.sleep(0.01)
    return np.int64(0)


def loss(y, prediction):
    with tf.control_dependencies([tf.numpy_function(count, [], tf.int64)]):
        return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)
"""
ROUTES = ["", "page/page.js", "page/state", "page/logs?limit=5000", "status", "metrics", "healthz", "stacks"]


class Counted:
    """A job that counts its steps itself, with secrets of each kind."""

    def __init__(self, folder: Path) -> None:
        (folder / "counts").mkdir()
        (folder / "told.py").write_text(WORKLOAD)
        self.folder = folder
        self.planted = {"API_KEY": secrets.token_hex(12), "PLAIN_TOKEN": secrets.token_hex(12)}
        spec = specs.mirrored(
            steps=100_000, workload="told.py", settings={"folder": str(folder / "counts")},
            secrets={"API_KEY": {}}, env={"PLAIN_TOKEN": self.planted["PLAIN_TOKEN"]}, train={"checkpoint_steps": 50},
        )  # fmt: skip
        self.job = Job(folder, spec, environ={"API_KEY": self.planted["API_KEY"]})

    def steps(self, task: int = 0) -> int:
        """Those that a worker has made."""
        return (self.folder / f"counts/{task}").stat().st_size

    def page(self) -> Shown:
        begin = "local | page: "
        return Shown(next(line.removeprefix(begin) for line in self.job.lines if line.startswith(begin)))

    def secret_of_reports(self) -> str:
        environ = Path(f"/proc/{self.job.pid('worker:0', 'pid')}/environ").read_text().split("\0")
        return next(each.removeprefix("TRAINER_SECRET=") for each in environ if each.startswith("TRAINER_SECRET="))


def marks(document: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    return [(mark.get("task", ""), mark["text"]) for mark in document["history"]["marks"] if mark["kind"] == kind]


def assert_continues(document: dict[str, Any], before: dict[str, Any]) -> None:
    """A document has all points and marks of an earlier one."""
    assert document["job"] == before["job"]
    assert document["history"]["marks"][: len(before["history"]["marks"])] == before["history"]["marks"]
    both = [(document["history"]["job"], before["history"]["job"])]
    both += [(document["history"]["tasks"][name], each) for name, each in before["history"]["tasks"].items()]
    for now, then in both:
        for name, column in then.items():
            if isinstance(column, list):
                assert now[name][: len(column)] == column, name


def test_what_the_page_shows_is_true_and_outlasts_its_chief(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    with counted.job as job:
        job.until_step(20)
        page = counted.page()
        made = counted.steps()
        found = page.until("the steps that were made", lambda found: found["status"]["step"] >= made)
        shown = [found["status"]["step"], *page.steps(3)]
        assert shown[-1] <= counted.steps()
        assert shown == sorted(shown)

        job.signal("worker:1", number=signal.SIGKILL)
        job.until_formed_again(1)
        found = page.state()
        ((task, text),) = marks(found, "lost")
        assert task == "worker:1"
        assert "killed by SIGKILL" in text
        formed = [text.split()[1] for _, text in marks(found, "formed")]
        assert formed == ["1", "2"]

        job.signal("worker:0", "pid")
        job.until_formed_again(2)
        again = page.state()
        assert marks(again, "lost")[0] == (task, text)
        assert again["history"]["job"]["time"][0] == found["history"]["job"]["time"][0]
        page.until("steps after it", lambda found: found["status"]["step"] > again["status"]["step"])
        last = page.state()
        assert last["status"]["step"] <= counted.steps()
        job.process.send_signal(signal.SIGTERM)
        job.wait()
    kept = json.loads(files.text(str(job.model_dir)))
    assert_continues(kept, last)
    assert not kept["live"]
    assert marks(kept, "stopped")
    saved = [mark["step"] for mark in kept["history"]["marks"] if mark["kind"] == "checkpoint"]
    assert saved
    assert saved == sorted(set(saved)), "none twice"


@pytest.mark.slow
def test_no_route_has_a_secret(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    with counted.job as job:
        job.until_step(5)
        page, planted = counted.page(), {**counted.planted, "of reports": counted.secret_of_reports()}
        hidden = "it has [hidden: API_KEY] and [hidden: PLAIN_TOKEN]"  # each task, to stdout and to stderr
        wanted = [("worker:0", hidden), ("worker:0", hidden), ("worker:1", hidden), ("worker:1", hidden)]
        page.until_lines(lambda lines: sorted(line for line in lines if line[1].startswith("it has")) == wanted)
        bodies = {route: page.get(route) for route in ROUTES}
        job.until_step(job.status()["step"] + 100)
        assert job.status()["generation"] == 1, "nothing is lost for what a task writes"
        job.process.send_signal(signal.SIGTERM)
        job.wait()
    bodies["page/state, from files"] = files.text(str(job.model_dir)).encode()
    for route, body in bodies.items():
        for name, value in planted.items():
            assert value.encode() not in body, (route, name)
