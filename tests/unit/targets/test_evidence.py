"""The archive of a job: none of the secrets that were planted in every place is in it, and one of a job that never
started says why."""

from __future__ import annotations

import base64
import json
import secrets
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.fake import STATUS
from trainer.debug import archive
from trainer.debug.archive import Archive
from trainer.debug.evidence import Evidence
from trainer.debug.redaction import Redactor
from trainer.debug.verdict import verdict
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.model_dir import layout
from trainer.model_dir import state as job_state
from trainer.model_dir.files import write_json
from trainer.targets import evidence
from trainer.targets.base import Job, JobOverview
from trainer.targets.compose import render as compose
from trainer.targets.kubernetes import evidence as kubernetes
from trainer.targets.kubernetes import render as manifests
from trainer.targets.local.target import Local

PLACES = (
    "environment", "proxy of the shell", "env", "env of a task", "proxy", "MLflow", "annotation", "mounted file",
    "flag", "header", "webhook",
)  # fmt: skip
"""Whose values are found wherever they stand, also alone in a log."""
FILES = ("kubeconfig", "docker", "chat")
"""Whose values are recognised by what stands before them."""
CHAT = "https://chat.example/hooks/"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A secret for each place; those of the shell and of files are there."""
    found = {place: secrets.token_hex(12) for place in (*PLACES, *FILES)}
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", found["environment"])
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{found['proxy of the shell']}@proxy.example:3128")
    (tmp_path / "key").write_text(f"{found['mounted file']}\n")
    (tmp_path / "chat").write_text(f"{CHAT}{found['chat']}")
    return found


def spec_with(planted: dict[str, str], folder: Path, **more: object) -> JobSpec:
    return build(
        {
            "name": "j",
            "strategy": "multi_worker_mirrored",
            "program": ["python", "train.py", "--api-token", planted["flag"]],
            "code": [],
            "image": "train:1",
            "env": {
                "PLAIN": planted["env"],
                "MLFLOW_TRACKING_URI": f"https://me:{planted['MLflow']}@mlflow.example",
                "HTTP_PROXY": f"http://me:{planted['proxy']}@proxy.example:3128",
            },
            "tasks": {"worker": {"replicas": 1, "env": {"OTHER": planted["env of a task"]}}},
            "secrets": {"API_KEY": {"file": str(folder / "key")}, "CHAT": {"file": str(folder / "chat")}},
            "notify": {"command": ["curl", "--header", f"X-Api-Key: {planted['header']}", "https://notes.example"]},
            "kubernetes": {"annotations": {"note": planted["annotation"]}},
            **more,
        }
    )


def printed(planted: dict[str, str]) -> str:
    """What a careless program logs."""
    kubeconfig = {"users": [{"name": "me", "user": {"token": planted["kubeconfig"]}}]}
    auth = base64.b64encode(f"me:{planted['docker']}".encode()).decode()
    files = [yaml.safe_dump(kubeconfig), json.dumps({"auths": {"ghcr.io": {"auth": auth}}}, indent=2)]
    alone = [f"a line with {planted[place]} in it\n" for place in PLACES if place != "webhook"]
    return "".join(
        [*alone, *files, f"POST https://me:{planted['webhook']}@hooks.example/x\n", f"POST {CHAT}{planted['chat']}\n"]
    )


def contents(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as found:
        return {name.partition("/")[2]: found.read(name).decode() for name in found.namelist()}


def assert_hidden(files: dict[str, str], planted: dict[str, str]) -> None:
    encoded = base64.b64encode(f"me:{planted['docker']}".encode()).decode()
    for name, content in files.items():
        for place, value in {**planted, "docker, encoded": encoded}.items():
            assert value not in content, (place, name)


def refuse_nothing(spec: JobSpec) -> None:
    pass


def test_no_planted_secret_of_a_job_on_this_machine_is_in_its_archive(tmp_path: Path, planted: dict[str, str]) -> None:
    spec = spec_with(planted, tmp_path, model_dir=str(tmp_path / "run"))
    run = Path(spec.directory)
    layout.logs(run).mkdir(parents=True)
    (layout.make_own(run) / ".lock").touch()
    end = job_state.End("j", Exit.PROGRAM, f"worker:0: ValueError: cannot use {planted['env']}")
    job_state.fail(str(run), job_state.State(generation=1, end=end))
    write_json(run / layout.HISTORY, {"history": {"marks": [{"text": f"lost {planted['flag']}", "time": 5.0}]}})
    lines = printed(planted).splitlines()
    (layout.logs(run) / "worker-0.log").write_text(printed(planted))
    (layout.logs(run) / "output.log").write_text("".join(f"worker:0    | {line}\n" for line in lines))
    (run / f"{planted['annotation']}.txt").write_text(printed(planted))
    done = evidence.write(Local(), Job("j", spec), tmp_path / "x.zip", refuse_nothing)
    files = contents(done.path)
    assert {"spec.json", "index.html", "model_dir/logs/worker-0.log.txt", "model_dir/files.txt"} <= files.keys()
    assert_hidden(files, planted)
    assert "[hidden: PLAIN]" in done.verdict.headline
    assert files["model_dir/logs/worker-0.log.txt"].count("[hidden") >= len(planted)


class Elsewhere:
    """A target that has documents about a job, and what it has logged."""

    def __init__(self, documents: dict[str, object], log: str) -> None:
        self.documents, self.log = documents, log

    def debug(self, job: Job, archive: Archive) -> Evidence:
        for path, found in self.documents.items():
            archive.document(path, found)
        archive.text("logs/worker-0.txt", self.log)
        return Evidence("j", "there", "failed", Exit.PROGRAM, archive.clean(self.log))


def test_no_planted_secret_of_containers_is_in_the_archive(tmp_path: Path, planted: dict[str, str]) -> None:
    """As the engine describes containers that were made from the compose file."""
    spec = spec_with(planted, tmp_path)
    services = yaml.safe_load(compose.render({"": spec}, "x"))["services"]
    found: dict[str, object] = {}
    for name, service in services.items():
        environ = [f"{key}={value}" for key, value in service.get("environment", {}).items()]
        config = {"Env": environ, "Cmd": service.get("command"), "Labels": {"com.docker.compose.project": "j"}}
        found[f"containers/{name}.json"] = {"Config": config, "Args": service.get("command"), "Mounts": []}
    target: Any = Elsewhere(found, printed(planted))
    files = contents(evidence.write(target, Job("j", spec), tmp_path / "x.zip", refuse_nothing).path)
    assert "[hidden: OTHER]" in files["containers/j-worker-0.json"]
    assert_hidden(files, planted)


def test_no_planted_secret_of_pods_is_in_the_archive(
    tmp_path: Path, planted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of Kubernetes' secrets are known where their variables are set."""
    monkeypatch.setenv("API_KEY", planted["mounted file"])
    monkeypatch.setenv("CHAT", CHAT + planted["chat"])
    of_the_cluster = {"API_KEY": {"secret": "mine"}, "CHAT": {"secret": "mine"}}
    spec = spec_with(planted, tmp_path, secrets=of_the_cluster)
    objects = yaml.safe_load_all(manifests.render(spec, "x"))
    found: dict[str, object] = {f"objects/{each['kind']}.json": kubernetes._plain(each) for each in objects}
    target: Any = Elsewhere(found, printed(planted))
    files = contents(evidence.write(target, Job("j", spec), tmp_path / "x.zip", refuse_nothing).path)
    assert '"note": "[hidden: note]"' in files["objects/Job.json"]
    assert '"secretKeyRef"' in files["objects/Job.json"]
    assert_hidden(files, planted)


# Jobs that never started. -----------------------------------------------------------------------------


def test_a_job_that_never_started_has_an_archive_with_its_spec_and_why(tmp_path: Path) -> None:
    spec = build({"name": "j", "strategy": "one_device", "model_dir": str(tmp_path / "run")})

    def refuse(_: JobSpec) -> None:
        raise UserError("workload: mine.py:4: syntax error", "settings.x: 5: unknown setting")

    done = evidence.write(Local(), Job("j", spec), tmp_path / "x.zip", refuse)
    assert done.verdict.headline == "j never started: workload: mine.py:4: syntax error"
    assert done.verdict.details[0] == "settings.x: 5: unknown setting"
    files = contents(done.path)
    assert json.loads(files["spec.json"])["name"] == "j"
    assert "no job runs there" in files["status.txt"]
    assert files["index.html"].index("syntax error") < files["index.html"].index("Files")


def test_a_target_that_is_not_there_is_the_reason(tmp_path: Path) -> None:
    class Gone:
        def debug(self, job: Job, archive: Archive) -> Evidence:
            raise TrainerError("no Docker Engine answers", Exit.TARGET)

    target: Any = Gone()
    spec = build({"name": "j", "strategy": "one_device"})
    done = evidence.write(target, Job("j", spec), tmp_path / "x.zip", refuse_nothing)
    assert (done.verdict.headline, done.verdict.code) == ("j never started: no Docker Engine answers", Exit.TARGET)
    with pytest.raises(TrainerError, match="no Docker Engine"):
        evidence.write(target, Job("j"), tmp_path / "y.zip", refuse_nothing)
    assert not (tmp_path / "y.zip").exists()


def test_a_spec_that_is_refused_is_in_the_archive_without_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: j\nstrategie: x\nenv: {API_KEY: 0a1b2c3d4e5f}\n")
    error = UserError("job.yaml: strategie: unknown key; did you mean strategy?")
    done = evidence.write_refused(tmp_path / "job.yaml", error, tmp_path / "x.zip")
    assert done.verdict.headline == "job never started: job.yaml: strategie: unknown key; did you mean strategy?"
    assert json.loads(contents(done.path)["spec.json"])["env"] == {"API_KEY": "[hidden: API_KEY]"}


def test_a_job_that_stands_still_is_named_with_its_line_while_it_runs(tmp_path: Path) -> None:
    stalled = "no new step for 50 s: 2 tasks wait for the batch of step 94 (slow.py:15)"
    facts, status = Evidence("j", "here"), replace(STATUS, stalled=stalled)
    archive.write(
        tmp_path / "x.zip",
        "f",
        Redactor(),
        lambda into: evidence.take(into, facts, JobOverview("j", "running", job=status)),
    )
    found = verdict(facts)
    assert (found.outcome, found.headline, found.place) == ("running", f"j runs: {stalled}", "slow.py:15")
