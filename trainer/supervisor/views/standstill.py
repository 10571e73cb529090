"""A job whose next step takes much longer than is usual: for how long, and where its tasks are."""

from __future__ import annotations

from trainer.model_dir.stacks import Stacks

AGAIN = 2.0
"""The tasks are asked where they are again after so many times as long: they may be elsewhere."""


class Standstill:
    def __init__(self) -> None:
        self._seconds = self._asked = 0.0
        self._since = 0.0
        """Seconds since the epoch."""

    def look(self, seconds: float, now: float) -> bool:
        """Takes how long there has been no step; returns whether the tasks are to be asked for their stacks.

        Args:
            seconds: 0 while nothing is unusual.
            now: seconds since the epoch.
        """
        self._seconds, self._since = seconds, now - seconds
        if not seconds:
            self._asked = 0.0
            return False
        if seconds < AGAIN * self._asked:
            return False
        self._asked = seconds
        return True

    def has_taken(self, last: Stacks) -> bool:
        """Whether these stacks were taken since the last step."""
        return self._seconds > 0 and last.time >= self._since

    def text(self, last: Stacks) -> str | None:
        """The standstill in a line; None if there is none.

        Args:
            last: the last stacks.
        """
        if not self._seconds:
            return None
        where = last.text if self.has_taken(last) else ""
        return f"no new step for {self._seconds:.0f} s{f': {where}' if where else ''}"
