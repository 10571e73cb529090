"""What a child's status shows of its events."""

from trainer.protocol import events
from trainer.supervisor.children.child_status import ChildStatus


def test_a_child_that_has_indexed_its_files_indexes_no_more() -> None:
    status = ChildStatus()
    status.take(events.Indexing(5))
    assert status.document() == {"indexed": 5}
    status.take(events.Indexed())
    assert status.document() == {"has_index": True}


def test_a_child_evaluates_until_it_ends_that() -> None:
    status = ChildStatus()
    status.take(events.EpochEnd(over=False))
    assert status.document() == {"evaluating": True}
    status.take(events.EpochEnd(over=True))
    assert status.document() == {}


def test_figures_are_limited_over_all_steps_and_hide_nothing_of_ours() -> None:
    """A program may give a figure another name at each step; each report to the chief contains all."""
    status = ChildStatus()
    for step in range(1000):
        names = {f"x{step}": step, "loss": step, "pid": 1, "copying": "x"}
        status.take(events.Step(step, None, names))
    document = status.document()
    assert (document["step"], document["loss"], document["x0"]) == (999, 999, 0)
    assert len(document) < 110
    assert not {"pid", "copying"} & document.keys()
    status.take(events.Step(1000, None, {"x0": 7}))
    assert status.document()["x0"] == 7, "those that are known keep their newest value"
