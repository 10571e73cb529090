"""Which task the others wait for, from the stacks of all."""

from __future__ import annotations

import pytest

from trainer.model_dir.stacks import Frame
from trainer.protocol.stacks import IN_EXCHANGE, IN_STEP, WAITS_FOR_DATA, State, TaskStacks
from trainer.supervisor.rendezvous import hang

RUN = [
    Frame("tensorflow/python/eager/execute.py", 53, "quick_execute", False),
    Frame("trainer/training/loops/sync.py", 181, "call", False),
]
IDLE = [Frame("threading.py", 320, "wait", False), Frame("threading.py", 1002, "_bootstrap", False)]


def user(line: int, function: str = "read", *, within: str = "data", inner: list[Frame] | None = None) -> list[Frame]:
    own = [Frame("mine.py", line, function, True), Frame("mine.py", 3, within, True)]
    return [*(inner or [Frame("socket.py", 706, "readinto", False)]), *own, *IDLE]


def task(*threads: list[Frame], doing: str = f"{IN_EXCHANGE} 12", state: State = "") -> TaskStacks:
    return TaskStacks(1, state, doing, [*threads, RUN])


def test_the_only_task_in_code_of_the_users_is_named_with_its_line() -> None:
    for size in (2, 3, 1000):
        answers = {f"worker:{i}": task(IDLE) for i in range(size)}
        answers["worker:1"] = task(IDLE, user(41), doing=f"{WAITS_FOR_DATA} 12")
        assert hang.verdict(answers) == (
            "worker:1 is in data(), at mine.py:41 read(); the others wait for it in the all-reduce of step 12"
        ), size


def test_a_thread_that_every_task_has_is_not_the_difference() -> None:
    background = user(90, "heartbeat", within="heartbeat")
    answers = {f"worker:{i}": task(background) for i in range(3)}
    answers["worker:2"] = task(background, user(41))
    assert hang.verdict(answers).startswith("worker:2 is in data(), at mine.py:41 read();")


def test_several_tasks_at_the_same_place_are_one() -> None:
    answers = {f"worker:{i}": task() for i in range(9)}
    answers |= {f"worker:{i}": task(user(41)) for i in (1, 3, 4, 7)}
    assert hang.verdict(answers).startswith("worker:1, worker:3, worker:4 and 1 more are in data(), at mine.py:41")


def test_all_tasks_at_one_place() -> None:
    assert hang.verdict({f"worker:{i}": task(user(41), doing="") for i in range(3)}) == (
        "3 tasks are in data(), at mine.py:41 read()"
    )
    assert hang.verdict({"worker:0": task(user(41, "data"), doing="")}) == "worker:0 is at mine.py:41 data()"


@pytest.mark.parametrize(("state", "word"), [("stopped", "SIGSTOP"), ("in the kernel", "call of the kernel")])
def test_a_process_that_cannot_go_on_explains_the_hang(state: State, word: str) -> None:
    answers = {"worker:0": task(), "ps:0": TaskStacks(1, state), "worker:1": task(user(41))}
    found = hang.verdict(answers)
    assert found.startswith("ps:0 is ")
    assert word in found


def test_the_task_whose_input_pipeline_has_no_python_is_known_by_its_counters() -> None:
    answers = {f"worker:{i}": task() for i in range(3)}
    answers["worker:0"] = task(doing=f"{WAITS_FOR_DATA} 12")
    waits = "worker:0 is waiting for the batch of step 12; "
    assert hang.verdict(answers) == f"{waits}the others wait for it in the all-reduce of step 12"
    every = {name: task(doing=f"{WAITS_FOR_DATA} 12") for name in answers}
    assert hang.verdict(every) == "3 tasks wait for the batch of step 12"
    assert hang.verdict({"worker:0": every["worker:0"]}) == "worker:0 waits for the batch of step 12"


def test_of_tasks_that_wait_alike_the_line_is_named() -> None:
    for size in (2, 9):
        answers = {f"worker:{i}": task(IDLE, user(15), doing=f"{WAITS_FOR_DATA} 94") for i in range(size)}
        assert hang.verdict(answers) == f"{size} tasks wait for the batch of step 94 (mine.py:15)", size
    alone = {"worker:0": task(IDLE, user(15), doing=f"{WAITS_FOR_DATA} 94")}
    assert hang.verdict(alone) == "worker:0 is in data(), at mine.py:15 read()"
    in_a_layer = {f"worker:{i}": task(user(30, "call", inner=RUN), doing=f"{IN_STEP} 94") for i in range(2)}
    assert hang.verdict(in_a_layer) == "2 tasks are in step 94 (mine.py:30)"


def test_of_ps_workers_that_wait_alike_the_line_is_named_beside_the_coordinator() -> None:
    answers = {"chief:0": task(doing=f"{IN_STEP} 94")} | {f"worker:{i}": task(user(15), doing="") for i in range(3)}
    assert (
        hang.verdict(answers)
        == "chief:0 is in step 94; worker:0, worker:1, worker:2 are in data(), at mine.py:15 read()"
    )


def test_the_task_that_computes_while_the_others_exchange() -> None:
    answers = {f"worker:{i}": task() for i in range(3)} | {"worker:1": task(doing=f"{IN_STEP} 12")}
    assert hang.verdict(answers) == ("worker:1 is in step 12; the others wait for it in the all-reduce of step 12")


def test_the_task_that_waits_in_another_call_than_the_others() -> None:
    """As of a program: all wait in TensorFlow, called from other lines."""
    answers = {f"worker:{i}": task(user(20, "step", within="main", inner=RUN), doing="") for i in range(4)}
    answers["worker:3"] = task(user(33, "save", within="main", inner=RUN), doing="")
    assert hang.verdict(answers) == (
        "worker:3 is in main(), at mine.py:33 save(); the others are in main(), at mine.py:20 step()"
    )


def test_of_two_tasks_in_other_calls_neither_is_blamed() -> None:
    answers = {
        "worker:0": task(user(20, "step", within="main", inner=RUN), doing=""),
        "worker:1": task(user(33, "save", within="main", inner=RUN), doing=""),
    }
    assert hang.verdict(answers) == (
        "worker:0 is in main(), at mine.py:20 step(); worker:1 is in main(), at mine.py:33 save()"
    )


def test_an_evaluator_is_in_the_groups_and_never_blamed() -> None:
    answers = {"worker:0": task(), "worker:1": task(), "evaluator:0": task(user(7))}
    found = hang.stacks(answers, 5.0)
    assert "evaluator" not in found.text
    assert [group.tasks for group in found.groups] == [["evaluator:0"], ["worker:0", "worker:1"]]


def test_nothing_is_said_of_what_is_not_known() -> None:
    silent = TaskStacks(1, "not asked")
    assert hang.stacks({"chief:0": silent, "worker:0": silent}, 5.0).text == ""
    assert hang.stacks({}, 5.0).groups == []
    assert hang.where(silent) == ""
    assert hang.where(TaskStacks(1, "no answer")) == "", "on a busy machine it may be slow"
