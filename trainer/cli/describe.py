"""The output of `trainer check`."""

from __future__ import annotations

import shlex

from trainer.job import code
from trainer.job.cluster import tasks_of
from trainer.job.data import places
from trainer.job.derived import DEFAULT_STEPS, batch_sizes, learning_rate, replicas_in_sync
from trainer.job.errors import UserError
from trainer.job.messages import aligned, counted
from trainer.job.spec import JobSpec
from trainer.workloads.check import own_optimizer

MOST_CONFIGS = 32
"""Maximum number of tasks for which each TF_CONFIG is printed; those of a thousand workers would be 37 MB."""

MOST_NAMES = 12


def describe(spec: JobSpec) -> list[str]:
    """Lists the values derived from a spec: tasks, numbers, TF_CONFIGs."""
    tasks = tasks_of(spec)
    rows = [("task", "address", "cpu", "memory", "gpus")]
    for task in tasks:
        address = "{}:{}".format(*task.address) if task.address else "-"
        if group := spec.tasks.group(task.type):
            cpu = f"{group.cpu:g}" if group.cpu else "-"
            rows.append((task.name, address, cpu, group.memory or "-", str(group.gpus or "-")))
    title = "TF_CONFIG of each task:"
    if len(tasks) > MOST_CONFIGS:
        tasks = [task for task in tasks if task.index == 0]
        title = "TF_CONFIG of the first task of each type, for the others differ only in their index:"
    return [*aligned(rows), "", *aligned(_derived(spec)), "", title, *(task.tf_config() for task in tasks)]


def _derived(spec: JobSpec) -> list[tuple[str, ...]]:
    rows = [("job", spec.name), ("strategy", spec.strategy)]
    if spec.api != "loop":
        rows.append(("api", spec.api))
    rows.append(("program", shlex.join(spec.program)) if spec.program else ("workload", spec.workload))
    rows += [(f"settings.{key}", str(value)) for key, value in spec.settings.items()]
    if spec.code:
        rows += _code(spec)
    rows += [(f"data.{name}", places(each)) for name, each in spec.data.items()]
    if not spec.program:
        rows += _training(spec) if spec.traits.trains else [("job name", f"/job:{spec.job_name}")]
    return [*rows, ("model_dir", spec.directory)]


def _code(spec: JobSpec) -> list[tuple[str, str]]:
    top = code.root(spec)
    try:
        files, others = code.files(spec), code.left_out(spec)
    except UserError as error:
        if not spec.program:
            raise
        return [("code", f"{top}, on local alone: {error}")]  # a program runs there where it is
    count = counted(len(files), "file")
    rows = [("code", f"{count}, {code.size(files):,} bytes, of {top}")]
    if others:
        more = f" and {len(others) - MOST_NAMES} more" if others[MOST_NAMES:] else ""
        rows.append(("not code", f"{', '.join(others[:MOST_NAMES])}{more}"))
    return rows


def _training(spec: JobSpec) -> list[tuple[str, str]]:
    train, counts = spec.train, spec.tasks.counts()
    replicas = replicas_in_sync(spec, counts)
    global_batch, per_replica = batch_sizes(spec, counts)
    rate = f"{learning_rate(spec, counts):g}"
    if train.learning_rate_scaling != "none":
        rate += f" ({train.learning_rate:g}, {train.learning_rate_scaling} in {replicas} replicas)"
    if train.learning_rates is not None:
        rate += f" (of learning_rates, for a global batch of {global_batch})"
    rows = [
        ("replicas in sync", str(replicas)),
        ("global batch", str(global_batch)),
        ("per-replica batch", str(per_replica)),
        ("epochs", str(train.epochs)) if train.epochs else ("steps", str(train.steps or DEFAULT_STEPS)),
    ]
    if spec.api_traits.calls_fit:
        return rows
    optimizer = own_optimizer(spec)
    return [*rows, ("optimizer", f"of {optimizer}") if optimizer else ("learning rate", rate)]
