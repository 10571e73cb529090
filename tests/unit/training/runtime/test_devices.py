import pytest
import tensorflow as tf

from trainer.job.errors import Exit, TrainerError
from trainer.training.runtime import devices


def test_a_task_that_asks_for_more_gpus_than_there_are_is_refused_with_what_there_is() -> None:
    there = len(tf.config.list_physical_devices("GPU"))
    assert len(devices.require_gpus(there)) == there
    expected = rf"^asked for {there + 1} GPU\(s\), sees {there} \(its devices: CPU:0.*\); check driver, .* set gpus: 0"
    with pytest.raises(TrainerError, match=expected) as caught:
        devices.require_gpus(there + 1)
    assert caught.value.code is Exit.DEVICES
