"""The manifests of programs of the user's own, and the user's settings of pods."""

from __future__ import annotations

import base64
import io
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.targets.kubernetes.test_render import environment, jobs, manifests, pod, ps, spec
from trainer.job import tf_config
from trainer.job.errors import UserError
from trainer.job.load import load_environment, load_file
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import names
from trainer.targets.kubernetes import render as kubernetes

RULE = "requiredDuringSchedulingIgnoredDuringExecution"


def program(**more: Any) -> JobSpec:
    given = {"strategy": "parameter_server", "tasks": {"worker": 2, "ps": 1, "evaluator": 1}, "program": ["./train"]}
    return spec(**{**given, **more})


def test_worker_0_stays_worker_0_and_its_job_shows_the_outcome() -> None:
    job = program()
    assert {name: each["spec"]["completions"] for name, each in jobs(job).items()} == {
        "j-worker": 2, "j-ps": 1, "j-evaluator": 1,
    }  # fmt: skip
    task = tf_config.from_environment(job, environment(job, "j-worker", 0))
    assert (task.name, task.is_chief, list(task.cluster)) == ("worker:0", True, ["worker", "ps"])
    assert names.chief_type(names.counts(job)) == "worker"
    assert names.chief_type(names.counts(program(tasks={"worker": 2, "ps": 1, "chief": 1}))) == "chief"


def test_any_image_runs_the_command_as_user_1000_with_a_home_of_its_own() -> None:
    job = program(tasks={"worker": {"image": "mine:1"}, "ps": 1}, kubernetes={"env": {"PYTHONUNBUFFERED": ""}})
    for name, image in (("j-worker", "mine:1"), ("j-ps", "trainer:cpu")):
        task = pod(job, name)["containers"][0]
        assert (task["image"], task["command"]) == (image, ["trainer", "task"])
        assert pod(job, name)["securityContext"]["runAsUser"] == 1000
        given = environment(job, name, 0)
        assert (given["HOME"], given["PYTHONUNBUFFERED"]) == ("/tmp", "")
    other = pod(ps(), "j-chief")
    assert "command" not in other["containers"][0]
    assert "HOME" not in environment(ps(), "j-chief", 0)


def test_a_task_finds_the_spec_with_the_places_of_its_container(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/train.py").touch()
    (tmp_path / "j.yaml").write_text(
        "{name: j, strategy: multi_worker_mirrored, program: [python, train.py], python: .venv/bin/python, "
        "working_dir: app, env: {A: b}, tasks: {worker: 2}}"
    )
    received = load_environment(environment(load_file(tmp_path / "j.yaml"), "j-worker", 1))
    assert (received.directory, received.code, received.working_dir) == ("/workspace/runs/j", ["/code"], "app")
    assert (received.program, received.python, received.env) == (["python", "train.py"], None, {"A": "b"})
    without = load_environment(environment(program(), "j-worker", 0))
    assert (without.code, without.working_dir) == ([], None)


def test_code_keeps_its_executables(tmp_path: Path) -> None:
    for name, mode in (("train.sh", 0o755), ("data.txt", 0o644)):
        (tmp_path / name).touch(mode)
    job = program(code=[str(tmp_path)])
    (config,) = (each for (kind, _), each in manifests(job).items() if kind == "ConfigMap")
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(config["binaryData"]["code.tar.gz"]))) as packed:
        assert {each.name: each.mode for each in packed} == {"train.sh": 0o755, "data.txt": 0o644}


def test_bad_code_is_refused_by_name(tmp_path: Path) -> None:
    code = tmp_path / "code"
    with pytest.raises(UserError, match=f"^code: '{code}': no such file or folder "):
        manifests(program(code=[str(code)]))
    code.mkdir()
    (code / "weights.bin").write_bytes(random.Random(1).randbytes(1_200_000))
    large = (
        r"^code: packed, the job's ConfigMap would have 1,20\d,\d\d\d bytes, Kubernetes allows 1,048,576; the largest: "
        r"weights.bin \(1,200,000\); .* into an image"
    )
    with pytest.raises(UserError, match=large):
        manifests(program(code=[str(code)]))
    (code / "weights.bin").unlink()
    (tmp_path / "secret").touch()
    (code / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=f"^code: '{code}/link': is a link to a file outside {code}"):
        manifests(program(code=[str(code)]))


def near(job: JobSpec, name: str) -> list[str]:
    """The types of tasks whose node a pod requires."""
    terms = pod(job, name).get("affinity", {}).get("podAffinity", {}).get(RULE, [])
    return [each["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in terms]


@pytest.mark.parametrize(
    ("volume", "tasks", "chief"),
    [
        ({}, {"worker": 2, "ps": 1}, "worker"),
        ({"storage_class": "x"}, {"chief": 1, "worker": 2, "ps": 1}, "chief"),
        ({"access": "ReadWriteMany"}, {"worker": 2, "ps": 1}, None),
        ({"claim": "mine"}, {"worker": 2, "ps": 1, "evaluator": 1}, None),
        ({"host_path": "/nfs"}, {"chief": 1, "worker": 2, "ps": 1}, None),
    ],
)
def test_all_tasks_have_the_volume_on_one_node_if_it_needs_that(volume: Any, tasks: Any, chief: str | None) -> None:
    job = program(tasks=tasks, kubernetes={"volume": volume})
    for name in jobs(job):
        assert "emptyDir" not in pod(job, name)["volumes"][0]
        assert near(job, name) == ([chief] if chief and name != "j-chief" else []), name
    warned = [each.partition(", so all run on one node; ")[0] for each in kubernetes.warnings(job)]
    problem = "kubernetes.volume.access: ReadWriteOnce: every pod of a program mounts model_dir"
    assert warned == ([problem] if chief else [])
    claims = [each for (kind, _), each in manifests(job).items() if kind == "PersistentVolumeClaim"]
    modes = [[volume.get("access", "ReadWriteOnce")]] if chief or "access" in volume else []
    assert [each["spec"]["accessModes"] for each in claims] == modes


def test_one_pod_needs_no_node_and_workloads_are_as_they_were() -> None:
    one = spec(strategy="mirrored", tasks={"worker": 1}, program=["./train"])
    assert (kubernetes.warnings(one), near(one, "j-worker")) == ([], [])
    assert kubernetes.warnings(ps()) == []
    assert near(ps(tasks={"worker": 2, "ps": 1, "evaluator": 1}), "j-evaluator") == ["chief"]


def test_tensorboard_needs_a_chief() -> None:
    with pytest.raises(UserError, match=r"^kubernetes.tensorboard: True: is in the chief's pod, and this program has"):
        manifests(program(kubernetes={"tensorboard": True}))
    job = program(tasks={"worker": 2, "ps": 1, "chief": 1}, kubernetes={"tensorboard": True})
    assert [each["name"] for each in pod(job, "j-chief")["initContainers"]] == ["tensorboard"]


def test_a_way_out_that_every_task_has_counts() -> None:
    data = {"train": {"path": "gs://bucket/records"}}
    proxy = {"HTTPS_PROXY": "http://p:1"}
    manifests(program(data=data, env=proxy))
    manifests(program(data=data, tasks={"worker": {"env": proxy}, "ps": {"kubernetes": {"env": proxy}}}))
    with pytest.raises(UserError, match=r"no way out; .* NetworkPolicy allows: env: {HTTPS_PROXY: URL}$"):
        manifests(program(data=data, tasks={"worker": {"env": proxy}, "ps": 1}))


def test_workloads_have_the_settings_of_pods_per_type_too() -> None:
    job = ps(
        kubernetes={"node_selector": {"a": "b"}, "labels": {"team": "x"}, "annotations": {"k": "v"}},
        tasks={
            "ps": {"image": "ours:2", "kubernetes": {"node_selector": {"disk": "fast"}, "labels": {"tier": "ps"}}},
            "worker": {"replicas": 2, "kubernetes": {"service_account": "w", "image_pull_policy": "Never"}},
        },
    )
    found = {name: pod(job, name) for name in jobs(job)}
    assert {name: each.get("nodeSelector") for name, each in found.items()} == {
        "j-chief": {"a": "b"}, "j-worker": {"a": "b"}, "j-ps": {"disk": "fast"},
    }  # fmt: skip
    assert {name: each["containers"][0]["image"] for name, each in found.items()} == {
        "j-chief": "trainer:cpu", "j-worker": "trainer:cpu", "j-ps": "ours:2",
    }  # fmt: skip
    assert (found["j-worker"]["serviceAccountName"], found["j-worker"]["containers"][0]["imagePullPolicy"]) == (
        "w", "Never",
    )  # fmt: skip
    metadata = jobs(job)["j-ps"]["spec"]["template"]["metadata"]
    assert metadata["annotations"] == {"k": "v"}
    assert {metadata["labels"][key] for key in ("team", "tier")} == {"x", "ps"}
    assert "tier" not in jobs(job)["j-ps"]["metadata"]["labels"]


def test_without_a_chief_in_the_spec_it_has_the_workers_settings() -> None:
    job = spec(tasks={"worker": {"replicas": 3, "image": "w:1", "kubernetes": {"node_selector": {"a": "b"}}}})
    chief = pod(job, "j-chief")
    assert (chief["containers"][0]["image"], chief["nodeSelector"]) == ("w:1", {"a": "b"})


def test_a_claim_of_the_users_that_is_ours_too_is_one_volume() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "all"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "corpus", "readOnly": True}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "else"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "else"}},
    ]
    job = program(
        data={"train": {"kubernetes": {"claim": "corpus"}}},
        kubernetes={
            "volume": {"claim": "all"},
            "volumes": volumes,
            "mounts": [{"name": name, "mountPath": f"/mnt/{name}", "subPath": "x"} for name in "abcd"],
            "init_containers": [{"name": "i", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
        },
    )
    found = pod(job, "j-worker")
    key = "persistentVolumeClaim"
    claims = {each["name"]: each[key] for each in found["volumes"] if key in each}
    assert claims == {
        "runs": {"claimName": "all"},
        "data-train": {"claimName": "corpus", "readOnly": True},
        "c": {"claimName": "else"},
    }
    mounts = {each["mountPath"]: each for each in found["containers"][0]["volumeMounts"]}
    assert {path: mounts[f"/mnt/{path}"]["name"] for path in "abcd"} == {
        "a": "runs", "b": "data-train", "c": "c", "d": "c",
    }  # fmt: skip
    assert mounts["/mnt/b"]["readOnly"]
    assert mounts["/mnt/a"]["subPath"] == "x"
    assert found["initContainers"][0]["volumeMounts"] == [{"name": "c", "mountPath": "/d"}]


def test_scratch_of_the_users_takes_the_place_of_ours() -> None:
    shm = {"name": "big", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    settings = {"volumes": [shm], "mounts": [{"name": "big", "mountPath": "/dev/shm/"}]}
    job = program(tasks={"worker": {"gpus": 1}, "ps": 1}, kubernetes=settings)
    mounts = pod(job, "j-worker")["containers"][0]["volumeMounts"]
    assert [each["name"] for each in mounts if each["mountPath"].startswith("/dev/shm")] == ["big"]


def test_containers_of_the_users_are_restricted_unless_they_say_otherwise() -> None:
    own = {"runAsUser": 0}
    settings = {
        "init_containers": [{"name": "first", "image": "i"}],
        "sidecars": [{"name": "beside", "image": "s", "securityContext": own}],
    }
    first, beside = pod(program(kubernetes=settings), "j-ps")["initContainers"]
    assert first["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert (beside["securityContext"], beside["restartPolicy"]) == (own, "Always")
    assert "restartPolicy" not in first


EMPTY = {"name": "v", "emptyDir": {}}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"volumes": [{"name": "runs", "emptyDir": {}}]},
         "volumes: 'runs': trainer has a volume of that name; choose another"),
        ({"volumes": [{"name": "data-mine", "emptyDir": {}}]},
         "volumes: 'data-mine': trainer has a volume of that name; choose another"),
        ({"volumes": [{"emptyDir": {}}]},
         'volumes[0]: {"emptyDir": {}}: needs name, by which Kubernetes merges volumes'),
        ({"volumes": [{"name": "My Volume", "emptyDir": {}}]},
         "volumes: 'My Volume': each needs a name of lower-case letters, digits and '-'"),
        ({"mounts": [{"name": "v", "mountPath": "/x"}]},
         "mounts: 'v': no volume of that name under kubernetes.volumes; each mount names one"),
        ({"volumes": [EMPTY], "mounts": [{"name": "v"}]}, "mounts: 'v': each needs a mountPath"),
        ({"volumes": [EMPTY], "mounts": [{"name": "v", "mountPath": "/workspace/runs/"}]},
         "mounts: '/workspace/runs': trainer mounts a volume there; choose another path"),
        ({"sidecars": [{"name": "task"}]},
         "sidecars: 'task': the pod has another container of that name; choose another"),
        ({"init_containers": [{"name": "a"}], "sidecars": [{"name": "a"}]},
         "sidecars: 'a': the pod has another container of that name; choose another"),
        ({"init_containers": [{"image": "a"}]},
         "init_containers: None: each needs a name of lower-case letters, digits and '-'"),
        ({"sidecars": [{"name": "a\n---\nkind: Evil"}]},
         "sidecars: 'a\\n---\\nkind: Evil': each needs a name of lower-case letters, digits and '-'"),
        ({"init_containers": [{"name": "a", "env": [{"value": "x"}]}]},
         'init_containers[0].env[0]: {"value": "x"}: needs name, by which Kubernetes merges env'),
        ({"sidecars": [{"name": "a", "ports": [8080]}]},
         "sidecars[0].ports[0]: 8080: needs containerPort, by which Kubernetes merges ports"),
        ({"sidecars": [{"name": "a", "imagee": "x"}]},
         "sidecars[0].imagee: 'x': Container in Kubernetes has no such field; did you mean image?"),
        ({"init_containers": [{"name": "a", "volumeMounts": [{"name": "lost", "mountPath": "/x"}]}]},
         "init_containers: 'a': volumeMounts: 'lost': no volume has that name; add it to `volumes`"),
        ({"sidecars": [{"name": "a", "volumeMounts": [{"name": "report-secret", "mountPath": "/x"}]}]},
         "sidecars: 'a': volumeMounts: 'report-secret': holds the secret of the job's tasks, which they alone mount; "
         "remove it"),
        ({"tolerations": [{"kee": "x"}]}, "tolerations[0].kee: 'x': Toleration in Kubernetes has no such field; did "
         "you mean key?"),
        ({"affinity": {"nodeAfinity": {}}}, "affinity.nodeAfinity: {}: Affinity in Kubernetes has no such field; did "
         "you mean nodeAffinity?"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "q"}},
         "labels: 'kueue.x-k8s.io/queue-name': use kubernetes.queue"),
        ({"annotations": {"container.apparmor.security.beta.kubernetes.io/task": "unconfined"}},
         "annotations: 'container.apparmor.security.beta.kubernetes.io/task': changes a protection of a container; set "
         "securityContext in kubernetes.pod, which kubernetes.unsafe must name"),
    ],
)  # fmt: skip
def test_names_and_paths_that_are_ours_are_refused(settings: Any, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        manifests(program(kubernetes=settings))
    assert caught.value.problems == (f"kubernetes.{problem}",)
    of_ps = problem.replace("under kubernetes", "under tasks.ps.kubernetes") if "volumes" in settings else problem
    with pytest.raises(UserError) as caught:
        manifests(program(tasks={"worker": 2, "ps": {"kubernetes": settings}}))
    assert caught.value.problems == (f"tasks.ps.kubernetes.{of_ps}",)
