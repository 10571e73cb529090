"""The ConfigMap that all pods of a job share."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainer.job import code, workload_file
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.targets.container import files_of, job_of, modules_of
from trainer.targets.kubernetes import names

LARGEST_CONFIG_MAP = 1024 * 1024
"""Bytes of a ConfigMap's data (MaxSecretSize in Kubernetes' pkg/apis/core/types.go)."""
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


@dataclass(frozen=True)
class ConfigMap:
    name: str
    """The name, which is new for new contents: a pod never starts with a different spec than its Job's."""
    data: dict[str, str]
    files: dict[str, str]
    """The contents of files in base64, by their names in the working directory."""


def of(spec: JobSpec, pods: Mapping[TaskType, int]) -> ConfigMap:
    """The ConfigMap of a job: the spec, the cluster, and files that the spec names."""
    files: dict[str, bytes] = {}
    user_files = [(key, Path(path).name, Path(path)) for key, path in files_of(spec).items()]
    for name, module in modules_of(spec).items():
        within = [(file.relative_to(module).as_posix(), file) for file in workload_file.files_of(module)]
        user_files += [("workload", name if rest == "." else f"{name}/{rest}", file) for rest, file in within]
    for key, name, path in user_files:
        if not _KEY.fullmatch(key_of(name)):
            raise UserError(f"{key}: {str(path)!r}: a ConfigMap allows letters, digits, '-', '_' and '.' in file names")
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise UserError(f"{key}: {str(path)!r}: cannot be read: {error.strerror}") from None
    if spec.code:
        files[code.ARCHIVE] = code.pack(spec)
    cluster = json.dumps(tasks_of(spec, partial(names.address, spec), pods)[0].cluster)
    job = job_of(spec)
    _require_fits(spec, cluster, job, files)
    data = {"cluster": cluster, "job": job}
    encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
    digest = hashlib.sha256(json.dumps({"data": data, "files": encoded}).encode()).hexdigest()[:8]
    return ConfigMap(f"{spec.name}-{digest}", data, encoded)


def key_of(name: str) -> str:
    """The key of a file in the ConfigMap: keys have no slashes."""
    return name.replace("/", ".")


def _require_fits(spec: JobSpec, cluster: str, job: str, files: dict[str, bytes]) -> None:
    if (size := len(cluster) + len(job.encode()) + sum(map(len, files.values()))) > LARGEST_CONFIG_MAP:
        if code.ARCHIVE in files:
            raise UserError(
                f"code: packed, the job's ConfigMap would have {size:,} bytes, Kubernetes allows "
                f"{LARGEST_CONFIG_MAP:,}; {code.largest(code.files(spec))}; put data into a volume (data:), or build "
                "the files into an image (image:)"
            )
        raise UserError(
            f"{', '.join(files)}: the job's ConfigMap would have {size:,} bytes, Kubernetes allows "
            f"{LARGEST_CONFIG_MAP:,}; bake the data into an image of your own (image:), and name a dataset of your "
            "workload's instead"
        )
