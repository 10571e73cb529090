"""A program that reports figures: it needs no TensorFlow."""

import time

import trainer

for step in range(1, 41):
    time.sleep(0.05)
    trainer.report(step=step, total=40, loss=1 / step, reward=step / 40, note="half" if step > 20 else "begun")
