"""Layers with lookup tables in the model, and in data(), under the strategies that send graphs or copies to tasks."""

from pathlib import Path

import pytest

from tests.local.specs import mirrored, parameter_server
from tests.tools.harness import Job

# Quicker: tests/unit/training/loops/test_lookup_tables.py.
pytestmark = pytest.mark.slow

WORDS = str(Path(__file__).parent / "workloads/words.py")


def learned(job: Job) -> None:
    assert job.wait() == 0, job.output
    result = job.result()
    assert result["test_accuracy"] == 1.0
    assert result["test_loss"] < 0.1, "it begins at ln 2"
    assert set(result["exports"].values()) == {"equal"}


@pytest.mark.parametrize("in_data", [False, True])
def test_a_ps_worker_that_comes_back_has_its_tables_again(tmp_path: Path, in_data: bool) -> None:
    spec = parameter_server(steps=5000, workload=WORDS, settings={"in_data": in_data}, check_exports=True)
    with Job(tmp_path, spec) as job:
        job.until_step(100)
        job.signal("worker:1")
        before = job.until("worker:1 is back", lambda s: s["tasks"]["worker:1"].get("restarts") == 1)
        steps = before["tasks"]["worker:1"]["step"]
        after = job.until("it trains again", lambda s: s["tasks"]["worker:1"]["step"] > steps)
        assert after["generation"] == 1
        learned(job)


def test_tables_in_data_under_multi_worker_mirrored(tmp_path: Path) -> None:
    """Those of layers in the model: the support table."""
    with Job(tmp_path, mirrored(steps=2000, workload=WORDS, settings={"in_data": True}, check_exports=True)) as job:
        learned(job)
