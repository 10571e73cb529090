"""Tickets of a ps job."""

from collections.abc import Iterable
from typing import Any

import pytest
import tensorflow as tf

from trainer.training.loops.ps.counters import Counters


@pytest.fixture
def counters() -> Counters:
    made = Counters(workers=2, width=1)
    made.round.assign(5)
    made.taken.assign(100)
    made.last.assign(103)
    return made


def numbers(found: Iterable[Any]) -> list[int]:
    return [int(each) for each in found]


def test_tickets_are_claimed_one_after_the_other(counters: Counters) -> None:
    assert [numbers(counters.claim(count)) for count in (1, 2)] == [[5, 101, 103], [5, 103, 103]]


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("count", [0, 1])
def test_after_a_loss_that_is_not_finite_no_ticket_is_left(counters: Counters, count: int, *, finite: bool) -> None:
    @tf.function(autograph=False)
    def claim(finite: Any, count: Any) -> Any:
        return counters.claim_after(finite, count)

    round_, ticket, last = numbers(claim(tf.constant(finite), tf.constant(count, tf.int64)))
    assert (round_, ticket) == (5, 100 + count)
    assert (last == 103) if finite else (last < 0)
    counters.end_unless(tf.constant(False))
    assert numbers(counters.claim(1))[2] < 0
    counters.last.assign(200)  # a new round
    assert numbers(counters.claim(1))[2] == 200


def test_a_claim_waits_for_the_update_before_it(counters: Counters) -> None:
    """A round ends once all tickets are taken: an update that came after it would be of the next one."""
    seen = []

    def slow() -> None:
        seen.append(int(counters.taken))

    @tf.function(autograph=False)
    def step() -> Any:
        looked = tf.py_function(slow, [], [])
        with tf.control_dependencies([looked]):
            counters.ended.assign_add(1)
        return counters.claim_after(tf.constant(True), tf.constant(1, tf.int64))

    step()
    step()
    assert seen == [100, 101]
