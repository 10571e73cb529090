"""Environment variables of a task's container that differ between jobs: those of `kubernetes.env`, and secrets.

pod.yaml.j2 has the variables of every task. `env` of the spec is not among the container's variables: TRAINER_JOB holds
it, and the task sets it for the process that it starts (trainer/supervisor/children/child_environ.py).
"""

from __future__ import annotations

from trainer.job.errors import UserError
from trainer.job.kubernetes import Source
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.targets import container
from trainer.targets.kubernetes.volumes import Part


def of_task(spec: JobSpec, task_type: TaskType) -> list[Part]:
    """The image's defaults, and `kubernetes.env`."""
    env = spec.pod_of(task_type).env
    return [_variable(name, value) for name, value in {**container.defaults(spec), **env}.items()]


def _variable(name: str, value: str | Source) -> Part:
    """A variable of a container, from a text or from one of Kubernetes' sources."""
    if isinstance(value, str):
        return {"name": name, "value": value.replace("$", "$$")}
    if value.config_map:
        source: Part = {"configMapKeyRef": {"name": value.config_map, "key": value.key or name}}
    elif value.field:
        source = {"fieldRef": {"fieldPath": value.field}}
    else:
        source = {"resourceFieldRef": {"resource": value.resource}}
    return {"name": name, "valueFrom": source}


def secrets(spec: JobSpec) -> dict[str, dict[str, str]]:
    """A reference to a key of a Secret for each of the spec's secrets.

    Raises:
        UserError: one names no Secret.
    """
    problems = [
        f"secrets.{name}: names no Secret; on Kubernetes the value comes from one: {{secret: NAME, key: KEY}}"
        for name, source in spec.secrets.items()
        if source.secret is None
    ]
    if problems:
        raise UserError(*problems)
    return {name: {"name": source.secret or "", "key": source.key or name} for name, source in spec.secrets.items()}
