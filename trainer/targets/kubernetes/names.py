"""Names and labels of a job's objects."""

from __future__ import annotations

from collections.abc import Collection

from trainer.job.kubernetes import Pod
from trainer.job.names import TaskType, container_address
from trainer.job.spec import JobSpec

# https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"


def counts(spec: JobSpec) -> dict[TaskType, int]:
    """Pods of each type.

    If the spec has no chief, worker 0 is named chief: it needs a separate Job, because it alone has the volume and its
    end is the job's. Both train alike. A program, which reads TF_CONFIG itself, has the tasks of the spec.
    """
    asked = spec.tasks.counts()
    if "chief" not in asked and not spec.program:
        asked = {"chief": 1, **asked, "worker": asked["worker"] - 1}
    return {task_type: count for task_type, count in asked.items() if count}


def address(spec: JobSpec, task_type: str, index: int) -> str:
    """`host:port` of a task in TF_CONFIG."""
    return container_address(spec.name, spec.kubernetes.job_of(task_type), index)


CHIEFS: tuple[TaskType, ...] = ("chief", "worker")
"""The first of these types that a job has is that of the chief, whose Job shows the outcome."""


def chief_type(types: Collection[str]) -> TaskType:
    return next(each for each in CHIEFS if each in types)


def labels(spec: JobSpec, pod: Pod | None = None) -> dict[str, str]:
    return {
        **(pod or spec.kubernetes).labels,
        "app.kubernetes.io/name": "trainer",
        INSTANCE: spec.name,
        MANAGED_BY: "trainer",
    }


def component(spec: JobSpec, component: str) -> dict[str, str]:
    return {INSTANCE: spec.name, COMPONENT: component}
