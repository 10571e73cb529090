"""Examples with a folder of their own, in containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compose.project import Project
from tests.local.specs import assert_exported, example, images

pytestmark = pytest.mark.part("compose")


def result_of(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    with Project(folder, spec) as project:
        assert project.wait() == 0, project.output
        result = project.result()
    assert_exported(result)
    return result


def test_images_in_records_of_a_mounted_folder(tmp_path: Path) -> None:
    result = result_of(tmp_path, images(tmp_path / "records", epochs=3))
    assert result["steps"] == 3 * (1438 // 64)
    assert result["bad_records"] == 0


def test_a_table_with_lookup_layers_under_a_parameter_server(tmp_path: Path) -> None:
    result = result_of(tmp_path, example("tabular/bikes", steps=200))
    assert result["steps"] == 200
    assert result["test_mae"] < 53, "of the median"
