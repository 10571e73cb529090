"""Examples with a folder of their own, in pods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kind.cluster import KubernetesJob, Namespace
from tests.kind.test_data import CLAIM, filled, resume
from tests.local.specs import assert_exported, example, images

pytestmark = pytest.mark.part("kubernetes")


def result_of(job: KubernetesJob) -> dict[str, Any]:
    job.wait()
    result: dict[str, Any] = json.loads(job.file(".trainer/result.json"))
    assert_exported(result)
    return result


def test_images_in_records_of_a_claim(namespace: Namespace, tmp_path: Path) -> None:
    spec = images(tmp_path / "records", epochs=3)
    assert spec["data"]["images"]["kubernetes"]["claim"] == CLAIM["metadata"]["name"]
    spec["data"]["images"]["kubernetes"]["sub_path"] = "records"
    namespace.kubectl("apply", "--filename=-", text=json.dumps(CLAIM))
    job = namespace.submit_spec(tmp_path, {**spec, "kubernetes": {"suspend": True}})
    filled(namespace, job, tmp_path / "records")
    resume(namespace, job)
    result = result_of(job)
    assert result["steps"] == 3 * (1438 // 64)
    assert result["bad_records"] == 0


def test_a_table_with_lookup_layers_under_a_parameter_server(namespace: Namespace, tmp_path: Path) -> None:
    result = result_of(namespace.submit_spec(tmp_path, example("tabular/bikes", steps=200)))
    assert result["steps"] == 200
    assert result["test_mae"] < 53, "of the median"
