"""What is collected of a job on a cluster: files as a shell in a pod prints them, and objects as a server has them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainer.debug.ends import Ends
from trainer.model_dir import layout
from trainer.targets.kubernetes import evidence
from trainer.targets.kubernetes.names import COMPONENT, INSTANCE

POD: Any = {
    "metadata": {
        "name": "j-worker-1-x",
        "labels": {COMPONENT: "worker", INSTANCE: "j", "batch.kubernetes.io/job-completion-index": "1"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {"nodeName": "n"},
    "status": {},
}


def answer(folder: Path) -> dict[str, tuple[Ends, int]]:
    """Runs the script that a pod's shell gets, and reads its answer."""
    done = subprocess.run(["sh", "-c", evidence._READ, str(folder)], capture_output=True, text=True, check=True)
    return {path: (content, size) for path, content, size in evidence._unpacked(done.stdout)}


@pytest.mark.parametrize("before", [False, True], ids=["", "of 0.2"])
def test_the_files_of_a_model_dir_come_whole_as_a_shell_prints_them(tmp_path: Path, before: bool) -> None:
    if before:
        (tmp_path / ".lock").touch()
        (tmp_path / "lease.json").write_text('{"number": 1, "incarnation": "x"}')
    else:  # files of a program
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "its.log").write_text("of the program")
        (tmp_path / "result.json").write_text("of the program")
    layout.logs(tmp_path).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-00000005").mkdir(parents=True)
    (tmp_path / "private").write_text("of the user")
    (layout.logs(tmp_path) / "link.log").symlink_to(tmp_path / "private")
    (tmp_path / "checkpoints" / "step-00000005" / "variables.npz").write_bytes(b"weights")
    written = {
        "result.json": b'{"status": "succeeded"}',
        "metrics.jsonl": b"{}\n",
        "logs/worker-0.log": "é \0 \udce9 FILE 5 x\nTAIL\nFILE 3 y\n".encode(errors="surrogateescape"),
        "logs/a FILE b.log": b"x",
        "logs/empty.log": b"",
        "checkpoints/step-00000005/meta.json": b"{}",
    }
    for path, content in written.items():
        place = tmp_path if path.startswith(("metrics", "checkpoints")) else layout.own(tmp_path)
        (place / path).write_bytes(content)
    found = answer(tmp_path)
    assert (found.pop("lease.json", None) is not None) == before
    assert found == {path: (Ends(content), len(content)) for path, content in written.items()}


def test_a_long_log_comes_with_both_ends(tmp_path: Path) -> None:
    layout.logs(tmp_path).mkdir(parents=True)
    content = b"".join(b"%09d\n" % number for number in range(60_000))
    (layout.logs(tmp_path) / "worker-0.log").write_bytes(content)
    found, size = answer(tmp_path)["logs/worker-0.log"]
    assert size == len(content)
    assert content.startswith(found.head)
    assert content.endswith(found.tail)
    assert found.left_out == f"{size - len(found.head) - len(found.tail):,} of {size:,} bytes"
    (layout.logs(tmp_path) / "worker-0.log").write_bytes(content[:300_000])
    assert answer(tmp_path)["logs/worker-0.log"] == (Ends(content[:300_000]), 300_000)


@pytest.mark.parametrize("text", ["", "sh: not found\n", "FILE x logs/a\nYQ==\n", "FILE 1 logs/a\nY\n"])
def test_an_answer_that_is_none_has_no_files(text: str) -> None:
    assert list(evidence._unpacked(text)) == []


def status(name: str, restarts: int = 0, **state: object) -> dict[str, object]:
    return {"name": name, "restartCount": restarts, "state": state}


def test_logs_are_read_of_each_container_that_has_started_and_of_its_earlier_start() -> None:
    pod: Any = {
        **POD,
        "status": {
            "initContainerStatuses": [status("code", terminated={}), status("wait", waiting={})],
            "containerStatuses": [status("task", 2, waiting={}), status("sidecar", 1, running={})],
        },
    }
    found = list(evidence._containers(pod))
    assert found == [("code", False), ("task", True), ("sidecar", True), ("sidecar", False)]
    assert [evidence._log_path(pod, *each) for each in found] == [
        "logs/worker-1/j-worker-1-x-code.txt",
        "logs/worker-1/j-worker-1-x-previous.txt",
        "logs/worker-1/j-worker-1-x-sidecar-previous.txt",
        "logs/worker-1/j-worker-1-x-sidecar.txt",
    ]


def test_an_object_is_shown_without_what_is_noise_or_code() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "x"}
    metadata = {"name": "j", "managedFields": [{}], "annotations": annotations}
    found = evidence._plain({"metadata": metadata, "binaryData": {"code.tgz": "a" * 1234}, "data": {"job": "{}"}})
    assert found == {
        "metadata": {"name": "j", "annotations": {"note": "x"}},
        "binaryData": {"code.tgz": "1,234 bytes in base64"},
        "data": {"job": "{}"},
    }
    assert evidence._plain({"metadata": {"name": "j"}}) == {"metadata": {"name": "j", "annotations": {}}}


@pytest.mark.parametrize(("owner", "own"), [("j", True), ("j-worker", True), ("jj", False), ("other", False)])
def test_a_workload_of_kueue_belongs_to_the_job_that_owns_it(owner: str, own: bool) -> None:
    assert evidence._owned_by({"metadata": {"ownerReferences": [{"name": owner}]}}, "j") is own
    assert not evidence._owned_by({"metadata": {}}, "j")
