"""What a child's status shows of its events."""

from trainer.protocol import events
from trainer.protocol.child import ChildStatus
from trainer.supervisor.children.child_status import take


def test_a_child_that_has_indexed_its_files_indexes_no_more() -> None:
    status = ChildStatus()
    take(status, events.Indexing(5))
    assert status == ChildStatus(indexed=5)
    take(status, events.Indexed())
    assert status == ChildStatus(has_index=True)


def test_a_child_evaluates_until_it_ends_that() -> None:
    status = ChildStatus()
    take(status, events.EpochEnd(over=False))
    assert status == ChildStatus(evaluating=True)
    take(status, events.EpochEnd(over=True))
    assert status == ChildStatus()


def test_figures_are_limited_over_all_steps_and_hide_nothing_of_ours() -> None:
    """A program may give a figure another name at each step; each report to the chief contains all."""
    status = ChildStatus()
    for step in range(1000):
        names = {f"x{step}": step, "loss": step, "pid": 1, "copying": "x"}
        take(status, events.Step(step, None, names))
    assert (status.step, status.loss, status.figures["x0"]) == (999, 999.0, 0)
    assert len(status.figures) < 110
    assert (status.pid, status.copying) == (None, None)
    take(status, events.Step(1000, None, {"x0": 7}))
    assert status.figures["x0"] == 7, "those that are known keep their newest value"
