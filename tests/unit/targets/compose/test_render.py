"""The compose file as data, as compose would parse it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.job.messages import RELATIVE
from trainer.job.spec import JobSpec
from trainer.targets.compose import render as compose


def spec(**more: Any) -> JobSpec:
    return build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, **more})


def services(*specs: JobSpec) -> Any:
    jobs = {"" if len(specs) == 1 else job.name: job for job in specs}
    return yaml.safe_load(compose.render(jobs, "trainer render"))["services"]


def test_each_task_has_its_own_tf_config_and_the_same_cluster() -> None:
    found = [json.loads(services(spec())[f"j-worker-{i}"]["environment"]["TF_CONFIG"]) for i in (0, 1)]
    assert [config["task"] for config in found] == [{"type": "worker", "index": 0}, {"type": "worker", "index": 1}]
    assert found[0]["cluster"] == found[1]["cluster"] == {"worker": ["j-worker-0:2222", "j-worker-1:2222"]}


def test_the_job_reaches_the_task_as_it_was_but_for_its_files() -> None:
    job = spec(workload="some/where/mine.py", dataset="/data/d.npz", model_dir="/srv/out", train={"steps": 7})
    worker = services(job)["j-worker-0"]
    received = build(json.loads(worker["environment"]["TRAINER_JOB"]))
    assert received == job.model_copy(update={"workload": "mine.py", "dataset": "d.npz", "model_dir": None})
    assert worker["volumes"] == [
        "/srv/out:/workspace/runs/j",
        "./some/where/mine.py:/workspace/mine.py:ro",
        "/data/d.npz:/workspace/d.npz:ro",
        "j-report-secret:/run/trainer:ro",
    ]
    assert worker["environment"]["TRAINER_HOST_PATH"] == "/srv/out` on this machine"
    assert "TRAINER_HOST_PATH" not in services(spec())["j-worker-0"]["environment"]


def test_modules_beside_the_workload_come_with_it(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    for name, text in {"mine.py": "import one\n", "one.py": "import two\n", "two/__init__.py": "", "x.py": ""}.items():
        (tmp_path / name).write_text(text)
    volumes = services(spec(workload=str(tmp_path / "mine.py")))["j-worker-1"]["volumes"]
    assert [volume for volume in volumes if str(tmp_path) in volume] == [
        f"{tmp_path}/{name}:/workspace/{name}:ro" for name in ("mine.py", "one.py", "two")
    ]


@pytest.mark.parametrize("name", ["$HOME", "it's", "a: b #c", "\u2028", 'say "so"', "{{ x }}"])
def test_no_text_is_expanded_or_breaks_the_file(name: str) -> None:
    worker = services(spec(dataset=f"/{name}.npz"))["j-worker-0"]
    # Compose replaces $$ by $.
    assert json.loads(worker["environment"]["TRAINER_JOB"].replace("$$", "$"))["dataset"] == f"{name}.npz"


def test_limits_and_gpus_come_from_the_spec() -> None:
    job = spec(tasks={"worker": {"replicas": 1, "cpu": 1.5, "memory": "1.5Gi", "gpus": 2}})
    worker = services(job)["j-worker-0"]
    assert worker["image"] == "trainer:cuda"
    assert worker["deploy"]["resources"] == {
        "limits": {"cpus": "1.5", "memory": "1610612736", "pids": 8192},
        "reservations": {"devices": [{"driver": "nvidia", "device_ids": ["0", "1"], "capabilities": ["gpu"]}]},
    }
    assert services(spec())["j-worker-0"]["deploy"]["resources"] == {"limits": {"pids": 8192}}


def test_each_container_has_gpus_of_its_own() -> None:
    found = services(spec(tasks={"chief": {"gpus": 2}, "worker": {"replicas": 2, "gpus": 2}, "evaluator": 1}))
    devices = {name: service["deploy"]["resources"]["reservations"]["devices"] for name, service in found.items()
               if "reservations" in service.get("deploy", {}).get("resources", {})}  # fmt: skip
    assert {name: each[0]["device_ids"] for name, each in devices.items()} == {
        "j-chief-0": ["0", "1"], "j-worker-0": ["2", "3"], "j-worker-1": ["4", "5"],
    }  # fmt: skip


def test_every_container_is_locked_down() -> None:
    for name, service in services(spec(tasks={"worker": 1, "evaluator": 1}), spec(name="k")).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert ("ports" in service) == (name == "tensorboard"), name


def test_the_last_service_waits_for_the_chief() -> None:
    assert services(spec())["j"]["depends_on"] == {"j-worker-0": {"condition": "service_completed_successfully"}}
    assert "j-chief-0" in services(spec(tasks={"chief": 1, "worker": 1}))["j"]["depends_on"]


def test_time_to_stop_is_the_specs_and_some_more() -> None:
    assert services(spec(deadlines={"stop": 30}))["j-worker-0"]["stop_grace_period"] == "34s"


@pytest.mark.parametrize("name", ["j", "tensorboard", "j-track"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"name: '{name}': is taken"):
        compose.render({"a": spec(), "b": spec(name=name)}, "trainer render")


def test_the_tracker_alone_has_its_login_and_a_way_out() -> None:
    tracked = {"tracking": {"mlflow": "http://mlflow"}, "env": {"NO_PROXY": "mlflow", "MODE": "x"}}
    secrets: dict[str, Any] = {"MLFLOW_TRACKING_TOKEN": {}, "HTTPS_PROXY": {}, "API_KEY": {}}
    found = services(spec(**tracked, secrets=secrets))
    track = found["j-track"]
    assert track["environment"] == {"NO_PROXY": "mlflow", "MLFLOW_TRACKING_TOKEN": None, "HTTPS_PROXY": None}
    assert (track["networks"], track["volumes"]) == (["track"], ["j:/workspace/runs"])
    assert track["command"] == ["track", "--next", "/workspace/runs/j"]
    with_login = {name for name, each in found.items() if "MLFLOW_TRACKING_TOKEN" in each.get("environment", {})}
    assert with_login == {"j-track"}
    assert {"HTTPS_PROXY", "API_KEY"} <= found["j-worker-0"]["environment"].keys()
    untracked = services(spec(secrets={"MLFLOW_TRACKING_TOKEN": {}}))
    assert "MLFLOW_TRACKING_TOKEN" in untracked["j-worker-0"]["environment"]
    assert "j-track" not in untracked


def test_a_jobs_secret_is_mounted_by_its_tasks_only() -> None:
    mounts = {
        name: [each for each in service["volumes"] if "secret" in each]
        for name, service in services(spec(tasks={"worker": 1, "evaluator": 1}), spec(name="k")).items()
    }
    written, read = "j-report-secret:/run/trainer", "j-report-secret:/run/trainer:ro"
    others = {name: each for name, each in mounts.items() if written in each or read in each}
    assert others == {"j-report-secret": [written], "j-worker-0": [read], "j-evaluator-0": [read]}
    done = {"condition": "service_completed_successfully"}
    assert services(spec())["j-worker-0"]["depends_on"] == {"j-report-secret": done}


def test_a_name_that_a_secret_has_is_refused() -> None:
    with pytest.raises(UserError, match="name: 'j-report-secret': is taken"):
        compose.render({"a": spec(), "b": spec(name="j-report-secret")}, "trainer render")


def test_data_are_mounted_read_only_where_they_are_read(tmp_path: Path) -> None:
    data = {"train": {"path": str(tmp_path)}, "val": {"path": str(tmp_path), "kubernetes": {"claim": "c"}}}
    found = services(spec(strategy="parameter_server", tasks={"worker": 1, "ps": 1, "evaluator": 1}, data=data))
    mounts = [f"{tmp_path}:/data/train:ro", f"{tmp_path}:/data/val:ro"]
    here = {name: [each for each in service["volumes"] if "/data" in each] for name, service in found.items()}
    read = dict.fromkeys(("j-chief-0", "j-worker-0", "j-evaluator-0"), mounts)
    assert {name: each for name, each in here.items() if each} == read
    assert found["j-ps-0"]["volumes"] == [each for each in found["j-worker-0"]["volumes"] if "/data" not in each]
    received = json.loads(found["j-worker-0"]["environment"]["TRAINER_JOB"])["data"]
    assert received == {"train": {"path": "/data/train"}, "val": {"path": "/data/val", "kubernetes": {"claim": "c"}}}


def test_data_that_are_not_here_are_refused() -> None:
    data = {"train": {"path": "nowhere"}, "val": {"kubernetes": {"claim": "c"}}}
    with pytest.raises(UserError) as caught:
        services(spec(data=data))
    assert caught.value.problems == (
        f"data.train.path: 'nowhere': no such folder on this machine ({RELATIVE})",
        "data.val.path: is missing: local and compose read a folder of this machine",
    )


def test_gs_needs_a_proxy(tmp_path: Path) -> None:
    data = {"train": {"path": "gs://bucket/records"}}
    with pytest.raises(UserError, match=r"^data.train.path: 'gs://bucket/records': the job's network has no way out; "):
        services(spec(data=data))
    found = services(spec(data=data, secrets={"HTTPS_PROXY": {}}))["j-worker-0"]
    assert json.loads(found["environment"]["TRAINER_JOB"])["data"] == data
    assert not any("/data" in each for each in found["volumes"])


def test_code_is_mounted_without_what_is_not_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("src/model.py", "lib/a.py", ".git/config", "records/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("def model(): pass\n")
    monkeypatch.chdir(tmp_path)
    more = {"workload": "src/model.py", "code": ".", "data": {"train": {"path": "records"}}}
    found = services(spec(tasks={"worker": 1, "evaluator": 1}, **more))
    mounts = ["./lib:/code/lib:ro", "./src:/code/src:ro", "./records:/data/train:ro"]
    for host in ("j-worker-0", "j-evaluator-0"):
        assert [each for each in found[host]["volumes"] if "/code" in each or "/data" in each] == mounts
    received = json.loads(found["j-worker-0"]["environment"]["TRAINER_JOB"])
    assert (received["workload"], received["code"]) == ("/code/src/model.py", ["/code"])


def test_a_path_with_a_colon_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    with pytest.raises(UserError, match=f"^'{tmp_path}/a:b': compose mounts no path with a colon; rename it$"):
        services(spec(data={"train": {"path": str(tmp_path / "a:b")}}))


def program(**more: Any) -> JobSpec:
    return spec(program=["./train"], image="mine:1", **more)


def test_a_program_runs_in_any_image(tmp_path: Path) -> None:
    found = services(program(data={"train": {"path": str(tmp_path), "copy": "node"}}))
    worker, secret, result = found["j-worker-0"], found["j-report-secret"], found["j"]
    assert (worker["entrypoint"], worker["command"], worker["user"], worker["init"]) == (
        ["trainer"], ["task"], "1000:1000", True,
    )  # fmt: skip
    assert worker["healthcheck"]["test"] == ["CMD", "trainer", "probe", "healthz"]
    assert (worker["environment"]["HOME"], worker["environment"]["PYTHONUNBUFFERED"]) == ("/tmp", "1")
    assert json.loads(worker["environment"]["TRAINER_JOB"])["model_dir"] == "/workspace/runs/j"
    # Only the service that makes the volumes the user's is root, for as long as that takes.
    assert (secret["user"], secret["cap_drop"], secret["cap_add"]) == ("0:0", ["ALL"], ["CHOWN"])
    folders = ["/run/trainer/secret", "/workspace/runs", "/cache"]
    assert (secret["entrypoint"], secret["command"]) == (["trainer"], ["secret", "--owner", "1000", *folders])
    assert secret["volumes"] == ["j-report-secret:/run/trainer", "j:/workspace/runs", "j-cache:/cache"]
    assert (result["entrypoint"], result["command"]) == (["trainer"], ["result"])
    assert not any("cap_add" in each for name, each in found.items() if name != "j-report-secret")


def test_a_folder_of_the_users_keeps_its_owner() -> None:
    secret = services(program(model_dir="/srv/out"))["j-report-secret"]
    assert secret["command"] == ["secret", "--owner", "1000", "/run/trainer/secret"]
    assert secret["volumes"] == ["j-report-secret:/run/trainer"]


def test_each_type_may_have_an_image_which_is_built_if_it_is_ours() -> None:
    found = services(spec(tasks={"chief": {"image": "mine:1"}, "worker": 1}))
    images = {name: each["image"] for name, each in found.items() if name != "tensorboard"}
    assert images == {"j-report-secret": "mine:1", "j-chief-0": "mine:1", "j-worker-0": "trainer:cpu", "j": "mine:1"}
    assert {name for name, each in found.items() if "build" in each} == {"j-worker-0", "tensorboard"}


def test_a_programs_code_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    for given, source in (("app", "./app/train.py"), (str(tmp_path / "app"), f"{tmp_path}/app/train.py")):
        mounts = services(program(code=[given]))["j-worker-1"]["volumes"]
        assert [each for each in mounts if "/code" in each] == [f"{source}:/code/train.py:ro"]
    assert not [each for each in services(program())["j-worker-0"]["volumes"] if "/code" in each]
    with pytest.raises(UserError, match=r"^code: '.*nowhere': no such file or folder"):
        services(program(code=["nowhere"]))


def test_a_proxy_may_be_a_plain_variable() -> None:
    services(program(data={"train": {"path": "gs://bucket/records"}}, env={"HTTPS_PROXY": "http://p:1"}))
