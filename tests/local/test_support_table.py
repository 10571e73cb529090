"""The support table in docs/models.md claims what a run shows. `make test-slow` tries a part of its cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.support import EQUAL, Cell, baseline, cells, claims, spec_of, try_out
from tests.tools.harness import Job

CLAIMS = claims()


def test_the_table_has_every_feature_under_every_api_and_strategy() -> None:
    assert set(CLAIMS) == set(cells())


def test_a_cell_works_is_refused_or_differs() -> None:
    assert {text.partition(":")[0] for text in CLAIMS.values()} <= {"works", "refused", "differs"}


@pytest.mark.slow
@pytest.mark.parametrize("cell", cells(), ids="/".join)
def test_a_cell_claims_what_a_run_shows(tmp_path: Path, cell: Cell) -> None:
    assert try_out(cell, tmp_path) == CLAIMS[cell]


@pytest.mark.slow
@pytest.mark.parametrize("feature", ["augmentation", "recurrent"])
def test_one_ps_worker_trains_as_keras_fit_with_the_same_seed(tmp_path: Path, feature: str) -> None:
    """No gradient is old then: data in another order, or other random numbers of layers, would show."""
    spec = spec_of(feature, "loop", {"strategy": "parameter_server", "tasks": {"worker": 1, "ps": 1}})
    with Job(tmp_path, spec) as job:
        assert job.wait(200) == 0, job.output
    (expected,) = baseline(feature, 1)
    assert {name: job.result()[f"test_{name}"] for name in expected} == pytest.approx(expected, rel=EQUAL)
