"""The steps that a program prints, such as `step 120` or `Epoch 3/10`: progress of one that reports none."""

from __future__ import annotations

import re

_STEP = re.compile(
    r"(?<![a-z])(?P<word>step|epoch|iter(?:ation)?|batch|checkpoint|ckpt|start|resum|restor|continu)[a-z]*"
    r"[^\d\n]{0,12}?(?P<number>\d[\d,]{0,9})(?![\d,]*[.:-]?\d)",
    re.IGNORECASE,
)
"""A word for a place in a training, and a number right after it that is no fraction, date or time."""


def higher(text: str, highest: dict[str, int]) -> bool:
    """Whether a text has a higher number than before after any of these words; keeps the highest.

    A program that crashes again and again at the same place prints no higher one.
    """
    before = dict(highest)
    for match in _STEP.finditer(text):
        word, number = match["word"].lower(), int(match["number"].replace(",", ""))
        highest[word] = max(number, highest.get(word, 0))
    return highest != before
