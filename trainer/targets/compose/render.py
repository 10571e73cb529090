"""Renders specs as a docker-compose file. `engine.py` runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from trainer.job import code
from trainer.job.cluster import Task, chief_of, tasks_of
from trainer.job.data import CACHE, copies, mounted, reads
from trainer.job.derived import gpus_on_one_machine, memory_bytes
from trainer.job.errors import UserError
from trainer.job.names import TF_PORT, host_name, secret_name
from trainer.job.spec import OUR_IMAGES, JobSpec
from trainer.job.tracker import is_for_tracker, secrets_of_tasks, secrets_of_tracker
from trainer.targets import container, machine
from trainer.targets.container import HEALTHY, STOP_SECONDS, TASK, WORKSPACE, files_of, job_of, modules_of

RESTARTS = 4
"""Restarts of a failed container. Docker restarts permanent failures too: it distinguishes only zero and non-zero."""
_PROXY = "secrets: {HTTPS_PROXY: {}}"
SECRET_FOLDER = "/run/trainer"  # noqa: S105 (images/Dockerfile makes it, for the owner of a new volume is its folder's)


def render(jobs: Mapping[str, JobSpec], command: str) -> str:
    """The compose file of some jobs.

    Args:
        jobs: by profile; the only job may have the profile "", which means that it needs none.
        command: the command that writes this file, for its first line.

    Raises:
        UserError: two jobs of one name, or one that is named as something else in the file.
    """
    names = [spec.name for spec in jobs.values()]
    taken = ["tensorboard", *map(secret_name, names), *map(track_service, names)]
    for name in names:
        if names.count(name) > 1 or name in taken:
            raise UserError(f"name: {name!r}: is taken in this compose file; jobs in one file need names of their own")
    environment = container.templates()
    environment.filters["scalar"] = _scalar
    first = next(iter(jobs.values()))
    return environment.get_template("compose/compose.yaml.j2").render(
        command=command,
        project=first.name if list(jobs) == [""] else "trainer",
        restarts=RESTARTS,
        secret_folder=SECRET_FOLDER,
        secret_file=f"{SECRET_FOLDER}/secret",
        jobs=[_job(profile, spec) for profile, spec in jobs.items()],
        tracked=any(spec.tracking for spec in jobs.values()),
        track_image=container.TRACK_IMAGE,
    )


def warnings(spec: JobSpec) -> list[str]:
    """What may surprise on compose."""
    chief = chief_of(spec).type
    variables = {**spec.env_of(chief), **spec.secrets}
    egress = f"connect its container to that network, or a proxy: {_PROXY}"
    return container.unreachable(spec, variables, egress, tracking=False)


def _job(profile: str, spec: JobSpec) -> dict[str, object]:
    mounts = [f"{_volume(spec)}:{WORKSPACE}/runs{'' if _volume(spec) == spec.name else f'/{spec.name}'}"]
    for path in files_of(spec).values():
        mounts.append(f"{_source(path)}:{WORKSPACE}/{Path(path).name}:ro")
    for name, module in modules_of(spec).items():
        mounts.append(f"{_source(str(module))}:{WORKSPACE}/{name}:ro")
    if spec.code:
        files = code.mounts(spec)
        written = spec.code[0] if spec.program else spec.workload
        mounts += [_read_only(_near(path, written), f"{code.PLACE}/{name}") for name, path in files.items()]
    machine.require_data(spec)
    container.require_way_out(spec, {*spec.env, *spec.secrets}, f"connect a proxy to it, and name the proxy: {_PROXY}")
    new_volumes = [] if spec.model_dir else mounts[:1]
    folders = [_read_only(spec.data[name].path or "", place) for name, place in mounted(spec.data).items()]
    cache = f"{spec.name}-cache" if copies(spec.data) else None
    if cache:
        folders.append(f"{cache}:{CACHE}")
        new_volumes = [*new_volumes, folders[-1]]
    tasks = tasks_of(spec, lambda task_type, index: f"{host_name(spec.name, task_type, index)}:{TF_PORT}")
    chief = next(task for task in tasks if task.is_chief)
    gpus = gpus_on_one_machine(spec, tasks)
    image = spec.image_of(chief.type)
    return {
        "name": spec.name,
        "secret": secret_name(spec.name),
        "cache": cache,
        "cache_folder": CACHE,
        # Without a value: compose takes it from its own environment.
        "variables": list(secrets_of_tasks(spec)),
        "track": _track(spec, mounts[0]) if spec.tracking else None,
        "profile": profile,
        "image": image,
        "build": OUR_IMAGES.get(image),
        "one_image": all(spec.image_of(task.type) == image for task in tasks),
        "program": {"task": TASK, "healthy": HEALTHY} if spec.program else None,
        "defaults": container.defaults(spec),
        "new_volumes": new_volumes if spec.program else [],
        "folders": [volume.partition(":")[2] for volume in new_volumes],
        "mounts": [*mounts, *folders],
        "mounts_without_data": mounts,
        "results": f"{mounts[0].partition(':')[0]}:{WORKSPACE}/runs/{spec.name}:ro",
        "model_dir": spec.model_dir,
        "volume": None if spec.model_dir else spec.name,
        "stop_seconds": f"{spec.deadlines.stop + STOP_SECONDS:g}",
        "spec": job_of(spec),
        "chief": host_name(spec.name, chief.type, chief.index),
        "tasks": [_task(spec, task, gpus[task.name]) for task in tasks],
    }


def track_service(name: str) -> str:
    """The service of `trainer track` for the job of that name."""
    return f"{name}-track"


def _track(spec: JobSpec, runs: str) -> dict[str, object]:
    """
    Args:
        runs: the mount of model_dir.
    """
    seconds = spec.deadlines.stop + STOP_SECONDS + spec.deadlines.notify
    return {
        "service": track_service(spec.name),
        "runs": runs,
        "folder": container.model_dir(spec),
        "env": {name: text for name, text in spec.env.items() if is_for_tracker(name)},
        "variables": list(secrets_of_tracker(spec)),
        "stop_seconds": f"{seconds:g}",
    }


def _task(spec: JobSpec, task: Task, gpus: Iterable[int]) -> dict[str, object]:
    group = spec.tasks.group(task.type)
    assert group is not None
    return {
        "host": host_name(spec.name, task.type, task.index),
        "image": spec.image_of(task.type),
        "build": OUR_IMAGES.get(spec.image_of(task.type)),
        "tf_config": task.tf_config(),
        "cpu": f"{group.cpu:g}" if group.cpu else None,
        "memory": memory_bytes(group.memory) if group.memory else None,
        "reads_data": reads(task.type),
        # By number: a count is that of the machine's first GPUs for each container (moby/daemon/nvidia_linux.go).
        "gpus": list(map(str, gpus)),
    }


def _volume(spec: JobSpec) -> str:
    """The volume for model_dir: one with the job's name, or the folder that the spec names."""
    return _source(spec.model_dir) if spec.model_dir else spec.name


def _read_only(path: str, place: str) -> str:
    if ":" in path:
        raise UserError(f"{path!r}: compose mounts no path with a colon; rename it")
    return f"{_source(path)}:{place}:ro"


def _near(path: Path, workload: str) -> str:
    """Relative to the working directory, as the workload's path is, or absolute."""
    near = not Path(workload).is_absolute() and path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd()) if near else path)


def _source(path: str) -> str:
    # Compose treats a source that begins with a dot or a slash as a path, any other as the name of a volume.
    return path if path.startswith("/") else f"./{path}"


# libyaml's, where PyYAML was built with it: forty times as fast, and a TF_CONFIG names all tasks.
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _scalar(text: str) -> str:
    """Text as a YAML scalar on one line; `$`, which compose would expand, doubled."""
    quoted: str = yaml.dump(
        text.replace("$", "$$"), Dumper=_DUMPER, default_style="'", width=2**31 - 1, allow_unicode=False
    )
    return quoted.strip()
