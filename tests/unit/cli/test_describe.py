"""What `trainer check` prints of a job, and refuses."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.unit.cli.commands import ROOT, SPEC
from trainer.cli import main as cli
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import load_file

JOBS = sorted((ROOT / "examples").glob("*.yaml"))


def test_check_prints_everything_derived_from_a_spec(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", spec, "--set", "train.steps=600"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[:17] == [
        "task         address            cpu  memory  gpus",
        "chief:0      j-chief-0.j:2222   1.5  2Gi     -",
        "worker:0     j-worker-0.j:2222  -    -       -",
        "worker:1     j-worker-1.j:2222  -    -       -",
        "worker:2     j-worker-2.j:2222  -    -       -",
        "evaluator:0  -                  -    -       -",
        "",
        "job                j",
        "strategy           multi_worker_mirrored",
        "workload           mnist",
        "replicas in sync   4",
        "global batch       64",
        "per-replica batch  16",
        "steps              600",
        "learning rate      0.002 (0.001, sqrt in 4 replicas)",
        "model_dir          runs/j",
        "",
    ]
    assert lines[17] == "TF_CONFIG of each task:"
    assert lines[18:] == [task.tf_config() for task in tasks_of(load_file(spec))]


def test_check_prints_where_data_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "records").mkdir()
    path = tmp_path / "job.yaml"
    data = "{train: {path: records}, val: {kubernetes: {claim: imagenet, sub_path: val}}, far: {path: 'gs://b/c'}}"
    path.write_text(f"name: j\nstrategy: one_device\ndata: {data}\n")
    assert cli.main(["check", str(path)]) == Exit.OK
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("data.")]
    assert rows == [
        f"data.train         local, compose: {tmp_path}/records; kubernetes: none",
        "data.val           local, compose: none; kubernetes: claim imagenet, folder val",
        "data.far           local, compose: gs://b/c; kubernetes: gs://b/c",
    ]
    (tmp_path / "records").rmdir()
    assert cli.main(["check", str(path)]) == Exit.USER
    assert f"data.train.path: '{tmp_path}/records': no such folder on this machine" in capsys.readouterr().err


def test_what_may_surprise_on_a_target_is_a_warning_there_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "j.yaml").write_text(
        "{name: j, strategy: multi_worker_mirrored, program: [python3], tasks: {worker: 2}}"
    )
    for words in (["check", "--target", "kubernetes"], ["render", "kubernetes"]):
        assert cli.main([*words, str(tmp_path / "j.yaml")]) == Exit.OK
        assert capsys.readouterr().err.startswith(
            "trainer: warning: kubernetes.volume.access: ReadWriteOnce: every pod "
        )
    for words in (["check"], ["check", "--target", "compose"]):
        assert cli.main([*words, str(tmp_path / "j.yaml")]) == Exit.OK
        assert capsys.readouterr().err == ""


def test_check_prints_what_is_code_and_what_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: j\nstrategy: one_device\nworkload: m.py\ncode: .\n")
    (tmp_path / "m.py").write_text("def model(): pass\nDATASET = 'digits'\n")
    for number in range(13):
        (tmp_path / f"{number:02}.log").touch()
    assert cli.main(["check", str(path)]) == Exit.OK
    out = capsys.readouterr().out
    assert f"\ncode               1 file, 37 bytes, of {tmp_path}\n" in out
    assert f"\nnot code           {', '.join(f'{number:02}.log' for number in range(12))} and 2 more\n" in out


def test_check_allows_a_program_in_a_folder_that_no_container_gets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On local it runs where it is, also beside data."""
    path = tmp_path / "job.yaml"
    path.write_text("name: j\nstrategy: multi_worker_mirrored\nprogram: [python3, x.py]\ntasks: {worker: 2}\n")
    (tmp_path / "x.py").touch()
    with (tmp_path / "images.bin").open("wb") as file:
        file.truncate(1 << 34)
    assert cli.main(["check", str(path)]) == Exit.OK
    assert re.search(rf"\ncode +{tmp_path}, on local alone: code: 2 files of ", capsys.readouterr().out)
    assert cli.main(["check", "--target", "compose", str(path)]) == Exit.USER
    assert "images.bin (17,179,869,184)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ("", False),
        ("tasks: {worker: {replicas: 2, program: [python, train.py]}}", True),
        ("tasks: {chief: 1, worker: {replicas: 2, program: [python, train.py]}}", False),
        ("working_dir: /in/the/image", True),
        ("tasks: {worker: {replicas: 2, program: [python, /in/the/image.py]}}", True),
        ("code: []\nworking_dir: /in/the/image", True),
        ("env: {NAME: train}\nprogram: [python, $(NAME).py]", True),
    ],
)
def test_check_names_a_script_that_is_not_in_the_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, known: bool
) -> None:
    path = tmp_path / "job.yaml"
    own = "name: j\nstrategy: multi_worker_mirrored\n"
    own += "" if "\nprogram" in more else "program: [python, trian.py]\n"
    own += "" if "tasks" in more else "tasks: {worker: 2}\n"
    path.write_text(own + more)
    (tmp_path / "train.py").touch()
    assert cli.main(["check", str(path)]) == (Exit.OK if known else Exit.USER)
    said = f"program: 'trian.py': no such file in {tmp_path}; did you mean train.py?"
    assert (said in capsys.readouterr().err) is not known
    assert cli.main(["render", "kubernetes", str(path)]) == (Exit.OK if known else Exit.USER)
    assert (said in capsys.readouterr().err) is not known


def test_check_prints_epochs_where_steps_depend_on_the_data(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", spec, "--set", "train.epochs=3", "--set", "train.learning_rate_scaling=linear"]) == 0
    out = capsys.readouterr().out
    assert "\nepochs             3\n" in out
    assert "\nlearning rate      0.004 (0.001, linear in 4 replicas)\n" in out


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_the_jobs_we_ship_are_sound(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(job)]) == Exit.OK
    out = capsys.readouterr().out
    assert re.search(rf"^job +{job.stem}$", out, re.MULTILINE)


@pytest.mark.parametrize("job", sorted((ROOT / "examples").glob("*/*.yaml")), ids=lambda path: path.stem)
def test_the_examples_to_copy_run_on_all_targets_unchanged(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the folders that earlier steps of their pages make."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/records").mkdir(parents=True)
    (tmp_path / "runs/first/export").mkdir(parents=True)
    (tmp_path / "runs/first/export/model.keras").touch()
    path = job.relative_to(ROOT)
    for words in (["check"], ["render", "compose"], ["render", "kubernetes"]):
        assert cli.main([*words, str(path)]) == Exit.OK, capsys.readouterr().err
    # Where the volume is for one node, all pods of a program run there.
    of_volume = "trainer: warning: kubernetes.volume.access: "
    assert [line for line in capsys.readouterr().err.splitlines() if not line.startswith(of_volume)] == []


def test_check_describes_a_graph_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(ROOT / "examples/sum.yaml"), "--set", "settings.x=3"]) == Exit.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["settings.x", "3"] in rows
    assert ["job", "name", "/job:local"] in rows
    assert not [row for row in rows if row[:1] in (["learning"], ["global"])]


def test_check_names_an_api_other_than_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(ROOT / "examples/digits-fit.yaml")]) == Exit.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["api", "keras_fit"] in rows
    assert not [row for row in rows if row[:1] == ["learning"]], "compile sets it"


def test_every_problem_is_reported_at_once(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(spec).write_text(SPEC.replace("name: j", "name: J\nmodel: x") + "max_restarts: -1\n")
    assert cli.main(["check", spec, "--set", "train.steps=0", "--set", "nonsense"]) == Exit.USER
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert all(line.startswith("trainer: job.yaml: ") for line in lines)
    for part in ("name: 'J'", "model: 'x': unknown key", "max_restarts: -1", "train.steps: 0", "--set 'nonsense'"):
        assert sum(part in line for line in lines) == 1, part
    assert len(lines) == 5


def test_a_workload_that_is_not_there(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "local"):
        assert cli.main([command, spec, "--set", "workload=mine.py"]) == Exit.USER
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("trainer: workload: mine.py: no such file")
        assert not Path("runs").exists()


def test_a_module_that_is_not_installed_is_reported_before_anything_starts(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("import nowhere\nDATASET = 'digits'\ndef model(): pass\n")
    words = [spec, "--set", f"workload={tmp_path}/mine.py"]
    for command in ("check", "local"):
        assert cli.main([command, *words]) == Exit.USER
        assert "mine.py:1: import nowhere: no such module; pip install it, or put" in capsys.readouterr().err
    # What an image has is not known here.
    assert cli.main(["check", *words, "--set", "image=mine:1"]) == Exit.OK
    assert cli.main(["check", *words, "--target", "kubernetes"]) == Exit.OK


def test_check_refuses_for_a_target_what_that_target_would_refuse(
    spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", spec, "--set", "model_dir=/srv/runs"]
    assert cli.main(words) == Exit.OK
    assert cli.main([*words, "--target", "kubernetes"]) == Exit.USER
    assert "kubernetes.volume says where" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["submit", "--dry-run"], "--dry-run"),
        (["delete", "--namespace", "x"], "--namespace"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_compose_refuses_what_only_kubernetes_has(
    spec: str, words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([words[0], "--target", "compose", spec, *words[1:]]) == Exit.USER
    assert (
        capsys.readouterr().err
        == f"trainer: {option}: is not an option of --target compose; it is for --target kubernetes\n"
    )


def test_check_of_many_tasks_does_not_print_all_their_tf_configs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(ROOT / "examples/mnist-ps.yaml"), "--set", "tasks.worker=1000"]) == Exit.OK
    printed = capsys.readouterr().out
    assert printed.count('"cluster"') == 3  # chief, worker, ps
    assert "worker:999 " in printed
