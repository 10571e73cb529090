import sys

import pytest


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an import changes for the whole process is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in list(sys.modules):
        if name.startswith("trainer_workload_"):
            monkeypatch.delitem(sys.modules, name)
