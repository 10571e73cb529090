"""TFJobs as job specs: what becomes of whole files; nothing is dropped silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.tfjob.documents import CONTAINER, FOLDER, LEFT, OPEN, WORKER
from trainer.job.load import build, load_file
from trainer.tfjob import convert as tfjob

FILES = sorted(FOLDER.glob("*/*.yaml"))
IMAGE = 'has to hold trainer: build one FROM it (docs/programs.md, "Your image")'

GRACE = "is 30 where a pod leaves it out, and deadlines.stop is 8 here; set that if a program saves for longer"
PERIOD = "template.spec.terminationGracePeriodSeconds: null"
CLEAN = "spec.runPolicy.cleanPodPolicy: 'None': the other tasks end with the chief here; finished pods stay"
UNLIMITED = (
    "spec.runPolicy.backoffLimit: null: is no limit where a TFJob leaves it out; here max_restarts in a row without "
    "progress end the job: a step that the chief reports or prints, or a file below TRAINER_MODEL_DIR"
)


def converted(name: str) -> tuple[dict[str, Any], list[str]]:
    return tfjob.convert_file(str(FOLDER / f"{name}.yaml"))


def test_parameter_servers_and_workers() -> None:
    raw, notes = converted("tfjobs/dist-mnist")
    assert raw == {
        "name": "digits-between-graphs",
        "strategy": "parameter_server",
        "program": ["python", "/opt/digits.py"],
        "resume": "none",
        "code": [],
        "image": "registry.example/digits:1",
        "tasks": {"worker": 4, "ps": 2},
        "kubernetes": OPEN,
    }
    assert notes == [
        f"spec.tfReplicaSpecs.{{Worker,PS}}.{CONTAINER}.image: 'registry.example/digits:1': {IMAGE}",
        f"spec.tfReplicaSpecs.{{Worker,PS}}.{PERIOD}: {GRACE}",
    ]


def test_one_worker_that_writes_to_a_claim() -> None:
    raw, notes = converted("tfjobs/mnist-with-summaries")
    assert raw == {
        "name": "summaries",
        "strategy": "multi_worker_mirrored",
        "program": ["python", "/opt/summaries.py", "--log_dir=/out/logs", "--learning_rate=0.01", "--batch_size=150"],
        "resume": "none",
        "code": [],
        "image": "registry.example/summaries:2",
        "tasks": {"worker": 1},
        "kubernetes": {
            "volumes": [{"name": "out", "persistentVolumeClaim": {"claimName": "events"}}],
            "mounts": [{"name": "out", "mountPath": "/out"}],
            "volume": {"claim": "events"},
            "egress": True,
        },
    }
    assert notes == [
        f"spec.tfReplicaSpecs.Worker.{CONTAINER}.image: 'registry.example/summaries:2': {IMAGE}",
        CLEAN,
        f"spec.tfReplicaSpecs.Worker.{PERIOD}: {GRACE}",
        f"metadata.namespace: 'vision': {LEFT}give it to `trainer submit --namespace`",
        f"document 1: 'PersistentVolumeClaim events': {LEFT}only the first TFJob of a file becomes a spec",
    ]


def test_all_types_of_an_estimator() -> None:
    raw, notes = converted("tfjobs/estimator-with-evaluator")
    trains = {
        "cpu": 2,
        "memory": "2Gi",
        "env": {"MODEL_DIR": "/model/census", "TF_CPP_MIN_LOG_LEVEL": "1"},
        "kubernetes": {
            "volumes": [{"name": "model", "persistentVolumeClaim": {"claimName": "models"}}],
            "mounts": [{"name": "model", "mountPath": "/model"}],
        },
    }
    assert raw == {
        "name": "census",
        "strategy": "parameter_server",
        "program": ["sh", "-c", "exec python -m census.task --train-steps 2000 --model_dir=$(MODEL_DIR)"],
        "code": [],
        "image": "registry.example/census:3",
        "tasks": {
            "chief": {"replicas": 1, **trains},
            "worker": {"replicas": 2, **trains},
            "ps": {
                "replicas": 1,
                "cpu": 0.5,
                "memory": "1073741824",
                "program": ["census-ps", "--threads=4"],
                "image": "registry.example/census-ps:3",
                "env": {"TF_CPP_MIN_LOG_LEVEL": "2"},
            },
            "evaluator": {"replicas": 1, **trains},
        },
        # The ps does not mount the claim.
        "kubernetes": {**OPEN, "ttl_seconds": 3600},
    }
    ps = f"spec.tfReplicaSpecs.Ps.{CONTAINER}"
    assert notes == [
        "metadata.generateName: 'census-': is the whole name here; jobs that run at the same time need different ones",
        f'{ps}.args: ["census-ps", "--threads=4"]: is the program here, as in an image without ENTRYPOINT; if it has '
        "one, give it with --entrypoint",
        f"spec.tfReplicaSpecs.{{CHIEF,worker,Evaluator}}.{CONTAINER}.image: 'registry.example/census:3': {IMAGE}",
        f"{ps}.image: 'registry.example/census-ps:3': {IMAGE}",
        UNLIMITED,
        f"spec.tfReplicaSpecs.{{CHIEF,worker,Ps,Evaluator}}.{PERIOD}: {GRACE}",
    ]


def test_workers_in_step() -> None:
    raw, notes = converted("tfjobs/keras-multi-worker")
    saved = ["--saved_model_dir=/train/saved_model/", "--checkpoint_dir", "/train/checkpoint"]
    assert raw == {
        "name": "multi-worker-keras",
        "strategy": "multi_worker_mirrored",
        "program": ["python", "train.py", *saved],
        "working_dir": "/opt/code",
        "resume": "none",
        "code": [],
        "image": "registry.example/keras:2.15",
        "tasks": {"worker": 3},
        "env": {"GRPC_HOST": "$(POD_IP):2222"},
        "max_restarts": 3,
        "deadlines": {"stop": 60, "job": 86400},
        "kubernetes": {
            "image_pull_policy": "Always",
            "labels": {"team": "vision"},
            "env": {"POD_IP": {"field": "status.podIP"}},
            "volumes": [{"name": "training", "persistentVolumeClaim": {"claimName": "strategy-volume"}}],
            "mounts": [{"name": "training", "mountPath": "/train"}],
            "volume": {"claim": "strategy-volume"},
            "queue": "research",
            "egress": True,
        },
    }
    assert notes == [
        f"spec.tfReplicaSpecs.Worker.{CONTAINER}.image: 'registry.example/keras:2.15': {IMAGE}",
        CLEAN,
        f"metadata.namespace: 'vision': {LEFT}give it to `trainer submit --namespace`",
    ]


def test_what_clusters_add() -> None:
    raw, notes = converted("unlike/everything")
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert raw == {
        "name": "everything",
        "strategy": "parameter_server",
        "program": ["sh", "-c", "python -c 'print(1)'\npython train.py \u00fc\n"],
        "working_dir": "/opt",
        "success": "all_workers",
        "code": [],
        "image": "registry.example/everything:6",
        "tasks": {
            "worker": {
                "replicas": 2,
                "cpu": 1.5,
                "memory": "4Gi",
                "gpus": 2,
                "kubernetes": {
                    "node_selector": {"pool": "training"},
                    "affinity": affinity,
                    "service_account": "training",
                    "labels": {"app": "everything"},
                    "pod": {"spec": {"containers": [{"name": "task", "resources": {"requests": {"cpu": "1"}}}]}},
                    "volumes": [
                        {"name": "config", "configMap": {"name": "job"}},
                        {"name": "own-tmp", "persistentVolumeClaim": {"claimName": "models", "readOnly": False}},
                        {"name": "spare", "persistentVolumeClaim": {"claimName": "spare"}},
                    ],
                    "mounts": [
                        {"name": "config", "mountPath": "/etc/job"},
                        {"name": "own-tmp", "mountPath": "/model", "subPath": "runs"},
                        {"name": "spare", "mountPath": "/spare"},
                    ],
                    "init_containers": [
                        {
                            "name": "fetch",
                            "image": "registry.example/fetch:1",
                            "volumeMounts": [{"name": "own-tmp", "mountPath": "/m"}],
                        }
                    ],
                    "sidecars": [{"name": "own-tensorboard", "image": "registry.example/board:1"}],
                },
            },
            "ps": {"replicas": 1, "program": ["everything-ps", "--port", "2222", "--rate", "0.5", "--quiet", "true"]},
        },
        "max_restarts": 3,
        "deadlines": {"job": 7200},
        "kubernetes": {
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}],
            "priority_class": "batch",
            "image_pull_secrets": ["registry"],
            "image_pull_policy": "Always",
            "annotations": {"sidecar.istio.io/inject": "false"},
            "gang": "volcano",
            "queue": "gold",
            **OPEN,
            "ttl_seconds": 86400,
        },
    }
    here, both = f"{WORKER}.containers[tensorflow]", "spec.tfReplicaSpecs.{Worker,PS}"
    run, ps = "spec.runPolicy", f"spec.tfReplicaSpecs.PS.{CONTAINER}"
    annotation = f"{LEFT}of this object; kubernetes.annotations are those of pods"
    assert notes == [
        f"{ps}.args: 2222: is a text here: '2222'",
        f"{ps}.args: 0.5: is a text here: '0.5'",
        f"{ps}.args: true: is a text here: 'true'",
        f"{both}.{CONTAINER}.image: 'registry.example/everything:6': {IMAGE}",
        f"{both}.{PERIOD}: {GRACE}",
        f"{ps}.workingDir: null: {LEFT}all tasks have that of Worker: '/opt'",
        f"{WORKER}.schedulerName: 'volcano': places the pods of all tasks here",
        f"metadata.annotations.owner: 'somebody': {annotation}",
        f"metadata.annotations.kubectl.kubernetes.io/last-applied-configuration: '{{}}': {annotation}",
        f"spec.enableDynamicWorker: true: {LEFT}the number of tasks is fixed; dead tasks are restarted",
        f"{run}.schedulingPolicy.minAvailable: 2: "
        f"{LEFT}all tasks are needed: a missing one ends the job after deadlines.start",
        f"{run}.schedulingPolicy.priorityClass: 'high': {LEFT}pods have one of their own",
        f'{WORKER}.securityContext: {{"runAsUser": 0}}: {LEFT}trainer sets it',
        f'{here}.ports: [{{"name": "metrics", "containerPort": 9090}}]: {LEFT}only the job\'s own tasks may '
        "connect; to look at a port use kubectl port-forward",
        f'status: {{"conditions": []}}: {LEFT}it is the state of the TFJob, not its specification',
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_spec_can_be_submitted_as_it_is_printed(path: Path, tmp_path: Path) -> None:
    raw, _ = tfjob.convert_file(str(path))
    printed = tmp_path / "job.yaml"
    printed.write_text(tfjob.to_yaml(raw))
    assert load_file(printed, environ={}) == build(raw)


def test_the_spec_is_printed_as_a_user_would_write_it() -> None:
    printed = tfjob.to_yaml({"name": "j", "tasks": {"ps": 2, "worker": 4}, "train": {"learning_rate": 1e-5}})
    assert printed == "name: j\ntasks: {ps: 2, worker: 4}\ntrain: {learning_rate: 1.0e-05}\n"
