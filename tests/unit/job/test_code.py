"""`code` of a spec: which files it is, and how they are packed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from trainer.job import code
from trainer.job.errors import UserError
from trainer.job.load import load_file
from trainer.job.messages import RELATIVE
from trainer.job.spec import JobSpec
from trainer.model_dir import layout

SPEC = "name: j\nstrategy: one_device\nworkload: model.py\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as a user has it, with more than code in it."""
    folder = tmp_path / "project"
    files = {
        "job.yaml": SPEC,
        "model.py": "import helper\n",
        "helper.py": "x = 1\n",
        "lib/__init__.py": "",
        "lib/net/layers.py": "y = 2\n",
        "lib/words.txt": "a\n",
        "lib/settings.yaml": "name: x\n",
        ".git/config": "",
        ".venv/x.py": "",
        "runs/j/.trainer/result.json": "{}",
        "lib/__pycache__/net.pyc": "",
        "lib/net/layers.pyc": "",
        "train.log": "",
        "records/a.tfrecord": "x" * 100,
        "other.yaml": "strategy: one_device\n# and\nname: k\n",
        "model.py~": "",
        "compose.yaml": "# Written by: trainer render compose job.yaml\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / ".venv/python").symlink_to("/usr/bin/python3")
    return folder


def spec(project: Path, text: str, **environ: str) -> JobSpec:
    (project / "job.yaml").write_text(SPEC + text)
    return load_file(project / "job.yaml", environ=environ)


ALL = [
    "helper.py", "lib/__init__.py", "lib/net/layers.py", "lib/settings.yaml", "lib/words.txt", "model.py",
]  # fmt: skip
WHOLE = "code: .\ndata: {train: {path: records}}\n"


def test_a_folder_is_all_that_is_code_in_it(project: Path) -> None:
    job = spec(project, WHOLE)
    assert code.root(job) == project
    assert code.files(job) == {name: project / name for name in ALL}
    assert [*code.files(spec(project, "code: .\n"))] == sorted([*ALL, "records/a.tfrecord"])


def test_files_of_secrets_are_no_code(project: Path) -> None:
    (project / "token.txt").write_text("very-secret")
    job = spec(project, WHOLE + "secrets: {API_KEY: {secret: mine, file: token.txt}}\n")
    assert [*code.files(job)] == ALL


def test_what_other_jobs_and_tools_keep_in_the_folder_is_no_code(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "lib")
    for model_dir in (project / "tries/one", project / "lib/runs/j"):
        layout.logs(model_dir).mkdir(parents=True)
        for file in (layout.lock(model_dir), layout.result(model_dir), model_dir / "words.txt"):
            file.touch()
    for name in ("env/pyvenv.cfg", "env/lib.py", "trained.keras", "data.npz", "tries/net.py", "logs/net.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).touch()
    job = spec(project, WHOLE + "init_from: trained.keras\ndataset: data.npz\n")
    assert [*code.files(job)] == sorted([*ALL, "logs/net.py", "tries/net.py"])
    assert "lib/net/layers.py" in code.files(spec(project, "code: .\ndataset: net\n")), "not the folder of that name"
    assert code.left_out(job) == [
        ".git", ".venv", "__pycache__", "compose.yaml", "data.npz", "env", "job.yaml", "layers.pyc", "model.py~", "one",
        "other.yaml", "records", "runs", "train.log", "trained.keras",
    ]  # fmt: skip


def test_settings_in_yaml_are_code_and_job_specs_are_not(project: Path) -> None:
    settings = {
        "a.yaml": "name: exp1\nmodel: resnet\nstrategy: cosine\n",
        "b.yml": "strategy: mirrored_net\nname: exp2\n",
        "c.yaml": "name: exp3\nstrategy:\n  mirrored: 1\n",
        "d.yaml": "optimizer: {strategy: mirrored}\nname: exp4\n",
        "own.yaml": "name: exp5\nstrategy: mirrored\nlayers: 3\n",
        "empty.yaml": "",
        "blank.yml": "\n \n",
    }
    specs = {
        "e.yaml": "name: j\nstrategy: 'parameter_server'\n",
        "f.yml": 'strategy:   "mirrored"  # of 2 devices\nname: k\n',
        "g.yaml": "# mine\r\nname: j\r\nstrategy: multi_worker_mirrored\r\nworkload: model.py\r\n",
    }
    for name, text in {**settings, **specs}.items():
        (project / name).write_bytes(text.encode())
    job = spec(project, WHOLE)
    assert [*code.files(job)] == sorted([*ALL, *settings])
    assert {*code.left_out(job)} >= {*specs}


def test_what_is_being_rendered_into_the_folder_is_no_code(project: Path) -> None:
    spec(project, WHOLE)
    (project / "empty.yaml").touch()
    command = "import sys; from trainer.job import code, load; sys.stderr.write(' '.join(code.files(load.load_file("
    with (project / "rendered.yaml").open("w") as output:
        words = [sys.executable, "-c", f"{command}'job.yaml'))))"]
        ended = subprocess.run(words, cwd=project, stdout=output, stderr=subprocess.PIPE, text=True, check=True)
    assert ended.stderr.split() == sorted([*ALL, "empty.yaml"])


def test_a_list_is_taken_with_the_workload_file_and_what_it_imports(project: Path) -> None:
    assert [*code.files(spec(project, "code: [lib/net, lib/words.txt]\n"))] == [
        "helper.py", "lib/net/layers.py", "lib/words.txt", "model.py",
    ]  # fmt: skip
    assert [*code.files(spec(project, "code: lib/words.txt\n"))] == ["helper.py", "lib/words.txt", "model.py"]


def test_without_code_there_is_no_folder(project: Path) -> None:
    assert code.root(spec(project, "")) is None


def test_the_structure_is_kept_above_the_spec_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "jobs").mkdir()
    path = project / "jobs/job.yaml"
    path.write_text(SPEC.replace("model.py", "../lib/net/layers.py") + "code: [../lib, ../helper.py]\n")
    monkeypatch.chdir(project / "jobs")
    job = load_file("job.yaml", environ={})
    assert code.root(job) == project
    assert [*code.files(job)] == [name for name in ALL if name != "model.py"]


def test_what_is_mounted_is_the_fewest_files_and_folders(project: Path) -> None:
    job = spec(project, WHOLE)
    names = ["helper.py", "lib/__init__.py", "lib/net/layers.py", "lib/settings.yaml", "lib/words.txt", "model.py"]
    assert [*code.mounts(job)] == names, "layers.pyc is no code"
    (project / "lib/net/layers.pyc").unlink()
    assert code.mounts(job) == {name: project / name for name in ("helper.py", "lib", "model.py")}


def test_an_archive_is_the_same_for_the_same_files(project: Path) -> None:
    packed = code.pack(spec(project, WHOLE))
    for name in ("model.py", "lib/words.txt"):
        os.utime(project / name, (1, 1))
        (project / name).chmod(0o600)
    assert code.pack(spec(project, WHOLE + "train: {steps: 7}\n")) == packed
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ALL
        words = archive.extractfile("lib/words.txt")
        assert words is not None
        assert words.read() == b"a\n"
    (project / "lib/words.txt").write_text("b\n")
    assert code.pack(spec(project, WHOLE)) != packed


def test_digests_are_of_what_is_at_the_top(project: Path) -> None:
    before = code.digests(spec(project, WHOLE))
    assert [*before] == ["helper.py", "lib", "model.py"]
    (project / "lib/net/layers.py").write_text("y = 3\n")
    (project / "records/a.tfrecord").write_text("")
    (project / "train.log").write_text("more")
    after = code.digests(spec(project, WHOLE + "train: {steps: 7}\n"))
    assert [name for name in before if before[name] != after[name]] == ["lib"]


def problem(job: JobSpec, look: Any = code.files) -> str:
    with pytest.raises(UserError) as caught:
        look(job)
    (line,) = caught.value.problems
    return line


def test_links_that_lead_out_are_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.py").touch()
    link = project / "lib/link.py"
    link.symlink_to("net/layers.py")
    assert "lib/link.py" in code.files(spec(project, WHOLE))
    link.unlink()
    link.symlink_to(tmp_path / "outside.py")
    assert problem(spec(project, WHOLE)) == (
        f"code: '{link}': is a link to a file outside {project}, which tasks would not have; copy it to its place"
    )
    link.unlink()
    link.symlink_to("net")
    assert problem(spec(project, WHOLE)).startswith(f"code: '{link}': is a link to a folder, which")


@pytest.mark.parametrize("name", [b"latin-\xe9.py", b"two\nlines.py"])
def test_a_name_that_cannot_be_printed_is_refused(project: Path, name: bytes) -> None:
    path = Path(os.fsdecode(bytes(project) + b"/lib/" + name))
    path.touch()
    assert problem(spec(project, WHOLE)) == f"code: {str(path)!r}: has a name that cannot be printed; rename it"
    path.rename(project / "lib/caf\u00e9.py")
    assert "lib/caf\u00e9.py" in code.files(spec(project, WHOLE))


def test_what_is_too_large_names_the_largest_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "LARGEST", 110)
    (project / "lib/words.txt").write_text("x" * 50)
    reported = problem(spec(project, "code: .\n"))
    assert reported.startswith(
        "code: 7 files of 184 bytes: at most 1,000 of 110 bytes are code; the largest: records/a.tfr"
    )
    assert "records/a.tfrecord (100), lib/words.txt (50), model.py (14); name folders of data under `data`" in reported
    monkeypatch.setattr(code, "MOST", 5)
    assert problem(spec(project, WHOLE)).startswith("code: 6 files of 84 bytes: at most 5 of 110 bytes are code; ")
    monkeypatch.setattr(code, "MANY", 5)
    (project / "records/zz").symlink_to(project / "lib")  # would be refused, if the search went on
    assert problem(spec(project, "code: .\n")).startswith("code: more than 5 files of ")


def test_a_path_that_is_not_there_is_named(project: Path) -> None:
    assert problem(spec(project, "code: [lib, libs]\n")) == (
        f"code: '{project}/libs': no such file or folder ({RELATIVE})"
    )


def test_a_path_that_cannot_be_read_is_named(project: Path, unprivileged: None) -> None:
    job = spec(project, "code: [lib/net]\n")
    (project / "lib/net").chmod(0)
    assert problem(job) == f"code: {project}/lib/net: cannot be read: Permission denied"
    (project / "lib").chmod(0)
    assert problem(job) == f"code: {project}/lib/net: cannot be read: Permission denied"
    (project / "lib").chmod(0o700)
    (project / "lib/net").chmod(0o700)


def test_code_is_for_workload_files(project: Path) -> None:
    (project / "job.yaml").write_text(SPEC.replace("model.py", "mnist") + "code: .\n")
    with pytest.raises(UserError, match=r"code: .*: is for a workload file of your own, or a program; set"):
        load_file(project / "job.yaml", environ={})


def test_output_into_the_code_is_refused(project: Path) -> None:
    (project / "job.yaml").write_text(SPEC.replace("model.py", "helper.py") + "code: .\n")
    (project / "helper.py").write_text("def model(): pass\nDATASET = 'digits'\n")
    for name, refused in (("out.txt", True), ("out.log", False)):
        with (project / name).open("w") as output:
            command = "from trainer.job import code, load; code.require_no_output(load.load_file('job.yaml'))"
            words = [sys.executable, "-c", command]
            ended = subprocess.run(words, cwd=project, stdout=output, stderr=subprocess.PIPE, text=True)
        reported = (
            f"code: '{project}/out.txt': is the output of this command, so it changes while the job runs; write it"
        )
        assert (reported in ended.stderr) == refused, ended.stderr
