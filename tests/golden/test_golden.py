"""Golden files: output that users depend on. `make golden` rewrites them; read the diff."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.golden import spec_reference
from trainer.job.cluster import tasks_of
from trainer.job.load import build, load_file
from trainer.job.schema import schema
from trainer.protocol import schema as protocol_schema
from trainer.targets.compose import render as compose
from trainer.targets.kubernetes import render as kubernetes
from trainer.targets.kubernetes.job_set import jobs_of

ROOT = Path(__file__).parents[2]
APPLICABLE = sorted((ROOT / "k8s").glob("*.yaml"))
SPECS: dict[str, dict[str, Any]] = {
    "ps": {"name": "mnist-ps", "strategy": "parameter_server", "tasks": {"worker": 3, "ps": 2}},
    "mwms": {"name": "mnist", "strategy": "multi_worker_mirrored", "tasks": {"worker": 3}},
    "mwms-chief-evaluator": {
        "name": "mnist",
        "strategy": "multi_worker_mirrored",
        "tasks": {"chief": 1, "worker": {"replicas": 2}, "evaluator": 1},
    },
    "graph": {"name": "sum", "strategy": "graph", "workload": "sum", "job_name": "local", "tasks": {"worker": 2}},
    "data": {
        "name": "texts",
        "strategy": "parameter_server",
        "tasks": {"ps": 1, "worker": 2},
        "data": {
            "train": {"path": "examples", "copy": "node", "kubernetes": {"claim": "corpus", "sub_path": "train"}},
            "test": {"path": "docs", "kubernetes": {"nfs": {"server": "files.example", "path": "/texts/test"}}},
        },
    },
    "program": {
        "name": "resnet",
        "strategy": "parameter_server",
        "program": ["python", "train.py", "--index=$(TASK_INDEX)"],
        "code": ["tests/golden/program"],
        "working_dir": "src",
        "python": "/usr/bin/python3.12",
        "image": "registry.example/team/resnet:3",
        "env": {"LEARNING_RATE": "0.1", "MODE": "train"},
        "secrets": {"AWS_SECRET_ACCESS_KEY": {"secret": "s3", "key": "secret"}},
        "data": {"train": {"path": "examples", "copy": "node", "kubernetes": {"claim": "corpus"}}},
        "tasks": {
            "worker": {"replicas": 2, "memory": "2Gi"},
            "ps": {"program": ["./serve"], "image": "trainer:cpu", "env": {"MODE": "serve"}},
        },
        "deadlines": {"stop": 3},
    },
    "mirrored": {
        "name": "mnist",
        "strategy": "mirrored",
        "tasks": {"worker": {"gpus": 2}},
        "secrets": {"API_KEY": {"secret": "wandb", "key": "token"}, "HF_TOKEN": {"secret": "hf", "file": "hf"}},
    },
    "tracked": {
        "name": "digits",
        "strategy": "one_device",
        "image": "registry.example/team/trainer:cpu",
        "env": {"HTTPS_PROXY": "http://proxy:3128", "MODE": "train"},
        "secrets": {
            "MLFLOW_TRACKING_USERNAME": {"secret": "mlflow", "key": "user"},
            "MLFLOW_TRACKING_PASSWORD": {"secret": "mlflow", "key": "password"},
            "API_KEY": {"secret": "api"},
        },
        "tracking": {"mlflow": "https://mlflow.example.com/team", "experiment": "digits", "register_as": "digits"},
    },
}

ON_KUBERNETES: dict[str, dict[str, Any]] = {
    **SPECS,
    "mwms-gpu": {
        "name": "mnist",
        "strategy": "multi_worker_mirrored",
        "tasks": {"worker": {"replicas": 4, "gpus": 2, "cpu": 8, "memory": "32Gi"}},
    },
    "one-worker": {"name": "mnist", "strategy": "multi_worker_mirrored"},
    # Its packed code would differ with the version of zlib.
    "program": {
        **SPECS["program"],
        "code": [],
        "working_dir": "/app",
        "tasks": {
            "worker": {
                "replicas": 2,
                "gpus": 1,
                "kubernetes": {
                    "node_selector": {"pool": "spot"},
                    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
                    "labels": {"tier": "cheap"},
                    "env": {"NODE_IP": {"field": "status.hostIP"}},
                    "image_pull_policy": "Always",
                    "image_pull_secrets": ["registry"],
                },
            },
            "ps": {
                "program": ["./serve"],
                "image": "registry.example/team/ps:1",
                "env": {"MODE": "serve"},
                "kubernetes": {
                    "priority_class": "high",
                    "volumes": [],
                    "mounts": [],
                    "init_containers": [],
                    "sidecars": [],
                    "env": {"MEMORY": {"resource": "requests.memory"}},
                },
            },
        },
        "kubernetes": {
            "volume": {"access": "ReadWriteOnce", "size": "5Gi"},
            "service_account": "trainer-s3",
            "annotations": {"example.com/owner": "vision"},
            "labels": {"team": "vision"},
            "env": {"REGION": {"config_map": "cloud", "key": "region"}, "HOME": "/scratch/home"},
            "env_from": [{"configMapRef": {"name": "flags"}}],
            "volumes": [
                {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
                {"name": "corpus-too", "persistentVolumeClaim": {"claimName": "corpus"}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
            ],
            "mounts": [
                {"name": "scratch", "mountPath": "/scratch"},
                {"name": "corpus-too", "mountPath": "/mnt/corpus"},
                {"name": "memory", "mountPath": "/dev/shm"},
            ],
            "init_containers": [
                {
                    "name": "fetch",
                    "image": "busybox:1.36",
                    "command": ["sh", "-c", "touch /mnt/ready"],
                    "volumeMounts": [{"name": "corpus-too", "mountPath": "/mnt"}],
                }
            ],
            "sidecars": [{"name": "logs", "image": "fluent-bit:3", "args": ["--quiet"]}],
        },
    },
    "patched": {
        "name": "resnet",
        "strategy": "parameter_server",
        "tasks": {
            "worker": {
                "replicas": 2,
                "gpus": 1,
                "kubernetes": {
                    "pod": {
                        "spec": {
                            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
                            "containers": [
                                {
                                    "name": "task",
                                    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                                    "resources": {"limits": {"rdma/hca": 1}, "requests": {"rdma/hca": 1}},
                                }
                            ],
                        }
                    }
                },
            },
            "ps": 1,
        },
        "kubernetes": {
            "topology": "rack",
            "pod": {
                "spec": {
                    "runtimeClassName": "nvidia",
                    "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["files.example"]}],
                    "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
                    "securityContext": {"fsGroupChangePolicy": "OnRootMismatch"},
                }
            },
            "unsafe": ["spec.containers[task].securityContext.capabilities.add"],
        },
    },
    # Of the pods, mine-...-worker-0 has 63 characters.
    "longest-name": {
        "name": f"mine-{'x' * 49}",
        "strategy": "multi_worker_mirrored",
        "tasks": {"worker": 2},
    },
    "jobset": {
        "name": "mnist",
        "strategy": "parameter_server",
        "tasks": {"worker": 2, "ps": 1, "evaluator": 1},
        "kubernetes": {"gang": "jobset", "queue": "research"},
    },
    "podgroup": {
        "name": "mnist",
        "strategy": "multi_worker_mirrored",
        "tasks": {"worker": 2},
        "kubernetes": {"gang": "podgroup"},
    },
    "everything": {
        "name": "mnist",
        "strategy": "parameter_server",
        "workload": "examples/languages.py",
        "image": "registry.example/team/trainer:1.0",
        "tasks": {"worker": {"replicas": 3, "gpus": 1}, "ps": {"replicas": 2, "cpu": 0.5}, "evaluator": 1},
        "deadlines": {"stop": 20.5},
        "kubernetes": {
            "volume": {"size": "10Gi", "storage_class": "fast"},
            "node_selector": {"pool": "gpu"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                        ]
                    }
                }
            },
            "priority_class": "high",
            "image_pull_secrets": ["registry"],
            "env": {"GREETING": 'say "hi" for $(HOME): ok'},
            "labels": {"team": "vision"},
            "gpu_resource": "amd.com/gpu",
            "egress": True,
            "tensorboard": True,
            "metrics": {"namespace": "monitoring", "pods": {"app.kubernetes.io/name": "prometheus"}},
            "ttl_seconds": 60,
        },
    },
}


@pytest.fixture
def same(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Asserts that a text is the golden file's, or makes it so under --update-golden."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare


def test_schema(same: Callable[[str, str], None]) -> None:
    same("schema.json", schema() + "\n")


DOCUMENTS = {"status": protocol_schema.status, "result": protocol_schema.result}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_of_what_other_programs_read(name: str, same: Callable[[str, str], None]) -> None:
    made = DOCUMENTS[name]()
    jsonschema.Draft202012Validator.check_schema(made)
    for folder in (".", "../../docs/schema"):  # the documentation's own copy
        same(f"{folder}/{name}.json", json.dumps(made, indent=2) + "\n")


def test_the_spec_reference_is_that_of_the_schema(same: Callable[[str, str], None]) -> None:
    same("../../docs/spec.md", spec_reference.page())


@pytest.mark.parametrize("name", SPECS)
def test_tf_config(name: str, same: Callable[[str, str], None]) -> None:
    tasks = tasks_of(build(SPECS[name]))
    same(f"tf_config-{name}.txt", "".join(f"{task.name} {task.tf_config()}\n" for task in tasks))


@pytest.mark.parametrize("name", SPECS)
def test_compose_file(name: str, same: Callable[[str, str], None]) -> None:
    same(f"compose-{name}.yaml", compose.render({"": build(SPECS[name])}, "trainer render compose JOB.yaml"))


@pytest.mark.parametrize("name", ON_KUBERNETES)
def test_manifests(name: str, same: Callable[[str, str], None]) -> None:
    spec = build(ON_KUBERNETES[name])
    same(f"kubernetes-{name}.yaml", kubernetes.render(spec, "trainer render kubernetes JOB.yaml"))


# 1.37 is the first that has the PodGroup.
@pytest.mark.parametrize(
    ("name", "version"),
    [(n, v) for n in ON_KUBERNETES for v in ("1.31", "1.34", "1.37") if n != "podgroup" or v == "1.37"],
)
def test_manifests_are_what_kubernetes_publishes(name: str, version: str) -> None:
    text = (Path(__file__).parent / f"kubernetes-{name}.yaml").read_text(encoding="utf-8")
    for manifest in yaml.safe_load_all(text):
        for each in jobs_of(manifest, {}) if manifest["kind"] == "JobSet" else [manifest]:
            published = {"apiVersion": "batch/v1", "kind": "Job", **each, "metadata": each["metadata"]}
            kubernetes_validate.validate(published, version, strict=True)


def test_there_is_a_manifest_of_each_main_example() -> None:
    assert {path.stem for path in APPLICABLE} >= {"mnist-ps", "mnist-mwms", "mnist-gpu", "digits-ps"}


@pytest.mark.parametrize("path", APPLICABLE, ids=lambda path: path.stem)
def test_the_manifests_in_k8s_are_those_of_the_examples(path: Path) -> None:
    command = f"trainer render kubernetes examples/{path.name}"
    rendered = kubernetes.render(load_file(ROOT / "examples" / path.name), command)
    assert path.read_text(encoding="utf-8") == rendered, "make manifests renews it"


def test_the_compose_file_in_the_root_is_that_of_the_examples() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    words = shlex.split(text.splitlines()[0].removeprefix("# Written by: "))
    jobs = {profile: load_file(ROOT / path) for profile, _, path in (word.partition("=") for word in words[3:])}
    assert text == compose.render(jobs, shlex.join(words)), "make compose-file renews it"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    exported = json.loads(schema())
    jsonschema.Draft202012Validator.check_schema(exported)
    return jsonschema.Draft202012Validator(exported)


@pytest.mark.parametrize("name", SPECS)
def test_the_schema_accepts_what_we_accept(name: str, validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(SPECS[name])
    validator.validate(build(SPECS[name]).model_dump())


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ({"surprise": 1}, "$"),
        ({"train": {"lerning_rate": 1}}, "$.train"),
        ({"tasks": {"workers": 1}}, "$.tasks"),
        ({"strategy": "mirored"}, "$.strategy"),
        ({"train": {"steps": 0}}, "$.train.steps"),
        ({"tasks": {"worker": 0}}, "$.tasks.worker"),
        ({"tasks": {"worker": {"cpu": 0}}}, "$.tasks.worker"),
        ({"train": {"learning_rate": 0}}, "$.train.learning_rate"),
        ({"deadlines": {"hang": 0}}, "$.deadlines.hang"),
    ],
)
def test_the_schema_refuses_what_we_refuse(
    bad: dict[str, Any], place: str, validator: jsonschema.Draft202012Validator
) -> None:
    (error,) = validator.iter_errors({**SPECS["mwms"], **bad})
    assert error.json_path == place
