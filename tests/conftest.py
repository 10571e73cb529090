import ctypes
import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.tools import rotation


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected texts of tests/golden; read the diff"
    )
    parser.addoption(
        "--slow", choices=("all", "part"), default="all", help="part: those tests whose turn it is at this commit"
    )


def pytest_configure(config: pytest.Config) -> None:
    """What trainer remembers of jobs is that of the tests, not of the user who runs them."""
    folder = tempfile.TemporaryDirectory(prefix="trainer-state-")
    os.environ["XDG_STATE_HOME"] = folder.name
    config.add_cleanup(folder.cleanup)


def pytest_report_header(config: pytest.Config) -> list[str] | None:
    if config.getoption("--slow") == "all":
        return None
    commits = rotation.commits()
    slow, cells = (f"part {commits % parts + 1} of {parts}" for parts in (rotation.SLOW_PARTS, rotation.CELL_PARTS))
    turns = [f"{part}: {rotation.turn_of(part).why}" for part in ("programs", "pictures", *sorted(rotation.SPREAD))]
    return [f"slow tests: {slow}; cells of failures: {cells}; at commit {commits}. TRAINER_SLOW=all runs all", *turns]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow") == "all":
        return
    left = [item for item in items if not _due(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if _due(item)]


def _due(item: pytest.Item) -> bool:
    slow, part = item.get_closest_marker("slow"), item.get_closest_marker("part")
    if not slow:
        return not part or rotation.part_is_due(part.args[0], item.nodeid)
    parts, turn = slow.kwargs.get("parts", rotation.SLOW_PARTS), slow.kwargs.get("turn")
    assert parts <= rotation.LONGEST, item.nodeid
    return rotation.due(item.nodeid, parts, rotation.commits()) if turn is None else rotation.commits() % parts == turn


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Permissions hold for root too: it drops the capabilities to ignore them, until the test ends (capset(2))."""
    if os.geteuid():
        yield
        return
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] = effective & ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0
    yield
    sets[0] = effective
    assert libc.capset(header, sets) == 0
