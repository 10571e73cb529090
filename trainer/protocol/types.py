"""Types of values that another process has sent: their lengths, ranges and characters are checked."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from trainer.job.errors import Exit

LONGEST_TEXT = 8000
LATEST_TIME = 1e11
"""Seconds since the epoch."""
MOST_FIGURES = 500
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]+")
"""Unpaired surrogates occur in file names that are not UTF-8; other programs cannot read them in JSON."""
STRICT = ConfigDict(strict=True, extra="forbid")


def _known(code: int) -> int:
    if code not in list(Exit):
        raise ValueError("is no exit code of trainer")
    return code


def checked_figure(value: object) -> object:
    """
    Raises:
        ValueError: it is no value that a figure may have.
    """
    if isinstance(value, str):
        fits = len(value) <= LONGEST_TEXT and not CONTROL.search(value)
    elif isinstance(value, int):
        fits = abs(value) < 2**63
    else:
        fits = value is None or (isinstance(value, float) and math.isfinite(value))
    if not fits:
        raise ValueError("must be a finite number, a text, true, false or null")
    return value


Phase = Literal["forming", "running", "done", "failed"]
Number = Annotated[int, Field(ge=0, lt=2**31)]
Step = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A step; its limit is that of trainer.report."""
Line = Annotated[int, Field(ge=0, lt=2**53)]
Time = Annotated[float, Field(ge=0, lt=LATEST_TIME)]
Amount = Annotated[float, Field(ge=0, lt=2**63)]
Word = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200)]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x09\x0b-\x1f\x7f]*$", max_length=LONGEST_TEXT)]
Code = Annotated[int, AfterValidator(_known)]
Figures = Annotated[dict[Word, Annotated[object, AfterValidator(checked_figure)]], Field(max_length=MOST_FIGURES)]


def may_be_sent(figures: Mapping[str, object]) -> dict[str, object]:
    """The figures that a report may have. The user's code has written them."""
    fit = {name: value for name, value in figures.items() if _fits(name, value)}
    return dict(itertools.islice(fit.items(), MOST_FIGURES))


def _fits(name: str, value: object) -> bool:
    try:
        checked_figure(value)
    except ValueError:
        return False
    return 0 < len(name) <= 200 and not CONTROL.search(name) and "\n" not in name


def plain_text(text: str) -> str:
    """A text of any length and content as reports and replies may have it."""
    text = CONTROL.sub(" ", text)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 3]}..."
