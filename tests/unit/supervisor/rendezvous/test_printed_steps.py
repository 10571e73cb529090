"""The steps that programs print, as progress of those that report none."""

import pytest

from trainer.supervisor.rendezvous.printed_steps import PrintedSteps


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
        ("restored 120", "restored 130"),
        ("Namespace(epochs=10, batch_size=64)\nEpoch 1/10", "Epoch 2/10"),
        ("steps_per_epoch: 500, num_epochs: 9, epoch 1", "steps_per_epoch: 500, num_epochs: 9, epoch 2"),
        ("max_steps=1000 warmup_step=50 step 1", "max_steps=1000 warmup_step=50 step 2"),
        ("Continuing from: 7", "Continuing from: 8"),
    ],
)
def test_a_higher_step_is_progress_and_the_same_or_a_lower_one_is_none(first: str, second: str) -> None:
    printed = PrintedSteps()
    assert printed.higher(first)
    assert not printed.higher(first)
    assert printed.higher(second)
    assert printed.vary
    assert not printed.higher(first)
    assert not printed.higher(second)


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
        ("Starting generation 1", "Starting generation 2"),
        ("Resuming (attempt 1)", "Resuming (attempt 2)"),
        ("started pid 71", "started pid 93"),
        ("start 1795460559", "start 1795460599"),
        ("writing checkpoints to /runs/try1", "writing checkpoints to /runs/try2"),
    ],
)
def test_other_numbers_are_no_progress(first: str, second: str) -> None:
    printed = PrintedSteps()
    printed.higher(first)
    assert not printed.higher(second)


def test_a_number_that_never_changes_shows_no_place_in_a_training() -> None:
    printed = PrintedSteps()
    for _ in range(2):
        printed.higher("Namespace(batch_size=64, epochs=10)\nloss: 0.5")
        assert not printed.vary
    printed.higher("Epoch 1/10\nEpoch 2/10")
    assert printed.vary


@pytest.mark.parametrize("text", ["step_", "a_", "step ", "step 1,", "restore    "])
def test_any_text_is_read_at_once(text: str) -> None:
    """A pattern that goes back and forth took minutes for the first."""
    PrintedSteps().higher(text * (65536 // len(text)))
