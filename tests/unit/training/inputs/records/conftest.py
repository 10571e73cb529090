import pytest

from trainer.training.inputs.records.opened import OPENED


@pytest.fixture(autouse=True)
def nothing_open() -> None:
    """An error is named by the files that this test opened, not by those of tests before it."""
    OPENED.clear()
