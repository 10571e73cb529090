from collections.abc import Iterator

import pytest

from tests.unit.targets.kubernetes.stored import Cluster, serving
from trainer.targets.kubernetes import lifecycle, logs, status


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()
    with serving(made) as connect:
        for module in (lifecycle, logs, status):
            monkeypatch.setattr(module, "connect", connect)
        yield made
