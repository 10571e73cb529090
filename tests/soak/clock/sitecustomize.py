"""On PYTHONPATH of a soaked job: the wall clock is off by the seconds in the file SOAK_CLOCK, which may change.

libfaketime would do it for any program, but breaks clock_nanosleep with an absolute time, and so Python's time.sleep.
"""

import os
import time
from pathlib import Path

_file, _time = Path(os.environ["SOAK_CLOCK"]), time.time


def _stepped() -> float:
    return _time() + float(_file.read_text() or 0)


time.time = _stepped
