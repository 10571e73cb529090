"""A cell's job on the kind cluster, observed through volumes that this machine has too.

Its model_dir is on a volume of several nodes, so that the chief can move.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path

from tests.failures import memory
from tests.failures.cells import Cell
from tests.failures.files import Files
from tests.failures.jobs import spec_of
from tests.failures.run import Fault, Missed
from tests.kind.cluster import Namespace, kubectl, trainer
from tests.kind.nodes import on, shared_claim, shared_folder
from trainer.model_dir import state

COUNTS = "/counts"
LOOK_SECONDS = 1.0
NODE_LOST_SECONDS = 5
"""Kubernetes itself takes 40 s or more to find that a node does not answer."""


class KindJob:
    """One job in a namespace of its own, which may be started again."""

    def __init__(self, folder: Path, strategy: str, cell: Cell | None) -> None:
        assert os.environ.get("KIND_CLUSTER"), "KIND_CLUSTER: is not set: `scripts/kind.sh run COMMAND`"
        folder.mkdir(parents=True)
        self._folder, self._space = folder, Namespace(f"failures-{uuid.uuid4().hex[:8]}")
        self.files = Files(shared_folder(self._space, "counts"), shared_folder(self._space) / "failures")
        self._spec = spec_of("kind", strategy, COUNTS, cell)
        self._looked, self._over, self._deleted = 0.0, False, False
        self._output: list[str] = []

    def __enter__(self) -> KindJob:
        kubectl("create", "namespace", self._space.name)
        shared_claim(self._space, "counts")
        settings = {
            "node_lost_seconds": NODE_LOST_SECONDS,
            "volume": shared_claim(self._space),
            "volumes": [{"name": "counts", "persistentVolumeClaim": {"claimName": "counts"}}],
            "mounts": [{"name": "counts", "mountPath": COUNTS}],
        }
        self._spec["kubernetes"] = settings
        self._job = self._space.submit_spec(self._folder, self._spec)
        return self

    def __exit__(self, *_: object) -> None:
        kubectl("delete", "namespace", self._space.name, "--wait=false")
        names = [f"{self._space.name}-{name}" for name in ("counts", "shared")]
        kubectl("delete", "persistentvolume", *names, "--wait=false", check=False)
        for folder in (self.files.counts, self.files.model_dir.parent):
            shutil.rmtree(folder, ignore_errors=True)  # its pods may still write there

    @property
    def output(self) -> str:
        return "\n".join([*self._output, self._job.output])

    def over(self) -> bool:
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return self._over
        if self._deleted:
            self._over = not self._job.pods()
        else:
            ends = {"Complete", "SuccessCriteriaMet", "Failed"}
            self._over = bool(self._job.conditions(f"{self._job.name}-{self._job.chief}") & ends)
        self._looked = time.monotonic()
        return self._over

    def wait(self, timeout: float) -> int:
        """The exit code that the job keeps in model_dir."""
        deadline = time.monotonic() + timeout
        while not self.over():
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("the job", timeout)
            time.sleep(LOOK_SECONDS)
        end = state.load(str(self.files.model_dir), 0.0).end
        return end.code if end else 0 if self.files.result() else 1

    def again(self) -> None:
        self._deleted = False
        self._job = self._space.submit_spec(self._folder, self._spec)

    def aim(self, cell: Cell) -> Fault:
        if cell.fault == "stop all":
            return Fault(self._delete)
        task_type, _, index = cell.victim.partition(":")
        (pod,) = (pod for pod in self._job.pods(task_type) if _index(pod) == int(index))
        name, node, address = pod["metadata"]["name"], pod["spec"]["nodeName"], pod["status"]["podIP"]
        if cell.fault == "stop":
            return Fault(lambda: self._space.kubectl("delete", "pod", name, "--wait=false"))
        if cell.fault == "drain":
            words = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
            return Fault(lambda: kubectl("drain", node, *words, seconds=100), lambda: kubectl("uncordon", node))
        if cell.fault == "power":
            return Fault(lambda: _docker("kill", node), lambda: _start(node))
        if cell.fault == "cut":
            return Fault(lambda: _firewall(node, "--insert", address), lambda: _firewall(node, "--delete", address))
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        if cell.fault == "memory":
            child = self._job.child_pid(cell.victim)
            program = Path(memory.__file__).read_text()
            return Fault(lambda: self._space.kubectl("exec", name, "--", "python3", "-c", program, str(child)))
        if cell.fault == "freeze":
            return Fault(lambda: _signal(node, container, "STOP"), lambda: _signal(node, container, "CONT"))
        return Fault(lambda: _signal(node, container, "KILL", _FIRST))

    def _delete(self) -> None:
        """All pods get SIGTERM; the volume stays, and with it model_dir."""
        self._output.append(self._job.output)
        self._deleted = True
        # kubectl first, which is quicker: the job has some seconds left.
        self._space.kubectl("delete", "jobs", f"--selector=app.kubernetes.io/instance={self._job.name}", "--wait=false")
        trainer("delete", "--namespace", self._space.name, self._job.name)
        if self.files.result():
            raise Missed  # it was complete before


start = KindJob


def _index(pod: dict[str, dict[str, dict[str, str]]]) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


_FIRST = " | xargs -I{} grep -lsE '^NSpid:.*[^0-9]1$' /proc/{}/status | cut -d/ -f3"
"""Of processes those that are the first of their container (proc_pid_status(5)): a node may lack crictl."""


def _signal(node: str, container: str, name: str, only: str = "") -> None:
    """Sends a signal to all processes of a container, if it is still there."""
    pids = f"grep -ls {container} /proc/[0-9]*/cgroup | cut -d/ -f3{only}"
    with contextlib.suppress(subprocess.CalledProcessError):
        on(node, "sh", "-c", f"kill -{name} $({pids})")


def _firewall(node: str, change: str, address: str) -> None:
    """Drops, or no longer drops, what a pod sends and gets. Its node still sees that it is healthy."""
    for way in ("--source", "--destination"):
        on(node, "iptables", change, "FORWARD", way, address, "--jump", "DROP")


def _docker(*words: str) -> None:
    subprocess.run(["docker", *words], check=True, capture_output=True, timeout=60)


def _start(node: str) -> None:
    _docker("start", node)
    kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s", seconds=100)
