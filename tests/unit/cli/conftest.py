import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.commands import SPEC


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINER_SET", raising=False)
    Path("job.yaml").write_text(SPEC)
    return "job.yaml"
