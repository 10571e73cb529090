"""Points of the history."""

from trainer.protocol.events import Figures
from trainer.protocol.status import Shares
from trainer.supervisor.sampler import tasks_point


def test_a_point_of_a_task_has_its_rate_and_the_shares_of_its_time() -> None:
    rows: dict[str, Figures] = {"worker:0": {"step": 7, "examples_per_second": 2.5}, "ps:0": {"step": "x"}}
    assert tasks_point(rows, {"worker:0": Shares(0.5, 0.25, None, None, 0.25)}) == {
        ("worker:0", "step"): 7.0,
        ("worker:0", "examples_per_second"): 2.5,
        ("worker:0", "input"): 0.5,
        ("worker:0", "compute"): 0.25,
        ("worker:0", "wait"): None,
        ("worker:0", "network"): None,
        ("worker:0", "between"): 0.25,
        ("ps:0", "step"): None,
        ("ps:0", "examples_per_second"): None,
    }
