"""The manifests as data, as Kubernetes would parse them."""

from __future__ import annotations

import base64
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.job import code, tf_config
from trainer.job.errors import Exit, UserError
from trainer.job.load import build, load_environment
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import lifecycle
from trainer.targets.kubernetes import render as kubernetes
from trainer.targets.kubernetes.api_server import kind_of


def spec(**more: Any) -> JobSpec:
    return build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 3}, **more})


def ps(workers: int = 2, **more: Any) -> JobSpec:
    return spec(**{"strategy": "parameter_server", "tasks": {"worker": workers, "ps": 1}, **more})


def manifests(job: JobSpec) -> dict[tuple[str, str], Any]:
    found = list(yaml.safe_load_all(kubernetes.render(job, "trainer render")))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def jobs(job: JobSpec) -> dict[str, Any]:
    return {name: each for (kind, name), each in manifests(job).items() if kind == "Job"}


def pod(job: JobSpec, name: str) -> Any:
    return jobs(job)[name]["spec"]["template"]["spec"]


def environment(job: JobSpec, name: str, index: int) -> dict[str, str]:
    """The variables of a pod's container, as the kubelet makes them."""
    (config,) = (each["data"] for (kind, _), each in manifests(job).items() if kind == "ConfigMap")
    variables: dict[str, str] = {}
    for each in pod(job, name)["containers"][0]["env"]:
        if "value" in each:
            value = each["value"]
            for known, text in variables.items():
                value = value.replace(f"$({known})", text)
        elif "fieldRef" in each["valueFrom"]:
            value = str(index)
        elif "secretKeyRef" in each["valueFrom"]:
            continue
        else:
            value = config[each["valueFrom"]["configMapKeyRef"]["key"]]
        variables[each["name"]] = value
    return variables


@pytest.mark.parametrize("job", [spec(), ps(), ps(tasks={"worker": 2, "ps": 2, "evaluator": 1})])
def test_every_pod_finds_its_task_in_one_cluster(job: JobSpec) -> None:
    tasks = []
    for name, each in jobs(job).items():
        for index in range(each["spec"]["completions"]):
            task = tf_config.from_environment(job, environment(job, name, index))
            tasks.append(task)
            if task.address:
                assert task.address[0] == f"{name}-{index}.j"
                assert pod(job, name)["subdomain"] == "j"
    assert len({task.digest for task in tasks}) == 1
    assert len(tasks) == sum(job.tasks.counts().values())


def test_without_a_chief_worker_0_is_it() -> None:
    assert {name: each["spec"]["completions"] for name, each in jobs(spec()).items()} == {"j-chief": 1, "j-worker": 2}
    assert list(jobs(spec(tasks={"worker": 1}))) == ["j-chief"]


def test_the_job_reaches_the_pod_as_it_was_but_for_its_files(tmp_path: Path) -> None:
    workload = tmp_path / "mine.py"
    workload.write_text("x = 'ä'\n")
    job = spec(workload=str(workload), train={"steps": 7}, kubernetes={"labels": {"a": "b"}})
    received = load_environment(environment(job, "j-worker", 0))
    patient = dict.fromkeys(("start", "rejoin", "chief_lost"), 1800)
    settings = {"train": {"steps": 7}, "kubernetes": {"labels": {"a": "b"}}}
    assert received == spec(workload="mine.py", deadlines=patient, **settings)
    (config,) = (each for (kind, _), each in manifests(job).items() if kind == "ConfigMap")
    assert base64.b64decode(config["binaryData"]["mine.py"]) == workload.read_bytes()
    mounts = pod(job, "j-worker")["containers"][0]["volumeMounts"]
    assert {"name": "files", "mountPath": "/workspace/mine.py", "subPath": "mine.py", "readOnly": True} in mounts


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, (1800, 1800, 1800)),
        ({"deadlines": {"start": 120, "chief_lost": 60}}, (120, 1800, 60)),
        ({"program": ["python", "x.py"], "tasks": {"worker": 2}}, (1800, 1800, 120)),
    ],
    ids=["by default", "as the spec says", "for the volume of one node"],
)
def test_tasks_wait_for_each_other_as_long_as_pods_take(given: dict[str, Any], wanted: tuple[float, ...]) -> None:
    job = spec(**given)
    deadlines = load_environment(environment(job, f"j-{'worker' if job.program else 'chief'}", 0)).deadlines
    assert (deadlines.start, deadlines.rejoin, deadlines.chief_lost) == wanted


def test_modules_beside_the_workload_come_with_it(tmp_path: Path) -> None:
    (tmp_path / "two" / "deep").mkdir(parents=True)
    files = {"mine.py": "import one\n", "one.py": "import two\n", "two/__init__.py": "", "two/deep/a.txt": "ä"}
    for name, text in {**files, "unused.py": ""}.items():
        (tmp_path / name).write_text(text)
    job = spec(workload=str(tmp_path / "mine.py"))
    (config,) = (each for (kind, _), each in manifests(job).items() if kind == "ConfigMap")
    mounts = {
        mount["mountPath"].removeprefix("/workspace/"): mount["subPath"]
        for mount in pod(job, "j-worker")["containers"][0]["volumeMounts"]
        if mount["name"] == "files"
    }
    assert {n: base64.b64decode(config["binaryData"][key]).decode() for n, key in mounts.items()} == files
    assert set(config["binaryData"]) == {"mine.py", "one.py", "two.__init__.py", "two.deep.a.txt"}


def test_modules_that_are_too_big_for_a_config_map_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import one\n")
    (tmp_path / "one.py").write_text("#" * 2**20)
    with pytest.raises(UserError, match=r"^mine\.py, one\.py: the job's ConfigMap would have 1,0"):
        manifests(spec(workload=str(tmp_path / "mine.py")))


def test_another_spec_is_another_config_map() -> None:
    names = {name for steps in (7, 8) for kind, name in manifests(spec(train={"steps": steps})) if kind == "ConfigMap"}
    assert len(names) == 2


@pytest.mark.parametrize(
    ("volume", "source", "claims"),
    [
        ({}, {"persistentVolumeClaim": {"claimName": "j"}}, ["j"]),
        ({"claim": "mine"}, {"persistentVolumeClaim": {"claimName": "mine"}}, []),
        ({"claim": "j"}, {"persistentVolumeClaim": {"claimName": "j"}}, []),
        ({"host_path": "/runs"}, {"hostPath": {"path": "/runs", "type": "DirectoryOrCreate"}}, []),
        ({"empty_dir": True}, {"emptyDir": {}}, []),
    ],
)
def test_only_chief_and_evaluator_hold_the_volume(volume: Any, source: Any, claims: list[str]) -> None:
    job = ps(tasks={"worker": 1, "ps": 1, "evaluator": 1}, kubernetes={"volume": volume})
    held = {name: pod(job, name)["volumes"][0] for name in jobs(job)}
    with_it, without = {"name": "runs", **source}, {"name": "runs", "emptyDir": {"sizeLimit": "20Gi"}}
    assert held == {"j-chief": with_it, "j-evaluator": with_it, "j-worker": without, "j-ps": without}
    assert [name for kind, name in manifests(job) if kind == "PersistentVolumeClaim"] == claims


def test_no_manifest_holds_the_secret_that_pods_may_have() -> None:
    for name in jobs(spec()):
        (source,) = (each["secret"] for each in pod(spec(), name)["volumes"] if each["name"] == "report-secret")
        assert source == {"secretName": "j-report-secret", "optional": True, "defaultMode": 0o440}
        (task,) = pod(spec(), name)["containers"]
        (place,) = (each["mountPath"] for each in task["volumeMounts"] if each["name"] == "report-secret")
        assert environment(spec(), name, 0)["TRAINER_SECRET_FOLDER"] == place
    made = [kubernetes.secret(spec()) for _ in range(2)]
    assert made[0]["stringData"] != made[1]["stringData"]
    assert made[0]["metadata"] == {
        "name": "j-report-secret",
        "labels": manifests(spec())["Service", "j"]["metadata"]["labels"],
    }


def test_a_manifest_says_how_to_make_the_secret() -> None:
    first = kubernetes.render(spec(), "trainer render").partition("---")[0]
    assert "kubectl create secret generic j-report-secret --from-literal=secret=" in first


def test_the_chief_knows_its_node_if_the_policy_forbids_the_way_out() -> None:
    def knowing(job: JobSpec) -> list[str]:
        return [name for name in jobs(job) if "TRAINER_NODE_IP" in environment(job, name, 0)]

    program = {"program": ["python", "train.py"], "code": []}
    assert knowing(ps()) == ["j-chief"]
    assert knowing(spec(**program)) == ["j-worker"]
    assert knowing(ps(kubernetes={"egress": True})) == []


def test_exit_codes_decide_about_another_pod() -> None:
    rules = jobs(spec())["j-chief"]["spec"]["podFailurePolicy"]["rules"]
    by_action = {rule["action"]: rule["onExitCodes"]["values"] for rule in rules if "onExitCodes" in rule}
    assert by_action["Ignore"] == [Exit.STOPPED]
    assert not any(Exit(code).retryable for code in by_action["FailJob"])
    # Whatever no rule names counts against backoffLimit.
    named = {Exit.OK, *by_action["Ignore"], *by_action["FailJob"]}
    assert set(Exit) - named == {Exit.CHIEF_LOST, Exit.REPLACED}


@pytest.mark.parametrize("shared", [False, True])
def test_a_pod_on_a_lost_node_is_replaced_unless_its_volume_is_there(shared: bool) -> None:
    access = {"volume": {"access": "ReadWriteMany"}} if shared else {}
    job = ps(tasks={"worker": 2, "ps": 1, "evaluator": 1}, kubernetes=access)
    for name, found in jobs(job).items():
        waits = name in ("j-chief", "j-evaluator") and not shared
        made = found["spec"]
        assert made["podReplacementPolicy"] == ("Failed" if waits else "TerminatingOrFailed")
        assert ("podFailurePolicy" in made) == waits
        names = [each["name"] for each in pod(job, name)["containers"][0]["env"]]
        assert ("TRAINER_FOLLOWS" in names) == (not waits)
        assert ("affinity" in pod(job, name)) == (name == "j-evaluator" and not shared)
    limits = {name: found["spec"]["backoffLimit"] for name, found in jobs(job).items()}
    assert limits == {"j-chief": 6 if shared else 10, "j-evaluator": 30 if shared else 10, "j-worker": 60, "j-ps": 30}


def test_a_pod_leaves_a_lost_node_after_the_seconds_of_the_spec() -> None:
    keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    common = {"operator": "Exists", "effect": "NoExecute"}
    found = pod(spec(kubernetes={"node_lost_seconds": 7}), "j-worker")["tolerations"]
    assert found == [{"key": key, **common, "tolerationSeconds": 7} for key in keys]
    theirs = {"key": keys[1], "operator": "Exists"}
    found = pod(spec(kubernetes={"tolerations": [theirs]}), "j-worker")["tolerations"]
    assert found == [theirs, {"key": keys[0], **common, "tolerationSeconds": 60}]
    everything = [{"operator": "Exists"}]
    assert pod(spec(kubernetes={"tolerations": everything}), "j-worker")["tolerations"] == everything


def test_limits_requests_and_gpus_come_from_the_spec() -> None:
    group = {"replicas": 2, "cpu": 1.5, "memory": "1.5Gi", "gpus": 2}
    container = pod(spec(tasks={"worker": group}), "j-worker")["containers"][0]
    limits = {"cpu": "1.5", "memory": "1.5Gi", "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": limits, "limits": limits}
    assert container["image"] == "trainer:cuda"
    other = spec(tasks={"worker": group}, kubernetes={"gpu_resource": "amd.com/gpu"})
    assert pod(other, "j-chief")["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "2"


@pytest.mark.parametrize("value", ["$(HOME)", "$HOME", "it's", "a: b #c", "\u2028", 'say "so"', "{{ x }}", "yes"])
def test_no_text_is_expanded_or_breaks_the_file(value: str) -> None:
    variables = environment(spec(kubernetes={"env": {"X": value}}), "j-worker", 0)
    # The kubelet replaces $$ by $.
    assert variables["X"].replace("$$", "$") == value


def test_a_thousand_workers_are_as_many_objects_as_two() -> None:
    text = kubernetes.render(ps(1000), "trainer render")
    assert len(text.encode()) < 100_000
    assert len(manifests(ps(1000))) == len(manifests(ps(2)))


def test_what_kubernetes_would_refuse_is_refused(tmp_path: Path) -> None:
    big = tmp_path / "big.npz"
    big.write_bytes(b"0" * 2**20)
    with pytest.raises(
        UserError, match=r"big.npz: the job's ConfigMap would have 1,048,\d\d\d bytes.* allows 1,048,576"
    ):
        kubernetes.render(spec(dataset=str(big)), "")
    blank = tmp_path / "a b.py"
    blank.touch()
    with pytest.raises(UserError, match="a ConfigMap allows letters"):
        kubernetes.render(spec(workload=str(blank)), "")
    with pytest.raises(UserError, match=r"missing.py'?: cannot be read"):
        kubernetes.render(spec(workload=str(tmp_path / "missing.py")), "")
    with pytest.raises(UserError, match=r"model_dir: '/x': .*kubernetes\.volume"):
        kubernetes.render(spec(model_dir="/x"), "")


def test_jobs_start_suspended_where_asked() -> None:
    for settings, suspended in (({}, False), ({"suspend": True}, True)):
        assert {each["spec"]["suspend"] for each in jobs(spec(kubernetes=settings)).values()} == {suspended}


def test_nothing_but_peers_and_names_is_reached_unless_asked() -> None:
    policy = manifests(spec())["NetworkPolicy", "j"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    peers = {"podSelector": {"matchLabels": manifests(spec())["Service", "j"]["spec"]["selector"]}}
    assert [rule.get("from") for rule in policy["ingress"]] == [[peers]]
    openshifts = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}
    assert [rule.get("to") for rule in policy["egress"]] == [[peers], None, [openshifts]]
    assert [{port["port"] for port in rule["ports"]} for rule in policy["egress"][1:]] == [{53}, {5353}]
    assert manifests(spec(kubernetes={"egress": True}))["NetworkPolicy", "j"]["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize(
    ("image", "tensorboard"),
    [
        (None, "trainer:tensorboard"),
        ("trainer:cpu", "trainer:tensorboard"),
        ("registry.example:5000/team/trainer:cpu", "registry.example:5000/team/trainer:tensorboard"),
        ("registry.example/mine@sha256:0123", "registry.example/trainer:tensorboard"),
    ],
)
def test_tensorboard_follows_the_chief_and_its_image_that_of_the_tasks(image: str | None, tensorboard: str) -> None:
    job = ps(image=image, tasks={"worker": 2, "ps": 1, "evaluator": 1}, kubernetes={"tensorboard": True})
    beside = {name: [each["image"] for each in pod(job, name).get("initContainers", [])] for name in jobs(job)}
    assert beside == {"j-chief": [tensorboard], "j-evaluator": [], "j-worker": [], "j-ps": []}
    (sidecar,) = pod(job, "j-chief")["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    own = ps(kubernetes={"tensorboard": True, "tensorboard_image": "mine:1"})
    assert pod(own, "j-chief")["initContainers"][0]["image"] == "mine:1"


def test_the_tracker_follows_the_chief_and_alone_has_its_login() -> None:
    secrets = {"MLFLOW_TRACKING_TOKEN": {"secret": "mlflow"}, "API_KEY": {"secret": "api"}}
    image = "registry.example/trainer:cpu"
    tracked: dict[str, Any] = {"tracking": {"mlflow": "http://mlflow"}, "secrets": secrets, "image": image}
    job = ps(tasks={"worker": 2, "ps": 1}, **tracked)
    beside = {name: [each["name"] for each in pod(job, name).get("initContainers", [])] for name in jobs(job)}
    assert beside == {"j-chief": ["track"], "j-worker": [], "j-ps": []}
    (track,) = pod(job, "j-chief")["initContainers"]
    assert (track["image"], track["restartPolicy"]) == ("registry.example/trainer:track", "Always")
    assert track["args"] == ["track", "--keep", "/workspace/runs/j"]
    assert [each["name"] for each in track["env"]] == ["MLFLOW_TRACKING_TOKEN"]
    assert track["securityContext"]["readOnlyRootFilesystem"] is True
    for name in jobs(job):
        (task,) = pod(job, name)["containers"]
        assert {each["name"] for each in task["env"]} & secrets.keys() == {"API_KEY"}, name
    own = ps(**tracked, kubernetes={"track_image": "mine:1"})
    assert pod(own, "j-chief")["initContainers"][0]["image"] == "mine:1"


def test_of_a_program_without_a_chief_the_first_pod_tracks() -> None:
    words = {"program": ["python", "t.py"], "image": "mine:1", "tracking": {"mlflow": "http://mlflow"}}
    (track,) = pod(spec(**words, tasks={"worker": 2}), "j-worker")["initContainers"]
    assert track["args"] == ["track", "--keep", "--index", "$(TASK_INDEX)", "/workspace/runs/j"]
    assert [each["name"] for each in track["env"]] == ["TASK_INDEX"]


def test_a_pod_affinity_of_the_users_is_kept_beside_ours() -> None:
    rule, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    theirs = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "cache"}}}
    affinity = {"podAffinity": {rule: [theirs], preferred: []}, "nodeAffinity": {preferred: []}}
    job = ps(tasks={"worker": 1, "ps": 1, "evaluator": 1}, kubernetes={"affinity": affinity})
    assert pod(job, "j-worker")["affinity"] == affinity
    found = pod(job, "j-evaluator")["affinity"]
    assert found["nodeAffinity"] == {preferred: []}
    assert found["podAffinity"][preferred] == []
    assert found["podAffinity"][rule][0] == theirs
    (ours,) = found["podAffinity"][rule][1:]
    assert ours["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "chief"


def test_delete_removes_every_kind_that_is_rendered() -> None:
    gangs, metrics = ("none", "jobset", "volcano", "podgroup"), {"namespace": "monitoring", "kind": "podmonitor"}
    found = (spec(kubernetes={"tensorboard": True, "gang": gang, "metrics": metrics}) for gang in gangs)
    rendered = {kind_of(each) for job in found for each in manifests(job).values()}
    assert rendered == {*lifecycle.KINDS, "PersistentVolumeClaim"}


def data_of(job: JobSpec, name: str) -> tuple[Any, Any]:
    """Volumes and mounts of a pod, without those of every pod."""
    found = pod(job, name)
    mounts = found["containers"][0]["volumeMounts"]
    ours = ("runs", "tmp", "files", "shm", "report-secret")
    return [each for each in found["volumes"] if each["name"] not in ours], [
        each for each in mounts if each["name"] not in ours or each["mountPath"].startswith("/data")
    ]


def test_data_are_mounted_read_only_where_they_are_read() -> None:
    nfs = {"server": "files", "path": "/x"}
    data = {
        "train": {"kubernetes": {"claim": "imagenet", "sub_path": "train"}},
        "val": {"path": "here", "kubernetes": {"claim": "imagenet", "sub_path": "val"}},
        "labels": {"kubernetes": {"host_path": "/labels"}},
        "more": {"kubernetes": {"nfs": nfs}},
        "other": {"kubernetes": {"volume": {"image": {"reference": "i"}}}},
        "bucket": {"kubernetes": {"csi": {"driver": "d", "volumeAttributes": {"b": "c"}}}},
    }
    job = ps(data=data)
    volumes, mounts = data_of(job, "j-worker")
    assert volumes == [
        {"name": "data-train", "persistentVolumeClaim": {"claimName": "imagenet", "readOnly": True}},
        {"name": "data-labels", "hostPath": {"path": "/labels", "type": "Directory"}},
        {"name": "data-more", "nfs": {**nfs, "readOnly": True}},
        {"name": "data-other", "image": {"reference": "i"}},
        {"name": "data-bucket", "csi": {"driver": "d", "volumeAttributes": {"b": "c"}, "readOnly": True}},
    ]
    assert mounts == [
        {"name": "data-train", "mountPath": "/data/train", "subPath": "train", "readOnly": True},
        {"name": "data-train", "mountPath": "/data/val", "subPath": "val", "readOnly": True},
        {"name": "data-labels", "mountPath": "/data/labels", "readOnly": True},
        {"name": "data-more", "mountPath": "/data/more", "readOnly": True},
        {"name": "data-other", "mountPath": "/data/other", "readOnly": True},
        {"name": "data-bucket", "mountPath": "/data/bucket", "readOnly": True},
    ]
    assert data_of(job, "j-chief") == (volumes, mounts)
    assert data_of(job, "j-ps") == ([], [])
    received = load_environment(environment(job, "j-worker", 0)).data
    assert {name: each.path for name, each in received.items()} == {name: f"/data/{name}" for name in data}


def test_a_claim_for_both_is_one_volume() -> None:
    data = {"train": {"kubernetes": {"claim": "all", "sub_path": "train"}}}
    job = ps(data=data, kubernetes={"volume": {"claim": "all"}})
    mount = {"mountPath": "/data/train", "subPath": "train", "readOnly": True}
    assert data_of(job, "j-chief") == ([], [{"name": "runs", **mount}])
    claim = {"claimName": "all", "readOnly": True}
    source = {"name": "data-train", "persistentVolumeClaim": claim}
    assert data_of(job, "j-worker") == ([source], [{"name": "data-train", **mount}])


def test_data_without_a_volume_are_refused() -> None:
    with pytest.raises(UserError, match=r"^data.train.kubernetes: is missing: 'records' is a folder of this machine; "):
        kubernetes.render(spec(data={"train": {"path": "records"}}), "trainer render")


def test_the_claim_that_the_job_makes_has_no_data() -> None:
    data = {"train": {"kubernetes": {"claim": "j"}}}
    with pytest.raises(
        UserError, match=r"^data.train.kubernetes.claim: 'j': is the claim that the job makes for model_"
    ):
        kubernetes.render(spec(data=data), "trainer render")
    kubernetes.render(spec(data=data, kubernetes={"volume": {"claim": "j"}}), "trainer render")


@pytest.mark.parametrize(
    "more", [{"kubernetes": {"egress": True}}, {"kubernetes": {"env": {"HTTPS_PROXY": "http://p:1"}}},
             {"secrets": {"HTTPS_PROXY": {"secret": "proxy"}}}]
)  # fmt: skip
def test_gs_needs_egress_or_a_proxy(more: dict[str, Any]) -> None:
    data = {"train": {"path": "gs://bucket/records"}}
    with pytest.raises(
        UserError, match=r"no way out; set kubernetes.egress: true, or name a proxy that another Network"
    ):
        kubernetes.render(spec(data=data), "trainer render")
    job = spec(data=data, **more)
    assert data_of(job, "j-worker") == ([], [])
    assert load_environment(environment(job, "j-worker", 0)).data["train"].path == "gs://bucket/records"


def test_code_is_packed_and_unpacked(tmp_path: Path) -> None:
    for name in ("src/model.py", "lib/a.py", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("def model(): pass\n")
    job = ps(workload=str(tmp_path / "src/model.py"), code=str(tmp_path))
    (config,) = (each for (kind, _), each in manifests(job).items() if kind == "ConfigMap")
    assert base64.b64decode(config["binaryData"]["code.tar.gz"]) == code.pack(job)
    for name in ("j-chief", "j-worker", "j-ps"):
        found = pod(job, name)
        mounts = {each["mountPath"]: each for each in found["containers"][0]["volumeMounts"]}
        assert mounts["/code"] == {"name": "code", "mountPath": "/code"}
        archive = {"name": "files", "subPath": "code.tar.gz", "readOnly": True}
        assert mounts["/workspace/code.tar.gz"] == {"mountPath": "/workspace/code.tar.gz", **archive}
        assert {"name": "code", "emptyDir": {"sizeLimit": "1Gi"}} in found["volumes"]
        assert environment(job, name, 0)["TRAINER_CODE"] == "/workspace/code.tar.gz"
    received = load_environment(environment(job, "j-worker", 0))
    assert (received.workload, received.code) == ("/code/src/model.py", ["/code"])


def test_code_that_is_too_large_names_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def model(): pass\n")
    (tmp_path / "noise.bin").write_bytes(random.Random(0).randbytes(1_100_000))
    with pytest.raises(UserError) as caught:
        kubernetes.render(spec(workload=str(tmp_path / "model.py"), code=str(tmp_path)), "trainer render")
    assert re.match(
        r"code: packed, the job's ConfigMap would have 1,10\d,\d\d\d bytes, Kubernetes allows 1,048,576; the largest: "
        r"noise.bin \(1,100,000\), model.py \(18\); put data into a volume \(data:\), or build",
        str(caught.value),
    )


def test_copies_are_in_a_folder_of_the_node_or_of_the_pod() -> None:
    data = {"train": {"kubernetes": {"claim": "c"}, "copy": "node"}}
    shared = "/cache/$(TRAINER_NAMESPACE)/$(TRAINER_SERVICE_ACCOUNT)"
    for settings, source, folder in (
        ({}, {"emptyDir": {}}, "/cache"),
        ({"data_cache": "/var/cache/x"}, {"hostPath": {"path": "/var/cache/x", "type": "Directory"}}, shared),
    ):
        job = ps(data=data, kubernetes=settings)
        volumes, mounts = data_of(job, "j-worker")
        assert volumes[-1] == {"name": "cache", **source}
        assert mounts[-1] == {"name": "cache", "mountPath": "/cache"}
        (container,) = manifests(job)[("Job", "j-worker")]["spec"]["template"]["spec"]["containers"]
        assert {"name": "TRAINER_CACHE_DIR", "value": folder} in container["env"]
        assert data_of(job, "j-ps") == ([], [])


def test_metrics_are_on_a_port_of_their_own_for_one_namespace_only() -> None:
    found = manifests(ps(kubernetes={"metrics": {"namespace": "monitoring"}}))
    peers, scrapers = found[("NetworkPolicy", "j")]["spec"]["ingress"]
    assert {port["port"] for port in peers["ports"]} == {2222, 3222}
    assert scrapers == {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "ports": [{"port": 4222}],
    }
    for name in ("j-chief", "j-worker", "j-ps"):
        template = found[("Job", name)]["spec"]["template"]
        annotations = template["metadata"]["annotations"]
        assert annotations == {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "4222",
            "prometheus.io/path": "/metrics",
        }
        (task,) = template["spec"]["containers"]
        assert {"name": "metrics", "containerPort": 4222} in task["ports"]
        assert {"name": "TRAINER_METRICS_PORT", "value": "4222"} in task["env"]
    assert ("PodMonitor", "j") not in found


def test_a_pod_monitor_selects_the_pods_of_the_job_alone() -> None:
    metrics = {"namespace": "monitoring", "kind": "podmonitor", "pods": {"app": "prometheus"}}
    found = manifests(ps(kubernetes={"metrics": metrics, "labels": {"release": "stack"}}))
    monitor = found[("PodMonitor", "j")]
    assert monitor["metadata"]["labels"]["release"] == "stack"
    template = found[("Job", "j-ps")]["spec"]["template"]["metadata"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["labels"].items()
    assert monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "j"
    assert "annotations" not in template
    (who,) = found[("NetworkPolicy", "j")]["spec"]["ingress"][1]["from"]
    assert who["podSelector"] == {"matchLabels": {"app": "prometheus"}}


def test_without_metrics_there_is_no_further_port() -> None:
    assert "4222" not in kubernetes.render(ps(), "trainer render")


@pytest.mark.parametrize("name", ["Monitoring", "a.b", "a" * 64, ""])
def test_a_namespace_of_metrics_has_the_form_that_kubernetes_allows(name: str) -> None:
    with pytest.raises(UserError, match=r"kubernetes\.metrics\.namespace"):
        ps(kubernetes={"metrics": {"namespace": name}})
