"""TFJobs as job specs: the conversion of each setting; none is dropped silently."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.job import program
from trainer.job.errors import UserError
from trainer.job.load import build, load_file
from trainer.targets.kubernetes import render as kubernetes
from trainer.tfjob import convert as tfjob

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*/*.yaml"))

WORKER = "spec.tfReplicaSpecs.Worker.template.spec"
CONTAINER = "template.spec.containers[tensorflow]"
IMAGE = 'has to hold trainer: build one FROM it (docs/programs.md, "Your image")'
LEFT = "is left out: "
WORDS = (
    "a program needs its words; those of the image's ENTRYPOINT are not known here, `docker image inspect IMAGE` shows "
    "them; give them, as in --entrypoint 'python /opt/train.py'"
)
RESTARTED = "exit codes 1 to 127 end the job here; a task that a signal ended is restarted"
OPEN = {"volume": {"empty_dir": True}, "egress": True}
"""What a program has on Kubernetes like the pods of a TFJob: a folder of its own, and the way out."""


# What becomes of whole files. ---------------------------------------------------------------------------


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
    assert notes == [f"spec.tfReplicaSpecs.{{Worker,PS}}.{CONTAINER}.image: 'registry.example/digits:1': {IMAGE}"]


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


# Single settings. ---------------------------------------------------------------------------------------


def replica(**more: Any) -> dict[str, Any]:
    """A type of tasks; more: of its container."""
    pod, container = more.pop("pod", {}), {"name": "tensorflow", "image": "i", "command": ["c"], **more}
    return {"template": {"spec": {"containers": [container], **pod}}}


def job(name: Any = "j", run: Any = None, **types: Any) -> dict[str, Any]:
    spec = {"runPolicy": run, "tfReplicaSpecs": types or {"Worker": replica()}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def convert(*documents: Any) -> tuple[dict[str, Any], list[str]]:
    return tfjob.convert(yaml.safe_dump_all(documents), "x.yaml")


def spec_of(document: Any) -> dict[str, Any]:
    return convert(document)[0]


@pytest.mark.parametrize(
    ("resources", "group"),
    [
        ({"limits": {"cpu": "500m"}}, {"replicas": 1, "cpu": 0.5}),
        ({"limits": {"cpu": "2"}}, {"replicas": 1, "cpu": 2}),
        ({"limits": {"cpu": 1.5}}, {"replicas": 1, "cpu": 1.5}),
        ({"limits": {"cpu": 4}, "requests": {"cpu": 1}}, {"replicas": 1, "cpu": 4}),
        ({"requests": {"cpu": 1, "memory": "512Mi"}}, {"replicas": 1, "cpu": 1, "memory": "512Mi"}),
        ({"limits": {"memory": 1000}}, {"replicas": 1, "memory": "1000"}),
        ({"limits": {"nvidia.com/gpu": "2"}}, {"replicas": 1, "gpus": 2}),
        ({"limits": {"nvidia.com/gpu": 0}}, 1),
        ({"limits": {"cpu": "many", "memory": "1e9"}}, 1),
    ],
)
def test_resources(resources: Any, group: Any) -> None:
    assert spec_of(job(Worker=replica(resources=resources)))["tasks"] == {"worker": group}


def test_a_resource_that_the_spec_refuses_is_reported() -> None:
    _, notes = convert(job(Worker=replica(resources={"limits": {"memory": "1e9"}})))
    here = f"spec.tfReplicaSpecs.Worker.{CONTAINER}.resources.limits.memory"
    assert f"{here}: '1e9': is left out: string should match" in "\n".join(notes)


@pytest.mark.parametrize(
    ("types", "strategy", "tasks"),
    [
        ({"Chief": replica()}, "multi_worker_mirrored", {"chief": 1}),
        ({"Worker": replica()}, "multi_worker_mirrored", {"worker": 1}),
        ({"MASTER": replica(), "ps": replica()}, "parameter_server", {"chief": 1, "ps": 1}),
        ({"Worker": {"replicas": 0, **replica()}, "Chief": replica()}, "multi_worker_mirrored", {"chief": 1}),
        ({"Worker": {"replicas": 3, **replica()}, "PS": {"replicas": 0}}, "multi_worker_mirrored", {"worker": 3}),
        ({"worker": {"replicas": 2, **replica()}, "Ps": replica()}, "parameter_server", {"worker": 2, "ps": 1}),
        ({"evaluator": replica(), "WORKER": replica()}, "multi_worker_mirrored", {"worker": 1, "evaluator": 1}),
    ],
)
def test_tasks_are_those_of_the_tfjob(types: Any, strategy: str, tasks: Any) -> None:
    raw = spec_of(job(**types))
    assert (raw["strategy"], raw["tasks"]) == (strategy, tasks)
    assert build(raw).tasks.counts() == tasks


def test_tf_config_has_a_chief_for_a_master() -> None:
    _, notes = convert(job(Master=replica()))
    assert "spec.tfReplicaSpecs.Master: 'Master': is a chief, also in TF_CONFIG" in notes


@pytest.mark.parametrize(
    ("container", "entrypoint", "words"),
    [
        ({"command": ["a", "b"], "args": ["c"]}, "", ["a", "b", "c"]),
        ({"command": [], "args": ["python", "x.py"]}, "", ["python", "x.py"]),
        ({"command": None, "args": ["--x"]}, "python 'my x.py'", ["python", "my x.py", "--x"]),
        ({"command": None}, "train -v", ["train", "-v"]),
        ({"command": ["sh", "-c", "a\nb $$(X) \u00fc"]}, "", ["sh", "-c", "a\nb $$(X) \u00fc"]),
        ({"command": ["a", 3, 0.5, True, -1]}, "", ["a", "3", "0.5", "true", "-1"]),
        ({"command": ["a", ""]}, "", ["a", ""]),
    ],
)
def test_the_program_is_that_of_the_container(container: Any, entrypoint: str, words: list[str]) -> None:
    document = yaml.safe_dump(job(Worker=replica(**container)))
    raw, _ = tfjob.convert(document, "x.yaml", shlex.split(entrypoint))
    assert raw["program"] == words
    assert yaml.safe_load(tfjob.to_yaml(raw)) == raw


def test_an_entrypoint_is_that_of_every_type_without_a_command() -> None:
    raw, _ = tfjob.convert_file(str(FOLDER / "entrypoint.yaml"), ["python", "/opt/digits.py"])
    spec = build(raw)
    assert spec.program_of("worker") == ["python", "/opt/digits.py", "--steps=300"]
    assert spec.program_of("ps") == ["python", "/opt/digits.py"]


def test_types_may_have_programs_images_and_folders_of_their_own() -> None:
    chief = replica(command=["coordinate"], workingDir="/a")
    types = {"Chief": chief, "Worker": replica(workingDir="/b"), "PS": replica(image="k", workingDir="/b")}
    raw, notes = convert(job(**types))
    assert (raw["program"], raw["image"], raw["working_dir"]) == (["c"], "i", "/b")
    assert raw["tasks"]["chief"] == {"replicas": 1, "program": ["coordinate"]}
    assert raw["tasks"]["ps"] == {"replicas": 1, "image": "k"}
    here = f"spec.tfReplicaSpecs.Chief.{CONTAINER}.workingDir"
    assert f"{here}: '/a': {LEFT}all tasks have that of Worker: '/b'" in notes


NEVER = "is Never where a TFJob leaves it out, so resume is none; remove that if the program finds its checkpoint"


@pytest.mark.parametrize(
    ("policies", "resume", "noted"),
    [
        (["Never", "Never"], "none", None),
        (["Never", None], "none", None),
        (["ExitCode", "ExitCode"], None, None),
        ([None, None], "none", f"Worker.restartPolicy: null: {NEVER}"),
        ([None, "ExitCode"], None, None),
        (["OnFailure", "Always"], None, f"Worker.restartPolicy: 'Always': {RESTARTED}"),
        (["Never", "ExitCode"], None, f"PS.restartPolicy: 'Never': {LEFT}resume is for all tasks, and other types are "
         "restarted"),
        (["Never", "Sometimes"], None, f"Worker.restartPolicy: 'Sometimes': {LEFT}must be Never, OnFailure, Always or "
         "ExitCode"),
    ],
)  # fmt: skip
def test_what_follows_when_a_task_ends(policies: list[Any], resume: Any, noted: Any) -> None:
    types = {key: {**replica(), "restartPolicy": each} for key, each in zip(("PS", "Worker"), policies, strict=True)}
    raw, notes = convert(job(**types))
    assert raw.get("resume") == resume
    policy_notes = [note for note in notes if "restartPolicy" in note]
    assert (f"{TYPES}.{noted}" in policy_notes) if noted else policy_notes == []


def test_the_dns_of_the_nodes_is_left_out() -> None:
    raw, notes = convert(job(Worker=replica(pod={"dnsPolicy": "Default"})))
    assert f"{WORKER}.dnsPolicy: 'Default': {LEFT}tasks find each other by the DNS of the cluster" in notes
    assert "pod" not in raw.get("kubernetes", {})
    raw, _ = convert(job(Worker=replica(pod={"dnsPolicy": "None"})))
    assert raw["kubernetes"]["pod"] == {"spec": {"dnsPolicy": "None"}}


def test_a_pods_own_restart_policy_is_not_that_of_its_type() -> None:
    _, notes = convert(job(Worker=replica(pod={"restartPolicy": "Always"})))
    assert f"{WORKER}.restartPolicy: 'Always': {LEFT}the type's own counts, as the operator has it" in notes


def test_the_longest_time_to_stop_is_that_of_all_tasks() -> None:
    key = "terminationGracePeriodSeconds"
    raw, notes = convert(job(Worker=replica(pod={key: 90}), PS=replica(pod={key: 5})))
    assert raw["deadlines"] == {"stop": 90}
    assert f"spec.tfReplicaSpecs.PS.template.spec.{key}: 5: is 90 here, as for all tasks" in notes


@pytest.mark.parametrize(
    ("run", "spec"),
    [
        ({"cleanPodPolicy": "Running"}, {}),
        ({"cleanPodPolicy": "None"}, {}),
        ({"schedulingPolicy": {"minAvailable": 1}}, {}),
        ({"schedulingPolicy": {"priorityClass": "high"}}, {"kubernetes": {"priority_class": "high", **OPEN}}),
        ({"schedulingPolicy": {"scheduleTimeoutSeconds": 900}}, {"deadlines": {"start": 900}}),
        ({"activeDeadlineSeconds": 60, "backoffLimit": 0}, {"max_restarts": 0, "deadlines": {"job": 60}}),
        ({"suspend": True, "ttlSecondsAfterFinished": 9},
         {"kubernetes": {**OPEN, "suspend": True, "ttl_seconds": 9}}),
    ],
)  # fmt: skip
def test_the_run_policy_without_notes(run: Any, spec: Any) -> None:
    plain = convert(job())
    raw, notes = convert(job(run=run))
    assert raw == {**plain[0], **spec}
    assert notes == plain[1]


def env(**values: Any) -> list[dict[str, Any]]:
    """Variables: texts, or the source of a value."""
    return [{"name": n, **({"valueFrom": v} if isinstance(v, dict) else {"value": v})} for n, v in values.items()]


def test_variables_that_types_share_are_those_of_the_job() -> None:
    worker = env(
        A="1", ROLE="w", B="$(A)", C="$(ROLE)/x", D=3, ONLY="", SITE={"configMapKeyRef": {"name": "m", "key": "k"}}
    )
    ps = env(A="1", ROLE="p", B="$(A)", C="$(ROLE)/x", D=3, SITE={"configMapKeyRef": {"name": "m", "key": "other"}})
    raw, notes = convert(job(Worker=replica(env=worker), PS=replica(env=[*ps, {"name": "EMPTY"}])))
    assert raw["env"] == {"A": "1", "B": "$(A)", "D": "3"}
    # C follows ROLE, which it refers to.
    assert [*raw["tasks"]["worker"]["env"].items()] == [("ROLE", "w"), ("C", "$(ROLE)/x"), ("ONLY", "")]
    assert raw["tasks"]["ps"]["env"] == {"ROLE": "p", "C": "$(ROLE)/x", "EMPTY": ""}
    assert raw["tasks"]["worker"]["kubernetes"] == {"env": {"SITE": {"config_map": "m", "key": "k"}}}
    assert raw["tasks"]["ps"]["kubernetes"] == {"env": {"SITE": {"config_map": "m", "key": "other"}}}
    assert f"spec.tfReplicaSpecs.{{Worker,PS}}.{CONTAINER}.env[D]: 3: is the text '3' here" in notes
    assert program.variables(build(raw), "ps", {})["C"] == "p/x"


@pytest.mark.parametrize(
    ("source", "section", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "kubernetes", {"field": "metadata.namespace"}),
        ({"fieldRef": {"fieldPath": "spec.nodeName", "apiVersion": "v1"}}, "kubernetes", {"field": "spec.nodeName"}),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "kubernetes", {"resource": "limits.cpu"}),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, "secrets", {"secret": "s", "key": "k"}),
        ({"secretKeyRef": {"name": "s", "key": "k", "optional": True}}, "secrets", {"secret": "s", "key": "k"}),
        ({"secretKeyRef": {"name": "s"}}, None, None),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, None, None),
        ({"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}, None, None),
        ({"fileKeyRef": {"path": "x"}}, None, None),
    ],
)
def test_sources_of_variables(source: Any, section: str | None, value: Any) -> None:
    raw, notes = convert(job(Worker=replica(env=env(X=source))))
    found = {"kubernetes": raw["kubernetes"].get("env", {}).get("X"), "secrets": raw.get("secrets", {}).get("X")}
    assert found == {"kubernetes": None, "secrets": None, **({section: value} if section else {})}
    noted = [note for note in notes if "env[X]" in note]
    assert len(noted) == (section is None or "optional" in str(source))


def test_secrets_are_those_of_all_tasks() -> None:
    first, other = ({"secretKeyRef": {"name": name, "key": "k"}} for name in ("s", "t"))
    raw, notes = convert(job(PS=replica(env=env(X=other)), Worker=replica(env=env(X=first, Y=first))))
    assert raw["secrets"] == {"X": {"secret": "s", "key": "k"}, "Y": {"secret": "s", "key": "k"}}
    place = f".{CONTAINER}.env"
    assert f'{TYPES}.PS{place}[X]: {{"secret": "t", "key": "k"}}: {LEFT}all tasks get the same secret here' in notes
    assert f'{TYPES}.Worker{place}[Y]: {{"secret": "s", "key": "k"}}: all tasks get it here' in notes


def mounted(volume: Any, **mount: Any) -> dict[str, Any]:
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return replica(volumeMounts=mounts, pod={"volumes": [{"name": "v", **volume}]})


CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}


@pytest.mark.parametrize(
    ("types", "volume"),
    [
        ({"Worker": mounted(CLAIM)}, {"claim": "c"}),
        ({"Worker": mounted(CLAIM, readOnly=True), "Chief": mounted(CLAIM, subPath="x")}, {"claim": "c"}),
        ({"Worker": mounted(CLAIM), "PS": replica()}, {"empty_dir": True}),
        ({"Worker": mounted(CLAIM, readOnly=True)}, {"empty_dir": True}),
        ({"Worker": mounted({"persistentVolumeClaim": {"claimName": "c", "readOnly": True}})}, {"empty_dir": True}),
        ({"Worker": mounted({"hostPath": {"path": "/f"}})}, {"empty_dir": True}),
    ],
)
def test_model_dir_is_in_a_claim_that_all_tasks_mount_and_one_writes(types: Any, volume: Any) -> None:
    assert spec_of(job(**types))["kubernetes"]["volume"] == volume


def test_labels_and_annotations_of_objects_and_pods() -> None:
    def labelled(labels: Any, annotations: Any) -> dict[str, Any]:
        template = replica()["template"]
        return {"template": {**template, "metadata": {"labels": labels, "annotations": annotations}}}

    ours = {"app.kubernetes.io/name": "x"}
    document = job(
        Worker=labelled({"a": "1", "b": "1", "c": "1", **ours}, {"x": "1", "y": "1"}),
        PS=labelled({"a": "1", "b": "2", "c": "1"}, {"x": "1"}),
    )
    document["metadata"]["labels"] = {"c": "2", "d": "1"}
    raw, notes = convert(document)
    assert raw["kubernetes"]["labels"] == {"c": "2", "d": "1", "a": "1"}
    assert raw["kubernetes"]["annotations"] == {"x": "1"}
    assert raw["tasks"]["worker"]["kubernetes"] == {"labels": {"b": "1", "c": "1"}, "annotations": {"y": "1"}}
    assert raw["tasks"]["ps"]["kubernetes"] == {"labels": {"b": "2", "c": "1"}}
    assert [note for note in notes if f"{LEFT}trainer sets this label itself" in note]


# Queues. ------------------------------------------------------------------------------------------------


KUEUE, VOLCANO = "kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name"


def queued(of_job: Any = None, run: Any = None, name: str = "j", **types: Any) -> Any:
    """A TFJob with a label of Kueue's, of itself and of its types: (label, further keys of the pod)."""
    made = {}
    for key, (label, pod) in types.items():
        made[key] = replica(pod={k: v for k, v in pod.items() if k != "annotations"})
        labels = {KUEUE: label} if label else {}
        made[key]["template"]["metadata"] = {"labels": labels, "annotations": pod.get("annotations", {})}
    document = job(name=name, run=run, **made)
    document["metadata"]["labels"] = {KUEUE: of_job} if of_job else {}
    return document


def about_queues(document: Any) -> tuple[dict[str, Any], list[str]]:
    """What the spec has of queues, and the notes about them. It can be rendered."""
    raw, notes = convert(document)
    kubernetes.render(build(raw), "x")
    found = {key: raw["kubernetes"][key] for key in ("gang", "queue") if key in raw["kubernetes"]}
    words = ("queue-name", "schedulerName", "schedulingPolicy")
    return found, [note for note in notes if any(word in note for word in words)]


JOBSET = {"gang": "jobset", "queue": "q"}
ALL_WAIT = f"{{}}.template.metadata.labels.{KUEUE}: 'q': all tasks wait in this queue here"


@pytest.mark.parametrize(
    ("document", "found", "notes"),
    [
        (queued("q", Worker=("", {}), PS=("", {})), JOBSET, []),
        (queued(Worker=("q", {}), PS=("q", {})), JOBSET, []),
        (queued("q", Worker=("q", {}), PS=("q", {})), JOBSET, []),
        (queued(Worker=("q", {})), {"queue": "q"}, []),
        (queued(Worker=("q", {}), PS=("", {})), JOBSET, [f"spec.tfReplicaSpecs.{ALL_WAIT.format('Worker')}"]),
        (
            queued("q", Worker=("q", {}), PS=("r", {})),
            JOBSET,
            [f"spec.tfReplicaSpecs.PS.template.metadata.labels.{KUEUE}: 'r': {LEFT}a job has one queue, that of "
             f"metadata.labels.{KUEUE}: 'q'"],
        ),
        (
            queued("?", Worker=("", {}), PS=("", {})),
            {},
            [f"metadata.labels.{KUEUE}: '?': {LEFT}string should match pattern "
             "'^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$'"],
        ),
    ],
)  # fmt: skip
def test_the_queue_of_kueue_is_that_of_the_job(document: Any, found: Any, notes: list[str]) -> None:
    assert about_queues(document) == (found, notes)


def test_a_name_that_is_too_long_for_a_job_set_leaves_out_the_queue_with_it() -> None:
    name = "n" * (63 - len("-worker-0"))
    found, notes = about_queues(queued("q", name=name, Worker=("", {}), PS=("", {})))
    assert found == {}
    (note,) = notes
    why = f"{LEFT}it needs kubernetes.gang: jobset; name: '{name}': {name}-worker-0-0 would have 65 characters, "
    assert note.startswith(f"metadata.labels.{KUEUE}: 'q': {why}")
    # One Job needs no JobSet.
    assert about_queues(queued("q", name=name, Worker=("", {}))) == ({"queue": "q"}, [])


BY_VOLCANO = {"schedulerName": "volcano"}
ANNOTATED = {**BY_VOLCANO, "annotations": {VOLCANO: "q"}}
POLICY = {"schedulingPolicy": {"queue": "q"}}
NO_VOLCANO = (
    f"spec.runPolicy.schedulingPolicy.queue: 'q': {LEFT}of a gang scheduler; set kubernetes.queue with kubernetes.gang"
    ": volcano if Volcano has such a queue, or with kubernetes.gang: jobset if Kueue has such a local queue"
)


@pytest.mark.parametrize(
    ("document", "found", "notes"),
    [
        (queued(run=POLICY, Worker=("", BY_VOLCANO), PS=("", BY_VOLCANO)), {"gang": "volcano", "queue": "q"}, []),
        (queued(Worker=("", ANNOTATED), PS=("", ANNOTATED)), {"gang": "volcano", "queue": "q"}, []),
        (queued(Worker=("", BY_VOLCANO)), {"gang": "volcano"}, []),
        (
            queued(run=POLICY, Worker=("", BY_VOLCANO), PS=("", {})),
            {"gang": "volcano", "queue": "q"},
            [f"{WORKER}.schedulerName: 'volcano': places the pods of all tasks here"],
        ),
        (
            queued(run={"schedulingPolicy": {"queue": "r"}}, Worker=("", ANNOTATED)),
            {"gang": "volcano", "queue": "r"},
            [f"spec.tfReplicaSpecs.Worker.template.metadata.annotations.{VOLCANO}: 'q': {LEFT}a job has one queue, "
             "that of spec.runPolicy.schedulingPolicy.queue: 'r'"],
        ),
        (
            queued(run=POLICY, Worker=("", {})),
            {},
            [NO_VOLCANO],
        ),
        (
            queued("k", run=POLICY, Worker=("", BY_VOLCANO)),
            {"queue": "k"},
            [NO_VOLCANO,
             f"{WORKER}.schedulerName: 'volcano': {LEFT}the cluster's default scheduler places the pods; for gangs set "
             "kubernetes.gang"],
        ),
    ],
)  # fmt: skip
def test_volcanos_jobs_are_gangs_of_volcano(document: Any, found: Any, notes: list[str]) -> None:
    assert about_queues(document) == (found, notes)


def test_volcanos_annotation_of_the_tfjob_names_a_queue() -> None:
    document = queued(Worker=("", BY_VOLCANO))
    document["metadata"]["annotations"] = {VOLCANO: "q"}
    assert about_queues(document) == ({"gang": "volcano", "queue": "q"}, [])


def test_a_request_without_a_limit_becomes_one() -> None:
    _, notes = convert(job(Worker=replica(resources={"requests": {"cpu": "1500m"}})))
    assert f"{WORKER}.containers[tensorflow].resources.requests.cpu: '1500m': is the limit too here" in notes


def test_a_request_of_a_part_of_a_core_is_no_limit() -> None:
    raw, notes = convert(job(Worker=replica(resources={"requests": {"cpu": "100m", "memory": "1Gi"}})))
    assert raw["tasks"]["worker"] == {"replicas": 1, "memory": "1Gi"}
    here = f"{WORKER}.containers[tensorflow].resources.requests.cpu: '100m'"
    assert [note for note in notes if note.startswith(f"{here}: is left out: ")]


# What no spec can be made of. ---------------------------------------------------------------------------

TYPES = "spec.tfReplicaSpecs"
NO_CONTAINER = "must hold one named tensorflow, with an image"
HOST = f"{'n' * 60}-worker-0"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "kind: null: must be a TFJob"),
        ([1], "kind: [1]: must be a TFJob"),
        ({"kind": "PyTorchJob"}, "kind: 'PyTorchJob': must be a TFJob"),
        (
            {"kind": "TFJob", "apiVersion": "kubeflow.org/v1beta2"},
            "apiVersion: 'kubeflow.org/v1beta2': must be kubeflow.org/v1; older ones spell their settings otherwise",
        ),
        ({**job(), "spec": 3}, "spec: 3: must be a mapping"),
        ({**job(), "spec": None}, f"{TYPES}: []: must hold a Worker or a Chief, or nothing trains"),
        (job(PS=replica()), f'{TYPES}: ["PS"]: must hold a Worker or a Chief, or nothing trains'),
        (job(Launcher=replica()), f"{TYPES}: 'Launcher': must be Chief, Worker, PS, Evaluator, or Master for Chief"),
        (job(Chief=replica(), Master=replica()), f"{TYPES}: 'Master': is the type of Chief; keep one of them"),
        (job(Worker=None), f"{TYPES}.Worker.template.spec.containers: []: {NO_CONTAINER}"),
        (job(Worker=[]), f"{TYPES}.Worker: []: must be a mapping"),
        (
            job(Worker=replica(name="main")),
            f'{TYPES}.Worker.template.spec.containers: ["main"]: {NO_CONTAINER}',
        ),
        (
            job(Worker={"template": {"spec": {"containers": {}}}}),
            f"{TYPES}.Worker.template.spec.containers: {{}}: must be a list",
        ),
        (
            job(Worker={"template": {"spec": {"containers": [3]}}}),
            f"{TYPES}.Worker.template.spec.containers[#0]: 3: must be a mapping",
        ),
        (
            job(Worker={"replicas": "3", **replica()}),
            f"{TYPES}.Worker.replicas: '3': input should be a valid integer",
        ),
        (
            job(Worker=replica(), Evaluator={"replicas": 2, **replica()}),
            f"{TYPES}.Evaluator.replicas: 2: there is at most one evaluator; set 1",
        ),
        (
            job(Worker=replica(command=None)),
            f"{TYPES}.Worker.{CONTAINER}.command: null: {WORDS}",
        ),
        (
            job(Worker=replica(command=None, args=["--x"]), Chief=replica(), PS=replica(command=[], args=["--x"])),
            f'{TYPES}.{{Worker,PS}}.{CONTAINER}.args: ["--x"]: {WORDS}',
        ),
        (
            job(Worker=replica(command="python x.py")),
            f"{TYPES}.Worker.{CONTAINER}.command: 'python x.py': must be a list of texts",
        ),
        (
            job(Worker=replica(command=["x", "a\0b"])),
            f"{TYPES}.Worker.{CONTAINER}.command.1: 'a\\x00b': string should match pattern '^[^\\x00]*$'",
        ),
        (
            job(Worker=replica(resources={"limits": {"nvidia.com/gpu": "some"}})),
            f"{TYPES}.Worker.{CONTAINER}.resources.limits.nvidia.com/gpu: 'some': input should be a valid integer",
        ),
        (
            job(name="My_Job"),
            "metadata.name: 'My_Job': must be lower-case letters, digits and '-', "
            "from a letter to a letter or digit (RFC 1035)",
        ),
        (job(name=None), "metadata.name: null: is required"),
        (
            job(name="n" * 60),
            f"metadata.name: '{'n' * 60}': {HOST} would have 69 characters, DNS allows 63; shorten it by 6",
        ),
    ],
)
def test_what_no_spec_can_be_made_of(document: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        convert(document)
    assert caught.value.problems == (f"x.yaml: {message}",)


def test_an_entrypoint_that_no_container_needs() -> None:
    with pytest.raises(UserError) as caught:
        tfjob.convert(yaml.safe_dump(job()), "x.yaml", ["python"])
    assert str(caught.value) == 'x.yaml: --entrypoint: ["python"]: every container has a command; leave it out'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "x.yaml:1:5: not valid YAML: while parsing a flow node, expected the node content"),
        ("kind: TFJob\nkind: TFJob", "x.yaml:2:1: not valid YAML: key 'kind' is given twice"),
        ("a: .nan", "x.yaml: not valid YAML: Out of range float values are not JSON compliant"),
        ("a: &a [*a]", "x.yaml: not valid YAML: Circular reference detected"),
        ("", "x.yaml: kind: null: must be a TFJob"),
    ],
)
def test_text_that_is_no_manifest(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        tfjob.convert(text, "x.yaml")
    assert str(caught.value).startswith(message)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = str(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        tfjob.convert_file(path)


def test_what_has_no_setting_is_a_patch_of_the_pods() -> None:
    """For all tasks if it is the same for all, otherwise for its type."""
    dns = {"options": [{"name": "ndots", "value": "1"}]}
    worker = replica(resources={"limits": {"cpu": 2, "amd.com/gpu": 1, "rdma/hca": 1}})
    ps = replica()
    for each in (worker, ps):
        each["template"]["spec"]["dnsConfig"] = dns
    worker["template"]["spec"]["runtimeClassName"] = "nvidia"
    raw, notes = convert(job(Worker=worker, PS=ps))
    assert raw["kubernetes"]["pod"] == {"spec": {"dnsConfig": dns}}
    extra = [{"name": "task", "resources": {"limits": {"rdma/hca": 1}}}]
    assert raw["tasks"]["worker"]["kubernetes"]["pod"] == {"spec": {"runtimeClassName": "nvidia", "containers": extra}}
    assert not [note for note in notes if "is left out" in note]
