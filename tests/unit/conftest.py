from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import reports
from trainer import reporting
from trainer.job.environment import REPORTS


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[reports.Reader]:
    """This process has not yet reported, and its reports are read."""
    monkeypatch.setattr(reporting, "_report", reporting._Report())
    with reports.reader(tmp_path / "reports.sock") as found:
        monkeypatch.setenv(REPORTS, str(found.path))
        yield found
