"""What can be tested of the engine's side without one; the rest is in tests/compose."""

from __future__ import annotations

import pytest

from trainer.job.errors import Exit, TrainerError
from trainer.targets.compose import target as compose_target


@pytest.mark.parametrize(("version", "oldest"), [("24.0.7", (24, 0)), ("26.1.5+dfsg1", (24, 0)), ("2.40.3-3", (2, 24))])
def test_new_enough(version: str, oldest: tuple[int, int]) -> None:
    compose_target._require("it", version, oldest)


@pytest.mark.parametrize(("version", "oldest"), [("20.10.24+dfsg1", (24, 0)), ("2.9.0", (2, 24)), ("1.29.2", (2, 24))])
def test_too_old(version: str, oldest: tuple[int, int]) -> None:
    with pytest.raises(TrainerError, match=f"^it is too old; {oldest[0]}.{oldest[1]} or newer is needed$") as told:
        compose_target._require("it", version, oldest)
    assert told.value.code is Exit.TARGET
