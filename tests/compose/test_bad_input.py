"""Users' mistakes on a container engine: one line with the fix, a documented exit code, and nothing left running."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compose.project import CLIENT, Project, left_of, trainer
from tests.local import specs
from trainer.job.errors import Exit

pytestmark = pytest.mark.part("compose")

SPEC = {**specs.mirrored(steps=20), "name": "bad-input"}


@pytest.fixture
def spec_file(tmp_path: Path) -> Any:
    def write(**more: Any) -> str:
        (tmp_path / "job.yaml").write_text(yaml.safe_dump({**SPEC, **more}))
        return str(tmp_path / "job.yaml")

    return write


@pytest.mark.parametrize(
    ("more", "environ", "line"),
    [
        ({}, {"DOCKER_HOST": "unix:///nowhere.sock"}, "no Docker Engine answers"),
        (
            {"image": "trainer:nope"},
            {},
            "image: 'trainer:nope': is not on this machine; run `docker pull",
        ),
        (
            {"image": "trainer:cpu", "tasks": {"worker": {"replicas": 2, "gpus": 1}}},
            {},
            "tasks.worker.gpus: this Docker Engine has no NVIDIA runtime",
        ),
    ],
    ids=["no engine", "no image", "no GPU runtime"],
)
def test_submit_names_what_is_missing(spec_file: Any, more: Any, environ: Any, line: str) -> None:
    ended = trainer("submit", "--target", "compose", spec_file(**more), environ=environ)
    assert (ended.returncode, ended.stdout) == (Exit.TARGET, "")
    assert ended.stderr.startswith(f"trainer: {line}")
    assert ended.stderr.count("\n") == 1
    assert left_of("bad-input") == []


@pytest.mark.parametrize("command", ["status", "logs"])
def test_a_job_that_is_not_there_is_named(spec_file: Any, command: str) -> None:
    ended = trainer(command, "--target", "compose", spec_file())
    assert (ended.returncode, ended.stdout) == (Exit.TARGET, "")
    assert ended.stderr.startswith("trainer: bad-input: no such job on this Docker Engine")


def test_what_another_program_has_made_is_neither_used_nor_removed(spec_file: Any, tmp_path: Path) -> None:
    """A project of the job's name, as of a folder of that name, with a volume that is named like the job's; then that
    volume alone, and one that compose has not made."""
    service = {"image": "trainer:cpu", "entrypoint": ["sleep", "600"], "volumes": ["bad-input:/data"]}
    project = {"name": "bad-input", "services": {"bad-input": service}, "volumes": {"bad-input": {}}}
    (tmp_path / "compose.yml").write_text(yaml.safe_dump(project))
    compose = ["docker", "compose", "--file", str(tmp_path / "compose.yml")]
    words = ("--target", "compose", spec_file())

    def require_refused(*things: str) -> None:
        before = left_of("bad-input")
        for command in (("submit", *words), ("delete", *words), ("delete", *words, "--volumes")):
            ended = trainer(*command)
            assert (ended.returncode, ended.stdout) == (Exit.USER, "")
            assert f"with what trainer did not create: {', '.join(things)}; " in ended.stderr
        assert left_of("bad-input") == before

    try:
        subprocess.run([*compose, "up", "--detach"], check=True, capture_output=True, timeout=60)
        require_refused("container bad-input-bad-input-1", "volume bad-input_bad-input", "network bad-input_default")
        subprocess.run([*compose, "down", "--timeout", "0"], check=True, capture_output=True, timeout=60)
        require_refused("volume bad-input_bad-input")
    finally:
        subprocess.run([*compose, "down", "--timeout", "0", "--volumes"], check=True, capture_output=True, timeout=60)
    volume = CLIENT.volumes.create("bad-input_bad-input")
    try:
        require_refused("volume bad-input_bad-input")
    finally:
        volume.remove()


def test_status_has_the_reason_of_each_task_that_does_not_run(tmp_path: Path) -> None:
    """Of two tasks one needs more memory than it may have, and the container of the other is removed."""
    words = ["python3", "-c", "import json, os\nif '\"index\": 0' in os.environ['TF_CONFIG']: bytearray(1 << 30)"]
    tasks = {"worker": {"replicas": 2, "memory": "300Mi"}}
    spec = {"name": "reasons", "strategy": "multi_worker_mirrored", "program": words, "code": [], "tasks": tasks}
    with Project(tmp_path, {**spec, "resume": "none"}) as project:
        assert project.wait() == 1, project.output
        project.container("worker:1").remove(force=True)
        status = trainer("status", "--target", "compose", str(tmp_path / "job.yaml"))
    assert [" ".join(line.split()) for line in status.stdout.splitlines()] == [
        "phase failed",
        "last line trainer: worker:0 lost (out of memory at its limit of 300 MiB, killed by the kernel; raise "
        "tasks.worker.memory), and the program does not resume (resume: none)",
        "",
        "task state code restarts reason",
        "worker:0 exited 14 4",
        "worker:1 missing it has no container; submit the job again to create it",
    ]


@pytest.fixture
def full_volume() -> Any:
    """A volume of 200 kB; a container keeps it mounted, because an unused tmpfs disappears."""
    options = {"type": "tmpfs", "device": "tmpfs", "o": "size=200k,uid=1000"}
    volume = CLIENT.volumes.create("full-up", driver="local", driver_opts=options)
    holder = CLIENT.containers.run(
        "trainer:cpu",
        ["infinity"],
        entrypoint="sleep",
        detach=True,
        volumes={"full-up": {"bind": "/mnt", "mode": "rw"}},
    )
    yield {"volumes": {"full": {"external": True, "name": "full-up"}}}
    holder.remove(force=True)
    volume.remove()


def test_a_permanent_failure_is_reported_once_and_ends_the_job_with_its_code(tmp_path: Path, full_volume: Any) -> None:
    with Project(tmp_path, {**SPEC, "name": "full"}, full_volume) as project:
        assert project.wait() == 1, project.output
        assert project.exit_codes() == {"worker:0": Exit.USER, "worker:1": Exit.USER}
        for task in ("worker:0", "worker:1"):
            container = project.container(task)
            log = container.logs().decode()
            assert (log.count("No space left on device"), container.attrs["RestartCount"]) == (1, 4), log
        assert 'service "full-worker-0" didn\'t complete successfully: exit 2' in project.output
