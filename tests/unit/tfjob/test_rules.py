"""Which settings of a TFJob become which of the spec: tasks, programs, resources, and what follows an end."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from tests.unit.tfjob.documents import (
    CONTAINER,
    FOLDER,
    LEFT,
    OPEN,
    RESTARTED,
    TYPES,
    WORKER,
    convert,
    job,
    replica,
    spec_of,
)
from trainer.job.derived import hidden_gpus
from trainer.job.load import build
from trainer.targets.kubernetes.render import render
from trainer.tfjob import convert as tfjob


@pytest.mark.parametrize(
    ("resources", "group"),
    [
        ({"limits": {"cpu": "500m"}}, {"replicas": 1, "cpu": 0.5}),
        ({"limits": {"cpu": "2"}}, {"replicas": 1, "cpu": 2}),
        ({"limits": {"cpu": 1.5}}, {"replicas": 1, "cpu": 1.5}),
        ({"limits": {"cpu": 4}, "requests": {"cpu": 1}}, {"replicas": 1, "cpu": 4}),
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


def test_other_tasks_end_with_the_chief_whatever_the_clean_pod_policy_says() -> None:
    _, notes = convert(job(run={"cleanPodPolicy": "None"}))
    assert "spec.runPolicy.cleanPodPolicy: 'None': the other tasks end with the chief here; finished pods stay" in notes


def test_a_request_without_a_limit_stays_a_request() -> None:
    """A limit would end a program that needs more memory, and slow one that needs more cores."""
    asked = {"cpu": "100m", "memory": "200Mi"}
    raw, notes = convert(job(Worker=replica(resources={"requests": asked})))
    assert raw["tasks"] == {"worker": 1}
    patch = {"spec": {"containers": [{"name": "task", "resources": {"requests": asked}}]}}
    assert raw["kubernetes"]["pod"] == patch
    assert not [note for note in notes if "requests" in note]
    (pod,) = [each for each in yaml.safe_load_all(render(build(raw), "x")) if each["kind"] == "Job"]
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == asked
    assert not container["resources"].get("limits")


@pytest.mark.parametrize(
    ("limits", "gpus", "resource"),
    [
        ({"nvidia.com/mig-1g.10gb": 1}, 1, "nvidia.com/mig-1g.10gb"),
        ({"nvidia.com/gpu.shared": "2"}, 2, "nvidia.com/gpu.shared"),
        ({"alpha.kubernetes.io/nvidia-gpu": 1}, 1, "alpha.kubernetes.io/nvidia-gpu"),
        ({"gpu.intel.com/i915": 1}, 1, "gpu.intel.com/i915"),
        ({"nvidia.com/gpumem": 3000, "nvidia.com/gpu": 1}, 1, "nvidia.com/gpu"),
        ({"habana.ai/gaudi": 8}, 8, "habana.ai/gaudi"),
        ({"aliyun.com/gpu-mem": 4}, None, None),
        ({"tencent.com/vcuda-core": 50, "tencent.com/vcuda-memory": 30}, None, None),
        ({"rdma/hca": 1}, None, None),
    ],
)
def test_accelerators_of_any_name_are_asked_for_and_visible(limits: Any, gpus: Any, resource: Any) -> None:
    raw, notes = convert(job(Worker=replica(resources={"limits": limits})))
    spec = build(raw)
    assert spec.tasks.of("worker").gpus == (gpus or 0)
    assert raw["kubernetes"].get("gpu_resource", "nvidia.com/gpu") == (resource or "nvidia.com/gpu")
    (pod,) = [each for each in yaml.safe_load_all(render(spec, "x")) if each["kind"] == "Job"]
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    assert {key: str(value) for key, value in container["resources"]["limits"].items()} == {
        key: str(value) for key, value in limits.items()
    }
    assert hidden_gpus(spec, "worker") == ({"CUDA_VISIBLE_DEVICES": "-1"} if "rdma/hca" in limits else {})
    assert not [note for note in notes if "limits" in note]


def test_the_variable_of_the_container_runtime_asks_for_gpus_too() -> None:
    for value, visible in (("all", True), ("0", True), ("none", False)):
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]
        assert (hidden_gpus(build(spec_of(job(Worker=replica(env=env)))), "worker") == {}) == visible


def test_a_job_whose_restarts_had_no_limit_is_told_of_ours() -> None:
    def noted(policy: str, run: Any = None) -> bool:
        _, notes = convert(job(run=run, Worker={**replica(), "restartPolicy": policy}))
        return any(note.startswith("spec.runPolicy.backoffLimit: null: is no limit") for note in notes)

    assert noted("OnFailure")
    assert not noted("OnFailure", {"backoffLimit": 3})
    assert not noted("Never")


def test_a_type_without_a_period_to_stop_has_that_of_pods() -> None:
    key = "terminationGracePeriodSeconds"
    raw, notes = convert(job(Worker=replica(pod={key: 5}), PS=replica()))
    assert raw["deadlines"] == {"stop": 30}
    assert f"spec.tfReplicaSpecs.Worker.template.spec.{key}: 5: is 30 here, as for all tasks" in notes
