"""Compares a screenshot with the one that is kept."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

LEVELS = 64
"""Of 255, by which a pixel differs visibly. Two runs of one Chromium are equal to the bit: this is room for the
antialiasing of Debian's next one."""
SHARE = 0.0003
"""Of all pixels: 345 of a window of 1280 by 900. Whatever a reader would miss is more (test_pictures.py)."""


def difference(kept: bytes, taken: bytes) -> float:
    """The share of pixels that differ visibly; 1 if the sizes differ."""
    one, other = (np.asarray(Image.open(io.BytesIO(each)).convert("RGB"), dtype=np.int16) for each in (kept, taken))
    if one.shape != other.shape:
        return 1.0
    return float((np.abs(one - other).max(axis=2) > LEVELS).mean())


def check(kept: Path, taken: bytes, *, update: bool, failed: Path) -> None:
    """Fails if a screenshot differs from the one that is kept, and leaves it in the folder `failed`."""
    if update:
        Image.open(io.BytesIO(taken)).convert("RGB").save(kept, "PNG", optimize=True)
        return
    found = difference(kept.read_bytes(), taken)
    if found > SHARE:
        (failed / kept.name).write_bytes(taken)
    assert found <= SHARE, (
        f"{kept.name}: {found:.2%} of the pixels differ; see {failed / kept.name}, or --update-golden"
    )
