"""The steps that programs print, as progress of those that report none."""

import pytest

from trainer.supervisor.children.printed_steps import higher


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("chief step 10", "chief step 20"),
        ("Epoch 1/5", "Epoch 2/5"),
        ("step=1,000 loss=0.5", "step=1,100 loss=0.9"),
        ("global_step: 9, accuracy: 0.5", "global_step: 10, accuracy: 0.4"),
        ("start at 0 gen 1", "start at 13 gen 2"),
        ("Restoring parameters from /x/model.ckpt-100", "Restoring parameters from /x/model.ckpt-200"),
        ("Saving checkpoints for 5 into gs://b/model.ckpt", "Saving checkpoints for 6 into gs://b/model.ckpt"),
        ("resuming from iteration 7", "resuming from iteration 8"),
        ("Epoch 1/5\nstep 900", "Epoch 2/5\nstep 10"),
    ],
)
def test_a_higher_step_is_progress_and_the_same_or_a_lower_one_is_none(first: str, second: str) -> None:
    highest: dict[str, int] = {}
    assert higher(first, highest)
    assert not higher(first, highest)
    assert higher(second, highest)
    assert not higher(first, highest)
    assert not higher(second, highest)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("pid 100 port 40001", "pid 200 port 40002"),
        ("2026-11-23 10:00:00.1: I tensorflow", "2026-11-23 10:00:09.1: I tensorflow"),
        ("started at 10:00:00", "started at 10:00:10"),
        ("start 2026-11-23", "start 2026-11-24"),
        ("30/30 - 1s 5ms/step - loss: 0.5", "30/30 - 1s 6ms/step - loss: 1.5"),
        ("step/sec: 12.5", "step/sec: 14.5"),
        ("footstep 1", "footstep 2"),
        ("start: 1795460559.6", "start: 1795460599.6"),
        ("step\n1", "step\n2"),
    ],
)
def test_other_numbers_are_no_progress(first: str, second: str) -> None:
    highest: dict[str, int] = {}
    higher(first, highest)
    assert not higher(second, highest)
