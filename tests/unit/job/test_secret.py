"""The secret that a job's tasks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.job import secret
from trainer.job.errors import UserError


def test_a_new_one_is_its_owners_and_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret.keep(file)
    first = file.read_text()
    assert len(first) >= 32
    assert file.stat().st_mode & 0o777 == 0o400
    secret.keep(file)
    assert file.read_text() == first
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_each_is_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        secret.keep(tmp_path / name)
    assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere/secret: the job's secret cannot be written: No such file"):
        secret.keep(tmp_path / "nowhere" / "secret")
