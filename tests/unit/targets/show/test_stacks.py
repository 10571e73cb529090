"""The text of `trainer stacks`."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir.stacks import Frame, Group, Stacks
from trainer.targets.answers import read_stacks
from trainer.targets.show.stacks import describe

MAIN, INPUT = (
    [Frame("keras/src/fit.py", 3, "fit", False), Frame("mine.py", 2, "<module>", True)],
    [Frame("mine.py", 7, "read", True)],
)
FOUND = Stacks(
    1.0,
    "worker:1 is at mine.py:7 read()",
    [
        Group(["worker:1"], "", "waiting for the batch of step 9", [INPUT, MAIN]),
        Group(["ps:0"], "stopped", "", []),
        Group([f"worker:{i}" for i in range(2, 12)], "", "in step 9", [MAIN]),
    ],
)


def test_groups_with_their_threads_the_main_thread_first() -> None:
    assert list(describe(FOUND)) == [
        "worker:1 is at mine.py:7 read()",
        "",
        "worker:1: waiting for the batch of step 9",
        "  main thread",
        "     keras/src/fit.py:3 fit()",
        "  -> mine.py:2 <module>",
        "  another thread",
        "  -> mine.py:7 read()",
        "",
        "ps:0: stopped by a signal (SIGSTOP); SIGCONT continues it",
        "",
        "worker:2, worker:3, worker:4, worker:5, worker:6, worker:7, worker:8, worker:9 and 2 more: in step 9",
        "  main thread",
        "     keras/src/fit.py:3 fit()",
        "  -> mine.py:2 <module>",
    ]


def test_one_task() -> None:
    assert list(describe(FOUND, "worker:11"))[2] == "worker:11: in step 9"
    with pytest.raises(UserError, match=r"TASK: 'worker:20': no such task has answered; there are worker:1, ps:0, "):
        list(describe(FOUND, "worker:20"))


def test_a_chiefs_answer_is_read_as_it_was_sent() -> None:
    assert read_stacks(json.dumps(asdict(FOUND)), "j") == FOUND


@pytest.mark.parametrize(("answer", "why"), [("", "its chief does not answer"), ('{"time": "x"}', "cannot be read")])
def test_a_chief_that_does_not_answer_is_one_line(answer: str, why: str) -> None:
    with pytest.raises(TrainerError, match=why) as caught:
        read_stacks(answer, "j")
    assert caught.value.code is Exit.TARGET
    assert "\n" not in str(caught.value)
