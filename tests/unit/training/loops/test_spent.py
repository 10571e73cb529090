"""What the tasks' time goes to, by what they measure."""

import math

import numpy as np
import pytest

from trainer.training.loops.spent import Spent, parts


def test_what_is_neither_input_nor_exchange_is_compute() -> None:
    assert parts(1.0, 2.0, 10.0, 3.0) == {
        "seconds_input": 1.0,
        "seconds_exchange": 2.0,
        "seconds_compute": 7.0,
        "seconds_wait": 3.0,
    }
    assert parts(6.0, 6.0, 10.0, 0.0)["seconds_compute"] == 0, "clocks differ"


def test_a_part_that_is_unknown_is_in_compute() -> None:
    found = parts(math.nan, math.nan, 10.0, 3.0)
    assert found == {"seconds_input": None, "seconds_exchange": None, "seconds_compute": 10.0, "seconds_wait": 3.0}


def test_ps_workers_count_from_their_first_report_which_traced_the_graph() -> None:
    spent, steps = Spent(2), np.array([5, 0])
    first = spent.look(100.0, steps, np.array([[1.0, 2.0, 9.0], [0.0, 0.0, 0.0]]))
    assert first["worker:0"] == {"steps_made": 0, **parts(0.0, 0.0, 0.0, 0.0)}
    later = spent.look(110.0, steps + 5, np.array([[2.0, 5.0, 17.0], [1.0, math.nan, 3.0]]))
    assert later["worker:0"] == {"steps_made": 5, **parts(1.0, 3.0, 8.0, 2.0)}
    assert later["worker:1"]["steps_made"] == 0
    last = spent.look(111.0, steps + 10, np.array([[2.0, 5.0, 17.0], [2.0, math.nan, 4.0]]))
    assert last["worker:1"]["seconds_exchange"] is None
    assert last["worker:1"]["seconds_input"] == pytest.approx(1.0)
    assert last["worker:0"]["seconds_wait"] == 3.0
