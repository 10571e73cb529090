"""A job of several modules that reads folders of data, in containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compose.project import Project, run_in
from tests.local import specs

pytestmark = pytest.mark.part("compose")

TRY = "import os, pathlib; print(os.path.isdir('/data/train')); pathlib.Path('{}/x').touch()"


def test_code_and_data_are_mounted_read_only(tmp_path: Path) -> None:
    expected = specs.records(tmp_path / "records")
    data = {"train": {"path": "records/train"}, "test": {"path": "records/test", "copy": "node"}}
    spec = specs.shipped(specs.parameter_server, data, train={"steps": None, "epochs": 100})
    with Project(tmp_path, {**spec, "name": "shipped"}) as project:
        project.until_step(1)
        tried = {
            (task, folder): run_in(project.container(task), TRY.format(folder))
            for task, folder in (("worker:0", "/data/train"), ("worker:1", "/code/network"), ("ps:0", "/code/network"))
        }
        assert project.wait() == 0, project.output
        result = project.result()
    assert result["test_sum"] == pytest.approx(expected, rel=1e-12)
    assert project.output.count("data.test is read from the copy /cache/test-") == 3, "not by the ps"
    assert {code for code, _ in tried.values()} == {1}, tried
    assert {("Read-only file system" in text) for _, text in tried.values()} == {True}, tried
    # The order of standard output and standard error varies.
    assert {task for (task, _), (_, text) in tried.items() if "True" in text.splitlines()} == {"worker:0", "worker:1"}
    assert {task for (task, _), (_, text) in tried.items() if "False" in text.splitlines()} == {"ps:0"}
