"""A target that does not answer for some time, as a cluster whose control plane is upgraded: a job is followed on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from trainer.job.errors import Exit, TrainerError

T = TypeVar("T")
LONGEST_SECONDS = 600.0
"""How long a target that has answered before is asked again."""
REFUSED_SECONDS = 30.0
"""How long one that refuses what it has allowed before: an API server that starts does not know its rules yet."""


class NoAnswer(TrainerError):
    """The target does not answer now, and perhaps later: its jobs go on."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.TARGET)


class Refused(TrainerError):
    """The target does not know the user, or does not allow this."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.TARGET)


def _print(text: str) -> None:
    print(f"trainer: {text}", file=sys.stderr, flush=True)


class Outage:
    """The time in which a target does not answer, and what is said about it, once at its beginning and at its end."""

    def __init__(self, say: Callable[[str], None] = _print) -> None:
        self._say = say
        self._since: float | None = None
        self._refused_since: float | None = None

    @property
    def present(self) -> bool:
        return self._since is not None or self._refused_since is not None

    def ask(self, question: Callable[[], T], last: T) -> T:
        """The answer to a question, or the last one while there is no answer.

        Raises:
            NoAnswer, Refused: as `lasts`.
        """
        try:
            found = question()
        except (NoAnswer, Refused) as error:
            self.lasts(error)
            return last
        self.over()
        return found

    def lasts(self, error: NoAnswer | Refused) -> None:
        """
        Raises:
            NoAnswer, Refused: it has lasted too long.
        """
        now = time.monotonic()
        if isinstance(error, Refused):
            self._refused_since = self._refused_since or now
            if now - self._refused_since > REFUSED_SECONDS:
                raise error
            return
        self._refused_since = None
        if self._since is None:
            self._since = now
            self._say(f"{error}; the job goes on, and is asked for again for {LONGEST_SECONDS / 60:g} minutes")
        elif now - self._since > LONGEST_SECONDS:
            raise NoAnswer(f"{error}; no answer for {LONGEST_SECONDS / 60:g} minutes; the job may have gone on")

    def over(self) -> None:
        """The target has answered."""
        if self._since is not None:
            self._say(f"there is an answer again, after {time.monotonic() - self._since:.0f} s")
        self._since = self._refused_since = None
