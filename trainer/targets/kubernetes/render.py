"""Renders a spec as Kubernetes manifests.

One Indexed batch/v1 Job per task type, so that a thousand workers are not a thousand objects. The chief's Job shows the
outcome: it completes or fails as the training does.
"""

from __future__ import annotations

import math

from trainer.job import code
from trainer.job import secret as job_secret
from trainer.job.derived import has_ring
from trainer.job.errors import Exit, UserError
from trainer.job.names import TF_PORT, control_port, gradients_port, metrics_port, secret_name
from trainer.job.spec import JobSpec
from trainer.job.tracker import secrets_of_tasks
from trainer.targets import container
from trainer.targets.container import STOP_SECONDS
from trainer.targets.kubernetes import config_map, gang, names, patch, pod, settings, variables, volumes, yaml_text
from trainer.targets.kubernetes.objects import Manifest

FAR = 100
"""maxSkew with a topology: the scheduler scores an uneven spread so little that it only decides between nodes of one
domain (podtopologyspread/scoring.go). Without any constraint it would apply the cluster's own."""
PATIENT_SECONDS = 1800.0
"""How long tasks wait for each other by default: images are pulled for minutes, and nodes are added on demand."""


def render(spec: JobSpec, command: str) -> str:
    """The manifests of a job, for `kubectl apply`.

    Args:
        command: the command that writes them, for the first line.

    Raises:
        UserError: Kubernetes would refuse it; the message names the value, the limit and the fix.
    """
    templates = container.templates()
    templates.filters["json"] = yaml_text.one_line
    templates.filters["config_key"] = config_map.key_of
    templates.filters["patched"] = lambda text, task_type: patch.patched(spec, task_type, text)
    return templates.get_template("kubernetes/kubernetes.yaml.j2").render(command=command, **_values(spec))


def secret(spec: JobSpec) -> Manifest:
    """A new Secret for the tasks' reports, as a manifest. Manifest files, which users keep, do not contain it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(spec.name), "labels": names.labels(spec)},
        "stringData": {job_secret.FILE: job_secret.new()},
    }


def warnings(spec: JobSpec) -> list[str]:
    """What may surprise on Kubernetes."""
    one_node = (
        "kubernetes.volume.access: ReadWriteOnce: every pod of a program mounts model_dir, so all run on one node; for "
        "several set ReadWriteMany, if the storage class has it, or name a claim"
    )
    chief = names.chief_type(names.counts(spec))
    environ = {**spec.pod_of(chief).env, **spec.env_of(chief), **spec.secrets}
    egress = "set kubernetes.egress: true, or let it out by a NetworkPolicy of your own"
    return [
        *([one_node] if pod.on_one_node(spec) else []),
        *([] if spec.kubernetes.egress else container.unreachable(spec, environ, egress, tracking=True)),
        *(f"kubernetes.unsafe: {path}: kubernetes.pod gives up this protection" for path in spec.kubernetes.unsafe),
    ]


def _values(spec: JobSpec) -> dict[str, object]:
    given, pods = spec.kubernetes, names.counts(spec)
    if spec.model_dir is not None:
        raise UserError(f"model_dir: {spec.model_dir!r}: is a folder of this machine; kubernetes.volume says where")
    if given.tensorboard and "chief" not in pods:
        raise UserError("kubernetes.tensorboard: True: is in the chief's pod, and this program has no chief; remove it")
    settings.require(spec, pods)
    gang.require(spec, pods)
    patch.require(spec, pods)
    if not given.egress:
        egress = "set kubernetes.egress: true, or name a proxy that another NetworkPolicy allows"
        given_names = (spec.pod_of(task_type).env.keys() | spec.env_of(task_type) for task_type in pods)
        container.require_way_out(
            spec, {*set.intersection(*map(set, given_names)), *spec.secrets}, f"{egress}: env: {{HTTPS_PROXY: URL}}"
        )
    labels, secrets = names.labels(spec), variables.secrets(spec)
    config = config_map.of(_patient(spec), pods)
    return {
        "name": spec.name,
        "labels": labels,
        "selector": {key: labels[key] for key in ("app.kubernetes.io/name", names.INSTANCE)},
        "config": config,
        "secret": {"name": secret_name(spec.name), "key": job_secret.FILE, "folder": volumes.SECRET_FOLDER},
        "claim": volumes.claim(spec),
        "host_path": (given.volume.host_path or "").replace("$", "$$"),
        "ports": {
            "tensorflow": TF_PORT,
            "control": control_port(TF_PORT),
            "metrics": metrics_port(TF_PORT),
            "gradients": gradients_port(TF_PORT),
        },
        "ring": has_ring(spec, spec.tasks.counts()),
        "metrics": given.metrics,
        # NCCL takes any port, and a program may.
        "any_port": bool(spec.program) or any(pod.gpus(spec, task_type) for task_type in pods),
        "egress": given.egress,
        "unsafe": given.unsafe,
        "max_skew": FAR if given.topology else 1,
        "code": {"archive": f"{container.WORKSPACE}/{code.ARCHIVE}"} if spec.code else None,
        "tensorboard": pod.tensorboard_image(spec),
        "track_image": container.track_image(spec),
        "suspend": given.suspend or bool(gang.queue_label(spec)),
        "gang": given.gang,
        "group": gang.group(spec, pods),
        "chief": names.chief_type(pods),
        "set_restarts": gang.JOB_SET_RESTARTS,
        "final_reasons": gang.final_reasons(spec),
        "set_labels": {**labels, **gang.queue_label(spec)},
        "ttl_seconds": given.ttl_seconds,
        "grace_seconds": math.ceil(spec.deadlines.stop) + STOP_SECONDS,
        "stopped": int(Exit.STOPPED),
        "secrets": {name: each for name, each in secrets.items() if name in secrets_of_tasks(spec)},
        "jobs": [pod.of_type(spec, task_type, pods, config, secrets) for task_type in pods],
    }


def _patient(spec: JobSpec) -> JobSpec:
    """The spec as its tasks get it, with the deadlines that it leaves to the target."""
    left = {"start", "rejoin", "chief_lost"} - spec.deadlines.model_fields_set
    if pod.on_one_node(spec):
        # The pods mount the volume that a new chief may need on another node: they must not wait for it long.
        left.discard("chief_lost")
    deadlines = spec.deadlines.model_copy(update=dict.fromkeys(left, PATIENT_SECONDS))
    return spec.model_copy(update={"deadlines": deadlines})
