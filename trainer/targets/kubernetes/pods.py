"""The status of tasks, from the objects of a job as plain JSON: the state of each, and why it waits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trainer.job.errors import Exit
from trainer.job.names import task_name
from trainer.targets.base import ContainerState
from trainer.targets.kubernetes.job_set import QUOTA
from trainer.targets.kubernetes.names import CHIEFS, COMPONENT, INSTANCE
from trainer.targets.kubernetes.objects import Claim, Container, ContainerStatus, Event, Job, Pod, PodSpec, State

AGAIN = "`trainer submit` with its spec makes it again"
TASK = "task"
"""The container of the task. Others may stand before it in a pod, as the proxy of a service mesh."""
_INDEX = "batch.kubernetes.io/job-completion-index"
NO_POD = "its Job has not created a pod yet"
BACK_OFF = (
    "Kubernetes waits 10 s before it makes a new pod, and twice as long after each further loss, at most 10 minutes"
)
"""How a Job replaces its pods (podBackoff in pkg/controller/job), whatever ended them."""
_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons of a container that is about to start."""


def chief_of(jobs: Iterable[Job]) -> tuple[Job, str] | None:
    """The Job of the chief among those of a job, and the chief's name; None if there is none."""
    types = {each["metadata"]["labels"][COMPONENT]: each for each in jobs}
    chief_type = next((each for each in CHIEFS if each in types), None)
    return (types[chief_type], task_name(chief_type, 0)) if chief_type else None


def task_of(pod: Pod) -> str:
    labels = pod["metadata"]["labels"]
    return task_name(labels[COMPONENT], int(labels.get(_INDEX, 0)))


def tasks(
    jobs: Iterable[Job], pods: Iterable[Pod], claims: Iterable[Claim], warnings: Iterable[Event]
) -> dict[str, ContainerState]:
    """The status of each task, by its name. Restarts are counted by new pods.

    Args:
        warnings: the namespace's events of type Warning.
    """
    pods_by_task: dict[str, list[Pod]] = {}
    for pod in (pods := sorted(pods, key=_age)):
        pods_by_task.setdefault(task_of(pod), []).append(pod)
    messages = _by_object(warnings)
    begun = any(map(state_of, pods))
    rows = {}
    for job in jobs:
        for index in range(job["spec"]["completions"]):
            name = task_name(job["metadata"]["labels"][COMPONENT], index)
            if pods_of_task := pods_by_task.get(name):
                rows[name] = row = _row(pods_of_task, messages, claims)
                if row.code == Exit.STOPPED and not ended(job):
                    rows[name] = replace(row, reason=_then(row.reason or "", BACK_OFF))
            else:
                rows[name] = ContainerState("missing", node="", reason=_no_pod(job, messages, begun=begun))
    return rows


def ended(job: Job) -> str | None:
    """`done` or `failed`, once a Job has ended. While a pod of it is on a lost node, it does not get the last
    condition, only the one before."""
    conditions = {each["type"] for each in job["status"].get("conditions", []) if each["status"] == "True"}
    if conditions & {"Complete", "SuccessCriteriaMet"}:
        return "done"
    return "failed" if conditions & {"Failed", "FailureTarget"} else None


def failed_for_good(job: Job, pods: Iterable[Pod], task: str) -> int | None:
    """The exit code of a chief that a restart cannot cure. A Job without a podFailurePolicy starts it again.

    The newest that has started knows how the job goes: one before may have lost its node, and with it the others."""
    started = [state for state in map(state_of, pods_of(pods, task)) if "terminated" in state or "running" in state]
    if "podFailurePolicy" in job["spec"] or not started or "terminated" not in started[-1]:
        return None
    code = started[-1]["terminated"]["exitCode"]
    return code if _is_final(code) else None


def over(job: Job, pods: Iterable[Pod], task: str) -> str | None:
    """`done` or `failed`, once the outcome of a job is certain, by its chief's Job and pods. Its Job does not end while
    a container that was put beside the task keeps the pod."""
    pods = list(pods)
    if (outcome := ended(job)) or failed_for_good(job, pods, task):
        return outcome or "failed"
    last = newest(pods, task)
    if last is None or not kept_by(last):
        return None
    code = state_of(last)["terminated"]["exitCode"]
    return "failed" if _is_final(code) else "done" if code == Exit.OK else None


def _is_final(code: int) -> bool:
    """Whether a restart changes nothing."""
    return bool(code) and code in list(Exit) and not Exit(code).retryable


def newest(pods: Iterable[Pod], task: str) -> Pod | None:
    oldest_first = pods_of(pods, task)
    return oldest_first[-1] if oldest_first else None


def pods_of(pods: Iterable[Pod], task: str) -> list[Pod]:
    """The pods of a task, the oldest first."""
    return sorted((pod for pod in pods if task_of(pod) == task), key=_age)


def state_of(pod: Pod) -> State:
    """The state of the task's container; empty before the kubelet reports one."""
    statuses = pod["status"].get("containerStatuses", [])
    return next((each.get("state", State()) for each in statuses if each.get("name") == TASK), State())


def container_of(spec: PodSpec) -> Container:
    """The container of the task; empty in a pod of another program."""
    return next((each for each in spec["containers"] if each["name"] == TASK), Container(name=TASK))


def _age(pod: Pod) -> str:
    return pod["metadata"]["creationTimestamp"]


def _row(own: Sequence[Pod], messages: Mapping[str, str], claims: Iterable[Claim]) -> ContainerState:
    pod = own[-1]
    state = state_of(pod)
    code = state["terminated"]["exitCode"] if "terminated" in state else 0
    name = ""
    # A task waits until the containers before and beside it have started.
    if ("waiting" in state or not state) and (other := _not_started(pod)):
        state, name = other.get("state", State()), other.get("name", "")
    phase = pod["status"].get("phase", "Pending")
    if keepers := kept_by(pod):
        phase = "Failed" if code else "Succeeded"
    if pod["metadata"].get("deletionTimestamp"):
        phase = "Stopping"
    if lost := _lost_node(pod, state):
        return ContainerState("lost", node=pod["spec"]["nodeName"], restarts=len(own) - 1, reason=lost)
    return ContainerState(
        state=phase.lower(),
        code=code,
        node=pod["spec"].get("nodeName", ""),
        restarts=len(own) - 1,
        reason=_then(
            _line(name, _why_pending(pod, state, messages, claims) if phase == "Pending" else _end(pod, state)),
            _KEPT.format(code, ", ".join(keepers)) if keepers else "",
        ),
    )


_KEPT = "the task has ended with {}, but container {} keeps its pod, and with it its Job; `trainer delete` ends both"


def kept_by(pod: Pod) -> list[str]:
    """The containers that keep a pod whose task has ended, such as the proxy of a service mesh. Sidecars of Kubernetes
    end with the task."""
    if "terminated" not in state_of(pod) or pod["status"].get("phase") != "Running":
        return []
    beside = pod["status"].get("containerStatuses", [])
    return [each.get("name", "") for each in beside if "running" in each.get("state", State())]


def _lost_node(pod: Pod, state: State) -> str:
    """Why a pod that was deleted waits for a node that does not answer; empty if it does not."""
    evicted = any(each.get("reason") == "DeletionByTaintManager" for each in pod["status"].get("conditions", []))
    if not (evicted and pod["metadata"].get("deletionTimestamp")) or "terminated" in state:
        return ""
    node = pod["spec"].get("nodeName", "")
    return (
        f"its node {node} does not answer, and the volume of model_dir may still be in use there: start the node, or "
        f"`kubectl delete node {node}` if it is gone; with kubernetes.volume.access: ReadWriteMany the pod would move"
    )


def _not_started(pod: Pod) -> ContainerStatus | None:
    """The first container before or beside the task that has failed, or cannot start."""
    for each in pod["status"].get("initContainerStatuses", []):
        state = each.get("state", State())
        waits = state.get("waiting", {}).get("reason") not in (None, *_STARTING)
        if waits or ("terminated" in state and state["terminated"]["exitCode"]):
            return each
    return None


def _why_pending(pod: Pod, state: State, messages: Mapping[str, str], claims: Iterable[Claim]) -> str:
    waiting = state.get("waiting", {})
    if waiting and waiting.get("reason") not in _STARTING:
        return _with_way_out(pod, _line(waiting.get("reason"), waiting.get("message")))
    names = {v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v}
    pending = [c["metadata"]["name"] for c in claims if c["status"].get("phase") == "Pending"]
    unbound = [name for name in pending if name in names]
    volume = [_line(f"claim {name} is not bound", messages.get(f"PersistentVolumeClaim/{name}")) for name in unbound]
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return "; ".join([_line(condition.get("reason"), condition.get("message")), *volume])
    return "; ".join(volume) or _with_way_out(pod, messages.get(f"Pod/{pod['metadata']['name']}", ""))


def _with_way_out(pod: Pod, reason: str) -> str:
    """The reason of a pod that waits, with what makes a part of the job again that is gone."""
    job = pod["metadata"]["labels"].get(INSTANCE, "")
    gone = re.search(rf'(secret|configmap) "{re.escape(job)}-(report-secret|[0-9a-f]{{8}})" not found', reason)
    return _then(reason, AGAIN) if gone else reason


def _end(pod: Pod, state: State) -> str:
    """The last line that a failed container printed, or what killed it."""
    terminated = state.get("terminated")
    if terminated and terminated["exitCode"]:
        lines = terminated.get("message", "").strip().splitlines()
        return lines[-1] if lines else terminated.get("reason", "")
    return _line(pod["status"].get("reason"), pod["status"].get("message"))


def _no_pod(job: Job, messages: Mapping[str, str], *, begun: bool) -> str:
    """
    Args:
        begun: whether other pods of the job have started.
    """
    if job["spec"].get("suspend"):
        held = [each for each in job["status"].get("conditions", []) if each["type"] == QUOTA]
        return f"the Job is suspended; {_line('Kueue', held[0].get('message'))}" if held else "the Job is suspended"
    none = _then(NO_POD, BACK_OFF) if begun else NO_POD
    return messages.get(f"Job/{job['metadata']['name']}", none)


def _then(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _by_object(warnings: Iterable[Event]) -> dict[str, str]:
    """The last warning about each object, by kind and name."""
    last = {}
    for event in sorted(warnings, key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or ""):
        about = event["involvedObject"]
        # Probes fail while a task starts.
        if event.get("reason") != "Unhealthy":
            last[f"{about['kind']}/{about['name']}"] = _line(event.get("reason"), event.get("message"))
    return last


def _line(reason: str | None, message: str | None) -> str:
    return ": ".join(" ".join(each.split()) for each in (reason, message) if each)
