"""What starts all pods of a job, or none: a JobSet, which Kueue admits as a whole, or a PodGroup for the scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trainer.job.errors import Exit, UserError
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import names
from trainer.targets.kubernetes.objects import Manifest

QUEUE, GROUP = "kueue.x-k8s.io/queue-name", "scheduling.k8s.io/group-name"
"""The label with Kueue's queue, and the annotation with Volcano's group."""
JOB_SET, VOLCANO, POD_GROUP = "jobset.x-k8s.io/v1alpha2", "scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/v1beta1"
APIS = {
    "jobset": (JOB_SET, "jobsets", "install JobSet (https://jobset.sigs.k8s.io)"),
    "volcano": (VOLCANO, "podgroups", "install Volcano (https://volcano.sh)"),
    "podgroup": (
        POD_GROUP,
        "podgroups",
        "Kubernetes 1.37 has it where its administrator enables it",
    ),
}
"""The API that each kind of gang needs: group with version, resource, and how a cluster gets it."""
JOB_SET_RESTARTS = 3
"""How often all tasks of a JobSet start again, after a Job has used up its pods."""
_UNLIMITED = 2**31 - 1


def require(spec: JobSpec, types: Collection[TaskType]) -> None:
    """Refuses a queue that would admit the job in parts, or that the gang does not know.

    Raises:
        UserError: it would, or does not.
    """
    given = spec.kubernetes
    if given.queue and given.gang == "podgroup":
        raise UserError(
            f"kubernetes.queue: {given.queue!r}: the scheduler of Kubernetes knows no queues; remove it, or set "
            "kubernetes.gang: jobset, which Kueue admits, or volcano"
        )
    if given.queue and given.gang == "none" and len(types) > 1:
        raise UserError(
            f"kubernetes.queue: {given.queue!r}: Kueue would admit the {len(types)} Jobs of this job one by one, so "
            "two jobs can wait for each other for ever; set kubernetes.gang: jobset"
        )


def queue_label(spec: JobSpec) -> dict[str, str]:
    """The label of the object that Kueue admits."""
    settings = spec.kubernetes
    return {QUEUE: settings.queue} if settings.queue and settings.gang != "volcano" else {}


def final_codes(spec: JobSpec, task_type: TaskType, types: Collection[TaskType]) -> list[int]:
    """Exit codes that fail a type's Job at once.

    In a JobSet only the chief's: a failed Job ends the JobSet, which deletes the other Jobs with their logs, and the
    tasks of a job that fails end a moment before the chief, who has the reason.
    """
    if spec.kubernetes.gang == "jobset" and task_type != names.chief_type(types):
        return []
    return sorted(int(code) for code in Exit if code is not Exit.OK and not code.retryable)


def final_reasons(spec: JobSpec) -> list[str]:
    """Reasons for which the chief's Job fails that a new start of a JobSet would not cure. A chief that moves has no
    podFailurePolicy: its Job tries each failure again, as often as its backoffLimit allows."""
    moves = spec.kubernetes.volume.access == "ReadWriteMany"
    return ["PodFailurePolicy", *(["BackoffLimitExceeded"] if moves else [])]


def restarts(spec: JobSpec, task_type: TaskType, usual: int) -> int:
    """The backoffLimit of a type's Job. In a JobSet the evaluator's never fails, as it would end the training."""
    return _UNLIMITED if spec.kubernetes.gang == "jobset" and task_type == "evaluator" else usual


def of_annotations(spec: JobSpec) -> dict[str, str]:
    """The annotations of the pods."""
    return {GROUP: spec.name} if spec.kubernetes.gang == "volcano" else {}


def of_pod(spec: JobSpec) -> dict[str, object]:
    """Keys of a pod's spec."""
    by_gang: dict[str, dict[str, object]] = {
        "volcano": {"schedulerName": "volcano"},
        "podgroup": {"schedulingGroup": {"podGroupName": spec.name}},
    }
    return by_gang.get(spec.kubernetes.gang, {})


def group(spec: JobSpec, pods: Mapping[TaskType, int]) -> Manifest | None:
    """The apiVersion and spec of the PodGroup that the pods name, if they name one."""
    given, total = spec.kubernetes, sum(pods.values())
    if given.gang == "podgroup":
        return {"apiVersion": POD_GROUP, "spec": {"schedulingPolicy": {"gang": {"minCount": total}}}}
    if given.gang == "volcano":
        optional = {"queue": given.queue, "priorityClassName": given.priority_class}
        chosen = {key: value for key, value in optional.items() if value}
        return {"apiVersion": VOLCANO, "spec": {"minMember": total, **chosen}}
    return None
