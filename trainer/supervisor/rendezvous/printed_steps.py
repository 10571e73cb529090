"""The steps that a program prints, such as `step 120` or `Epoch 3/10`: progress of one that reports none."""

from __future__ import annotations

import re

_STEP = re.compile(
    r"(?<![a-z_])(?:"
    r"(?P<counted>(?:[a-z]{1,20}_){0,3}(?:step|epoch|iter(?:ation)?|batch)[a-z_]{0,20})[^\d\n]{0,12}?"
    # No other word follows these: `Starting attempt 3` and `started pid 71` have higher numbers after each crash.
    r"|(?P<reached>(?:[a-z]{1,20}_){0,3}(?:checkpoint|ckpt|start|resum|restor|continu)[a-z_]{0,20})"
    r"[^\da-z\n]{0,3}(?:(?:at|for|from)[^\da-z\n]{1,3})?"
    r")(?!\d{10})(?P<number>\d[\d,]{0,9})(?![\d,]*[.:-]?\d)",
    re.IGNORECASE,
)
"""A word for a place in a training, and a number right after it that is no fraction, date or time. All parts are
bounded: a program may print a line of 64 KiB."""


class PrintedSteps:
    """The highest number so far after each of these words: `epochs=10`, a total, is none after `Epoch`."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self.vary = False
        """Whether a word had different numbers: `batch size 32` alone does not show how far a training has come."""

    def higher(self, text: str) -> bool:
        """Whether a text has a higher number than before after any of the words.

        A program that crashes again and again at the same place prints no higher one.
        """
        before = dict(self._highest)
        for match in _STEP.finditer(text):
            word, number = (match["counted"] or match["reached"]).lower(), int(match["number"].replace(",", ""))
            highest = self._highest.get(word, number)
            self.vary = self.vary or number != highest
            self._highest[word] = max(number, highest)
        return self._highest != before
