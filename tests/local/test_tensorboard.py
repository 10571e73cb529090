"""A job's texts and shares of time, as a real TensorBoard serves them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import PACED, mirrored
from tests.tools.harness import Job


class TensorBoard:
    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/data"

    def ask(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self._address}/{path}?{urllib.parse.urlencode(query)}", timeout=30) as response:
            return json.load(response)

    def texts(self, kind: str) -> list[str]:
        """What it shows of a kind of events, as HTML."""
        return [each["text"] for each in self.ask("plugin/text/text", run="job", tag=f"events/{kind}")]


@contextlib.contextmanager
def tensorboard(folder: Path, log: Path, fast: bool) -> Iterator[TensorBoard]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--logdir", str(folder), "--port", str(port), "--load_fast", "true" if fast else "false"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", *words], stdout=output, stderr=output, start_new_session=True
        )
    try:
        found, deadline = TensorBoard(port), time.monotonic() + 120
        while True:  # until it has read the runs
            with contextlib.suppress(OSError, ValueError):
                if "ended" in " ".join(found.ask("plugin/text/tags").get("job", [])):
                    break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield found
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_it_shows_what_happened_and_where_the_time_of_each_task_goes(tmp_path: Path) -> None:
    spec = mirrored(steps=1500, workload=PACED, train={"checkpoint_steps": 100})
    with Job(tmp_path, spec) as job:
        job.until_step(250)
        job.signal("worker:0", "pid")  # the chief: the next one writes files of its own
        job.until_formed_again(1)
        step = job.status()["step"]
        job.until_step(step + 200)
        job.signal("worker:1", "child_pid")
        assert job.wait() == 0, job.output
    for fast in (True, False):
        with tensorboard(job.model_dir / "tensorboard", tmp_path / "log", fast) as shown:
            assert {"metrics", "job", "worker-0", "worker-1"} <= set(shown.ask("runs"))
            formed, (lost,), (ended,) = shown.texts("formed"), shown.texts("lost"), shown.texts("ended")
            assert [f"generation {n} formed" in text for n, text in enumerate(formed, 1)] == [True] * 3
            assert "worker:1 lost (killed by SIGKILL), re-forming" in lost
            assert "step 1500: the job is done" in ended
            assert len(shown.texts("checkpoint")) >= 10
            for run in ("job", "worker-0", "worker-1"):
                curve = shown.ask("plugin/scalars/scalars", run=run, tag="share_of_time/compute")
                assert curve, run
                assert all(0 <= value <= 1 for _, _, value in curve), (run, curve)
