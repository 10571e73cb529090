"""Where trainer's own files are: in a folder of their own, or where version 0.2 has put them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainer.model_dir import layout

OLD = Path(__file__).parents[2] / "compatibility/0.2.0"
OURS = (
    layout.result, layout.state, layout.lock, layout.lease, layout.history, layout.journal, layout.spec, layout.files,
    layout.logs, layout.reported, layout.mlflow, layout.init_report, layout.csv_lengths,
)  # fmt: skip
OUTPUTS = (
    layout.checkpoints, layout.best, layout.export, layout.metrics, layout.evaluation, layout.validation,
    layout.tensorboard,
)  # fmt: skip


def places(model_dir: Path) -> tuple[set[Path], set[Path]]:
    return {place(model_dir).parent for place in OURS}, {place(model_dir).parent for place in OUTPUTS}


@pytest.mark.parametrize("name", ["server", "stopped", "killed", "mirrored", "program"])
def test_a_model_dir_of_version_0_2_keeps_its_layout(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(OLD / name, tmp_path / name)
    assert places(folder) == ({folder}, {folder})
    assert layout.make_own(folder) == folder
    assert layout.state(folder).exists() == (name in ("stopped", "killed"))


@pytest.mark.parametrize("name", ["stopped", "killed", "mirrored", "server", "program"])
def test_a_chief_of_version_0_2_0_had_no_lease(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(OLD / name, tmp_path / name)
    (folder / "lease.json").unlink()
    assert layout.own(folder) == folder


def test_any_other_has_a_folder_for_what_is_trainer_s(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path / "there"):
        assert places(folder) == ({folder / ".trainer"}, {folder})
        assert layout.make_own(folder) == folder / ".trainer"
        assert places(folder) == ({folder / ".trainer"}, {folder})


@pytest.mark.parametrize(
    "content",
    [None, "", '{"number": 7}', "a flat in Berlin", "x" * 100_000 + '"incarnation"'],
    ids=["none", "empty", "number", "text", "long"],
)
def test_files_of_these_names_that_are_a_user_s_are_not_trainer_s(tmp_path: Path, content: str | None) -> None:
    for place in OURS:
        (tmp_path / place(tmp_path).name).write_text("of the user")
    (tmp_path / "lease.json").unlink()
    if content is not None:
        (tmp_path / "lease.json").write_text(content)
    assert layout.own(tmp_path) == tmp_path / ".trainer"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("result.json", '{"strategy": "mirrored", "accuracy": 0.9}'),
        ("state.json", '{"control_port": 7}'),
        ("lease.json", '{"incarnation": "first"}'),
    ],
)
def test_a_key_that_trainer_s_file_has_too_is_not_enough(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / name).write_text(content)
    assert layout.own(tmp_path) == tmp_path / ".trainer"


@pytest.mark.parametrize("name", ["lease.json", "state.json"])
def test_one_of_them_alone_or_behind_a_link_is_not_enough(tmp_path: Path, name: str) -> None:
    shutil.copy(OLD / "stopped" / name, tmp_path / name)
    assert layout.own(tmp_path) == tmp_path / ".trainer"
    (tmp_path / ".lock").touch()
    assert layout.own(tmp_path) == tmp_path
    (tmp_path / name).rename(tmp_path / "elsewhere.json")
    (tmp_path / name).symlink_to(tmp_path / "elsewhere.json")
    assert layout.own(tmp_path) == tmp_path / ".trainer"


def test_a_folder_that_is_begun_stays_begun_whatever_a_program_writes(tmp_path: Path) -> None:
    layout.make_own(tmp_path)
    for name in ("lease.json", ".lock"):
        shutil.copy(OLD / "stopped" / name, tmp_path / name)
    assert layout.own(tmp_path) == tmp_path / ".trainer"


@pytest.mark.usefixtures("unprivileged")
def test_a_folder_that_may_not_be_read_is_no_error_yet(tmp_path: Path) -> None:
    (tmp_path / "closed" / "run").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    assert layout.own(tmp_path / "closed" / "run") == tmp_path / "closed" / "run" / ".trainer"
