"""Jobs on a real Kubernetes, as a user has them: `trainer render kubernetes SPEC | kubectl apply -f -`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.tools.harness import TRAINER, Watched

ROOT = Path(__file__).parents[2]
SECONDS = 60
JOB_SECONDS = 300
EVERYTHING = "jobs,pods,services,configmaps,secrets,persistentvolumeclaims,networkpolicies"
KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("open")
except OSError as error:
    print("closed", error)
"""


def kubectl(*words: str, text: str | None = None, check: bool = True, seconds: float = SECONDS) -> str:
    """Runs kubectl and returns its stdout; with `check`, fails with its stderr."""
    ended = subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True, timeout=seconds)
    assert ended.returncode == 0 or not check, f"kubectl {' '.join(words)}: {ended.stderr}"
    return ended.stdout


def render(spec: Path, overrides: str = "") -> str:
    command = [*TRAINER, "render", "kubernetes", str(spec)]
    environ = {**os.environ, "TRAINER_SET": overrides}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environ, timeout=SECONDS).stdout


def trainer(*words: str, code: int = 0, environ: dict[str, str] | None = None) -> str:
    """Runs `trainer` and returns its stdout, or its stderr if a failure with `code` is expected."""
    ended = subprocess.run(
        [*TRAINER, *words], capture_output=True, text=True, env={**os.environ, **(environ or {})}, timeout=JOB_SECONDS
    )
    assert ended.returncode == code, (words, ended.returncode, ended.stdout, ended.stderr)
    return ended.stderr if code and not ended.stdout else ended.stdout


class Namespace:
    """A namespace, and kubectl in it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def kubectl(self, *words: str, text: str | None = None, check: bool = True, seconds: float = SECONDS) -> str:
        return kubectl("--namespace", self.name, *words, text=text, check=check, seconds=seconds)

    def get(self, kind: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "--output=json"))["items"]
        return items

    def apply(self, manifests: str) -> KubernetesJob:
        self.kubectl("apply", "--filename=-", text=manifests)
        return KubernetesJob(self, manifests)

    def submit(self, spec: Path, *words: str) -> KubernetesJob:
        """As `trainer submit` does it."""
        trainer("submit", "--namespace", self.name, str(spec), *words)
        return KubernetesJob(self, render(spec))

    def submit_spec(self, folder: Path, spec: dict[str, Any]) -> KubernetesJob:
        path = folder / f"{spec['name']}.yaml"
        path.write_text(yaml.safe_dump(spec))
        return self.submit(path)

    def status(self, name: str) -> dict[str, Any]:
        """`trainer status -o json`, whatever the job's exit code is."""
        command = [*TRAINER, "status", "--namespace", self.name, name, "-o", "json"]
        return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout))

    def save(self, folder: Path) -> None:
        """Writes what `report` prints, and all objects as YAML, to find the cause of a failure."""
        folder.mkdir(parents=True)
        kinds = "jobs,pods,services,configmaps,persistentvolumeclaims,networkpolicies,events"
        (folder / "objects.yaml").write_text(self.kubectl("get", kinds, "--output=yaml", check=False))
        (folder / "report.txt").write_text(self.report())

    def report(self) -> str:
        """Everything that helps to find out why a test failed."""
        parts = [self.kubectl("get", "jobs,pods,pvc,nodes", "--output=wide", check=False)]
        parts.append(self.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False))
        for pod in self.get("pods"):
            name = pod["metadata"]["name"]
            parts += [f"--- {name}", self.kubectl("logs", name, check=False)]
        return "\n".join(parts)


class KubernetesJob(Watched):
    """A job that was applied."""

    # Each poll is a `kubectl exec`, which starts a Python in the pod.
    poll_seconds = 2

    def __init__(self, space: Namespace, manifests: str) -> None:
        self.space = space
        self.manifests = list(yaml.safe_load_all(manifests))
        jobs = [each for each in self.manifests if each["kind"] == "Job"]
        self.jobs = {each["metadata"]["name"]: each["spec"]["completions"] for each in jobs}
        self.name = jobs[0]["metadata"]["labels"]["app.kubernetes.io/instance"]
        self.chief = "chief" if f"{self.name}-chief" in self.jobs else "worker"

    def status(self) -> dict[str, Any]:
        words = ["exec", self.newest(self.chief, 0), "--", "python3", "-m", "trainer.supervisor.probe", "status"]
        answer = self.space.kubectl(*words, check=False)
        return dict(json.loads(answer)) if answer else {}

    @property
    def output(self) -> str:
        return self.space.report()

    def over(self) -> bool:
        return bool(self.conditions(f"{self.name}-{self.chief}") & {"Complete", "Failed"})

    def conditions(self, job: str) -> set[str]:
        """Types of the conditions that hold for one of its Jobs."""
        (found,) = (each for each in self.space.get("jobs") if each["metadata"]["name"] == job)
        return {each["type"] for each in found["status"].get("conditions", []) if each["status"] == "True"}

    def wait(self, condition: str = "complete", job: str | None = None, seconds: float = JOB_SECONDS) -> None:
        """Waits with `kubectl wait` for a condition of one of its Jobs, by default the chief's."""
        words = [
            "wait",
            f"--for=condition={condition}",
            f"--timeout={seconds:g}s",
            f"job/{self.name}-{job or self.chief}",
        ]
        self.space.kubectl(*words, seconds=seconds + 10)

    def wait_for_the_others(self) -> None:
        """Until every Job is complete, soon after the chief's."""
        for name in self.jobs:
            self.wait(job=name.removeprefix(f"{self.name}-"), seconds=30)

    def log(self, task_type: str = "chief") -> str:
        """What the newest pod of a type printed."""
        return self.space.kubectl("logs", self.newest(task_type))

    def file(self, name: str) -> str:
        """A file of model_dir, read by a pod of its own from the job's volume."""
        pod: dict[str, Any] = next(m for m in self.manifests if m["kind"] == "Job")["spec"]["template"]["spec"]
        task = {**pod["containers"][0], "name": "reader", "env": []}
        task = {k: v for k, v in task.items() if not k.endswith("Probe") and k != "ports"}
        task |= {"command": ["cat", f"/workspace/runs/{self.name}/{name}"]}
        spec = {**pod, "containers": [task], "subdomain": ""}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": spec}
        self.space.kubectl("apply", "--filename=-", text=json.dumps(manifest))
        self.space.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/reader")
        text = self.space.kubectl("logs", "reader")
        self.space.kubectl("delete", "pod", "reader")
        return text

    def newest(self, task_type: str, index: int | None = None) -> str:
        """Name of the newest pod of a type, or of one task; empty between two pods."""
        key = "batch.kubernetes.io/job-completion-index"
        found = [p for p in self.pods(task_type) if index is None or p["metadata"]["labels"][key] == str(index)]
        return str(found[-1]["metadata"]["name"]) if found else ""

    def node(self, task_type: str) -> str:
        return str(self.pods(task_type)[-1]["spec"]["nodeName"])

    def pods(self, task_type: str | None = None) -> list[dict[str, Any]]:
        """Pods of the job, the oldest first."""
        selector = f"app.kubernetes.io/instance={self.name}" + (
            f",app.kubernetes.io/component={task_type}" if task_type else ""
        )
        answer = json.loads(self.space.kubectl("get", "pods", f"--selector={selector}", "--output=json"))
        return sorted(answer["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def there(namespace: Namespace) -> list[str]:
    """All that is in a namespace, but for what Kubernetes puts there itself."""
    names = namespace.kubectl("get", EVERYTHING, "--output=name").split()
    return sorted(name for name in names if not name.endswith("kube-root-ca.crt"))


def knock(namespace: Namespace, who: str, address: str, port: int) -> str:
    """Whether a pod finds a port "open" or "closed"."""
    return namespace.kubectl("exec", who, "--", "python3", "-c", KNOCK, address, str(port)).split()[0]
