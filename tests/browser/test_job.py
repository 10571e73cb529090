"""A real job: what its page says agrees with its processes and files."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Open
from tests.browser.watch import Watch
from tests.tools.harness import Job, get_json
from trainer.model_dir import layout

SECONDS = 30
"""In which the page says who is slow and why, and that a task was killed."""
SLOW, KILLED = "worker:1", "worker:2"
WORKLOAD = """
import time

import keras
import numpy as np
import tensorflow as tf


def model():
    return keras.Sequential([keras.Input((16,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])


def data(shard):
    print(f"shard {shard.index} of {shard.split} <b>", flush=True)

    def examples():
        dice = np.random.default_rng(shard.index)
        while True:
            if shard.split == "train" and shard.index == 1:
                time.sleep(0.005)
            x = dice.normal(size=16).astype("float32")
            yield x, np.int32(x.sum() > 0)

    types = (tf.TensorSpec((16,)), tf.TensorSpec((), tf.int32))
    found = tf.data.Dataset.from_generator(examples, output_signature=types)
    return found if shard.split == "train" else found.take(200)
"""
SPEC: dict[str, Any] = {
    "name": "page",
    "strategy": "multi_worker_mirrored",
    "workload": "slow.py",
    "tasks": {"worker": 3},
    "train": {"steps": 1_000_000, "batch_size": 16, "log_steps": 5, "checkpoint_steps": 50},
}


@pytest.fixture(scope="module")
def job(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """In the browser's network (conftest.own_network)."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "slow.py").write_text(WORKLOAD)
    with Job(folder, SPEC) as job:
        job.until_step(5)
        yield job


def url(job: Job) -> str:
    port = json.loads(layout.state(job.model_dir).read_text())["control_port"]
    return f"http://127.0.0.1:{port}/"


def show(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = view }", view)
    expect(page.locator(f"#view-{view} h2")).to_be_visible()


def test_the_slow_worker_is_named_with_its_cause(job: Job, open_page: Open) -> None:
    page = open_page(url(job), clock=False)
    expect(page.locator(".verdict")).to_contain_text(f"{SLOW} is slow", timeout=SECONDS * 1000)
    show(page, "steps")
    first = page.locator("#view-steps tbody tr").first
    expect(first).to_contain_text(SLOW)
    assert first.locator("td").nth(1).inner_text() == "input"
    shares = job.status()["tasks"][SLOW]["shares"]
    assert max(shares, key=lambda part: shares[part] or 0) == "input"


def test_each_view_agrees_with_the_job_s_own_files_and_processes(job: Job, open_page: Open) -> None:
    job.until("a checkpoint", lambda status: (status["last_checkpoint"] or 0) >= 50)
    page = open_page(url(job), clock=False)
    before = job.status()["step"]
    shown = int(page.locator(".share").inner_text().split()[1].replace(",", ""))
    assert before - 50 <= shown <= job.status()["step"]

    show(page, "checkpoints")
    step = page.locator("#view-checkpoints tbody th").first.inner_text().replace(",", "")
    folder = job.model_dir / "checkpoints" / f"step-{int(step):08d}"
    assert folder.is_dir()
    assert int(step) % 50 == 0

    show(page, "spec")
    page.locator("#view-spec select").select_option(SLOW)
    config = json.loads(page.locator("#view-spec pre").last.inner_text())
    environ = Path(f"/proc/{job.pid(SLOW, 'pid')}/environ").read_bytes().decode().split("\0")
    (given,) = (json.loads(each.partition("=")[2]) for each in environ if each.startswith("TF_CONFIG="))
    assert config["cluster"] == given["cluster"]
    assert config["task"] == given["task"]

    show(page, "tasks")
    names = {row.split()[0] for row in page.locator("#view-tasks tbody tr").all_inner_texts()}
    assert names == set(job.status()["tasks"])


def test_the_logs_of_all_tasks_are_merged_and_searched(job: Job, open_page: Open) -> None:
    page = open_page(url(job), clock=False)
    show(page, "logs")
    for index in range(3):
        line = page.locator("#view-logs li", has_text=f"shard {index} of train <b>")
        expect(line.locator("a")).to_have_text(f"worker:{index}")
    expect(page.locator("#view-logs li", has_text="step 5/").locator("a")).to_have_text("worker:0")
    page.get_by_label("Search").fill("SHARD 1 OF TRAIN")
    expect(page.locator("#view-logs li")).to_have_count(1)
    page.get_by_label("Search").fill("")
    page.locator("#view-logs select").select_option(SLOW)
    expect(page.locator("#view-logs li a", has_text="worker:0")).to_have_count(0)
    expect(page.locator("#view-logs li a", has_text=SLOW).first).to_be_visible()


def test_a_killed_task_is_on_the_time_line(job: Job, open_page: Open) -> None:
    page = open_page(url(job), clock=False)
    show(page, "timeline")
    job.signal(KILLED, number=signal.SIGKILL)
    row = page.locator("#view-timeline tbody tr", has_text="SIGKILL")
    expect(row).to_be_visible(timeout=SECONDS * 1000)
    expect(row).to_contain_text(KILLED)
    assert "lost" in row.inner_text()
    formed = page.locator("#view-timeline tbody tr", has_text="generation 2 formed")
    expect(formed).to_be_visible(timeout=SECONDS * 1000)
    status = job.until_formed_again(1)
    expect(page.locator(".title")).to_contain_text(f"generation {status['generation']}")


def test_once_the_job_is_stopped_the_page_keeps_its_last_state(job: Job, open_page: Open, watch: Watch) -> None:
    """The last test of this job."""
    watch.expected.append("ERR_")
    page = open_page(url(job), clock=False)
    status = get_json(f"{url(job)}status")
    os.kill(job.process.pid, signal.SIGTERM)
    job.wait()
    expect(page.locator(".phase")).to_have_text("stopped")
    expect(page.locator(".notice")).to_contain_text("its chief has left")
    assert page.locator("h1").inner_text() == status["job"]
