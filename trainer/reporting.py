"""trainer.report: a program sends figures of its training to the supervisor of its task.

A datagram is a JSON object of figures by name. A figure that it does not have keeps its last value.
This module is for the user's own program: it imports the standard library alone, and little of that.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time

from trainer import stack_dump
from trainer.job.environment import REPORTS

INTERVAL = 0.1
"""Seconds from one datagram to the next."""
DATAGRAM_BYTES = 60_000
TEXT_BYTES = 1000
"""Of a text. In JSON it has at most three times as many, so that a task's report to the chief has room for all."""
_MOST_FIGURES = 1000
"""That wait to be sent, while no datagram can be."""
_LARGEST = 1 << 63
NOT_FINITE = ("nan", "inf", "-inf")
"""Figures that JSON has no number for are sent as these texts."""


def report(*, step: object = None, total: object = None, **figures: object) -> None:
    """Sends figures of the training to the supervisor; does nothing outside of a job.

    It never waits and never fails for want of a reader. Figures of calls less than 0.1 seconds apart are sent together,
    the newest value of each; those of the last step, with step == total, are sent at once.

    Args:
        step: the steps made so far, a whole number.
        total: the steps of the whole training, if known.
        figures: by any name, such as loss and examples_per_second: a number, a bool or a short text. A NumPy scalar or
            a tensor with one element is a number too.

    Raises:
        TypeError, ValueError: a figure is something else, in a job.
    """
    path = os.environ.get(REPORTS)
    if not path:
        return
    counts = {name: count(name, value) for name, value in (("step", step), ("total", total)) if value is not None}
    _report.add(path, {**counts, **{_name(name): plain(name, value) for name, value in figures.items()}})


def flush() -> None:
    """Sends at once what waits."""
    if path := os.environ.get(REPORTS):
        _report.send(path)


def is_read() -> bool:
    """Whether this program runs in a job, so that figures are worth their computation."""
    return bool(os.environ.get(REPORTS))


class _Report:
    """What this process has yet to send."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # not a Lock: a signal handler may report while its own thread does
        self._waiting: dict[str, object] = {}
        self._next = 0.0
        """When the next datagram may be sent, on the monotonic clock."""
        self._counts: tuple[object, object] = (None, None)
        """The last step and total."""

    def add(self, path: str, figures: dict[str, object]) -> None:
        with self._lock:
            if len(self._waiting) >= _MOST_FIGURES:
                figures = {name: value for name, value in figures.items() if name in self._waiting}
            self._waiting.update(figures)
            before = self._counts
            step, total = self._counts = (figures.get("step", before[0]), figures.get("total", before[1]))
            is_last = step is not None and step == total and before != self._counts
            if is_last or time.monotonic() >= self._next:
                self.send(path)

    def send(self, path: str) -> None:
        """Keeps the figures for the next datagram if the socket is full or gone."""
        import socket  # here: outside of jobs there is no use for it

        with self._lock:
            figures, self._waiting = self._waiting, {}  # a signal handler may report from here on
            if not figures:
                return
            self._next = time.monotonic() + INTERVAL
            try:
                # A socket for each datagram: ten a second cost nothing, and there is none to share after a fork, nor
                # one that is connected to a supervisor's earlier socket.
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.setblocking(False)
                    sender.sendto(_datagram(figures), path)
            except OSError:  # reporting must not end a training
                self._waiting = {**figures, **self._waiting}


def _datagram(figures: dict[str, object]) -> bytes:
    """Figures as JSON, step and total first; those that do not fit are left out."""
    import json

    parts, size = [], 2
    for name, value in sorted(figures.items(), key=lambda item: item[0] not in ("step", "total")):
        part = f"{json.dumps(name)}: {json.dumps(value)}"
        if size + len(part) + 2 <= DATAGRAM_BYTES:
            parts.append(part)
            size += len(part) + 2
    return f"{{{', '.join(parts)}}}".encode()


def count(name: str, value: object, least: int = 0) -> int:
    """A figure that counts something.

    Raises:
        TypeError, ValueError: it does not.
    """
    try:
        number = plain(name, value)
    except TypeError:
        number = ""
    kind = TypeError if isinstance(number, bool) or number == "" or isinstance(value, str) else ValueError
    if kind is TypeError or isinstance(number, str) or not least <= number < _LARGEST or number != int(number):
        raise kind(f"{name} must be a whole number from {least} on, not {value!r:.100}")
    return int(number)


def _name(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"the name of a figure must be an identifier such as val_loss, not {name!r:.100}")
    return name


def plain(name: str, value: object) -> bool | int | float | str:
    """A figure as JSON has it; what is not finite is a text.

    Raises:
        TypeError, ValueError: it has not.
    """
    if not isinstance(value, (bool, int, float, str)):
        value = _scalar(name, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return printable(value[:TEXT_BYTES]).encode()[:TEXT_BYTES].decode(errors="ignore")
    if isinstance(value, int):
        if not -_LARGEST <= value < _LARGEST:
            raise ValueError(f"{name} must fit into 64 bits")
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))


def printable(text: str) -> str:
    """A text for a line of a terminal, without line breaks, escape sequences and halves of surrogate pairs."""
    return str(text) if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def _scalar(name: str, value: object) -> bool | int | float | str:
    """The value of a NumPy scalar, of a tensor with one element, or of any other number."""
    given = value
    try:
        if hasattr(value, "numpy") and not hasattr(value, "item"):  # a tensor or a variable of TensorFlow
            value = value.numpy()
        if hasattr(value, "item"):
            value = value.item()
        if isinstance(value, (bool, int, float, str)):
            return value
        if hasattr(value, "__float__"):
            return float(value)
    except Exception as problem:  # an array has several elements, or a tensor in a tf.function has no value yet
        raise _wrong(name, given) from problem
    raise _wrong(name, given)


def _wrong(name: str, value: object) -> TypeError:
    return TypeError(f"{name} must be a number, a bool or a short text, not {type(value).__name__}")


_report = _Report()


def _after_fork() -> None:
    """What waits is the parent's to send, and a thread that is not here may hold the lock."""
    global _report
    _report = _Report()


os.register_at_fork(after_in_child=_after_fork)
stack_dump.register()
atexit.register(flush)
