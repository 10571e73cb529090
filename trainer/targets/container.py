"""Common parts of containers and pods: templates, and the layout of our images."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path

import jinja2

from trainer.job import code, workload_file
from trainer.job.data import mounted, scheme
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec

WORKSPACE = "/workspace"
"""The working directory in our images; model_dir is `runs/<name>` below it."""
STOP_SECONDS = 4
"""Seconds in addition to deadlines.stop, before a task is killed."""
TASK = ("trainer", "task")
"""The command of a program's containers, whose images may have any entrypoint."""
TRACK_IMAGE = "trainer:track"
HEALTHY = ("trainer", "probe", "healthz")


def templates() -> jinja2.Environment:
    """The templates of this package; an undefined name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainer.targets", "."), undefined=jinja2.StrictUndefined, autoescape=False,  # noqa: S701 (YAML)
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.globals["workspace"] = WORKSPACE
    return environment


def probe(*, of_program: bool) -> tuple[str, ...]:
    """The command that prints an answer of a task's control port, in its container; its next word is the path.

    A program's image may have no python3, and our images of version 0.2.0 have no `trainer probe`.
    """
    return ("trainer", "probe") if of_program else ("python3", "-m", "trainer.supervisor.probe")


def files_of(spec: JobSpec) -> dict[str, str]:
    """Paths of the user's workload and dataset files, by the spec's key; a workload with `code` is part of that."""
    keys = ("dataset",) if spec.code else ("workload", "dataset")
    return {k: v for k in keys if (v := getattr(spec, k)) and v.endswith((".py", ".npz"))}


def modules_of(spec: JobSpec) -> dict[str, Path]:
    """Modules beside the workload file that it imports, by their names in the working directory: files or folders."""
    path = Path(spec.workload)
    if "workload" not in files_of(spec) or not path.is_file():
        return {}
    return {module.name: module for module in workload_file.helpers(path)}


def track_image(spec: JobSpec) -> str:
    """`trainer:track`, from the registry of the tasks' image."""
    folder, slash, _ = spec.container_image.rpartition("/")
    return spec.kubernetes.track_image or f"{folder}{slash}{TRACK_IMAGE}"


def defaults(spec: JobSpec) -> dict[str, str]:
    """Variables of a program's containers, where the user gives no others: what our images have, for any image. HOME:
    user 1000 may have none, and the root file system is read-only."""
    return {"HOME": "/tmp", "PYTHONUNBUFFERED": "1"} if spec.program else {}  # noqa: S108 (in a container)


def require_way_out(spec: JobSpec, variables: Container[str], egress: str) -> None:
    """Checks that data at gs:// can be reached from the job's network, which has no route out by default.

    Args:
        variables: those that the user gives to the tasks. libcurl, which TensorFlow reads gs:// with, uses HTTPS_PROXY;
            gRPC, which connects the tasks, looks only at https_proxy, and would send its traffic there.
        egress: what else to set.

    Raises:
        UserError: there is no way out.
    """
    remote = [(name, each.path) for name, each in spec.data.items() if each.path and scheme(each.path)]
    if "HTTPS_PROXY" not in variables and remote:
        raise UserError(
            *(f"data.{name}.path: {path!r}: the job's network has no way out; {egress}" for name, path in remote)
        )


def unreachable(spec: JobSpec, variables: Container[str], egress: str, *, tracking: bool) -> list[str]:
    """A warning for each server of `tracking` and `notify`, which the job's network keeps out by default.

    Args:
        variables: those that the chief's task gets.
        egress: what to do about it.
        tracking: whether `trainer track` is in the job's network too.
    """
    servers = {
        "tracking.mlflow": spec.tracking and tracking and spec.tracking.mlflow,
        "notify.webhook": spec.notify and spec.notify.webhook,
        "notify.webhook_from": spec.notify and spec.notify.webhook_from,
    }
    if "HTTPS_PROXY" in variables or "HTTP_PROXY" in variables:
        return []
    return [
        f"{path}: {address}: the job's network has no way out, so it will not be reached; {egress}"
        for path, address in servers.items()
        if address
    ]


def model_dir(spec: JobSpec) -> str:
    """The model_dir of every job in a container, whatever its place outside is."""
    return f"{WORKSPACE}/runs/{spec.name}"


def job_of(spec: JobSpec) -> str:
    """TRAINER_JOB in containers: files are in the working directory, data in /data, code in /code, and model_dir is the
    default, of a program the whole path, because its image may have any working directory.

    Raises:
        UserError: init_from names a file that containers do not have.
    """
    weights = spec.init_from
    if weights is not None and weights.data is None and not Path(weights.path).is_absolute():
        raise UserError(
            f"init_from: {weights.path!r}: containers do not have this file; add its folder to `data`, and write "
            f"init_from: {{data: NAME, path: {Path(weights.path).name}}}"
        )
    changed: dict[str, object] = {key: Path(path).name for key, path in files_of(spec).items()}
    if spec.program:
        changed |= {"model_dir": model_dir(spec), "python": None}
    if (top := code.root(spec)) is not None:
        changed["code"] = [code.PLACE]
        if not spec.program:
            workload = Path(os.path.normpath(Path(spec.workload).absolute()))
            changed["workload"] = f"{code.PLACE}/{workload.relative_to(top).as_posix()}"
    places = mounted(spec.data)
    changed["data"] = {n: each.model_copy(update={"path": places.get(n, each.path)}) for n, each in spec.data.items()}
    return spec.model_copy(update={"model_dir": None, **changed}).model_dump_json(exclude_defaults=True)
