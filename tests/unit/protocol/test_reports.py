"""Reports and replies as bytes."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from trainer.protocol.reports import Reply, read_answer

REPLY = Reply("running", 3, 500, version=7, step=520)


BAD_REPLIES: list[dict[str, Any]] = [
    {"phase": "done", "code": 2}, {"phase": "failed", "code": 0}, {"phase": "running", "code": 2},
    {"code": 99, "phase": "failed"}, {"phase": "over"}, {"generation": -1}, {"step": "7"}, {"colour": "blue"},
]  # fmt: skip


@pytest.mark.parametrize("changes", BAD_REPLIES, ids=str)
def test_a_reply_that_makes_no_sense_is_no_reply(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        read_answer(json.dumps({**asdict(REPLY), **changes}).encode())
