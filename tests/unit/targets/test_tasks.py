"""A name that no task of a job has."""

from __future__ import annotations

import pytest

from trainer.job.errors import UserError
from trainer.targets import tasks


def test_the_value_the_rule_and_the_tasks_are_named() -> None:
    names = ["chief:0", "worker:0", "ps:0"]
    tasks.require("worker:0", "j", names)
    with pytest.raises(UserError) as caught:
        tasks.require("nonsense", "j", names)
    assert str(caught.value) == "task: 'nonsense': must be TYPE:INDEX of a task of j: chief:0, worker:0, ps:0"


def test_of_many_tasks_some_are_named() -> None:
    with pytest.raises(UserError) as caught:
        tasks.require("worker:1000", "j", [f"worker:{index}" for index in range(1000)])
    assert "worker:11 and 988 more; did you mean worker:" in str(caught.value)
