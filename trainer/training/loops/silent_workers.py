"""Workers that are silent are cut off, so that the coordinator gives their steps to others."""

from __future__ import annotations

import time
from collections.abc import Sequence

from trainer.training import connections
from trainer.training.channel import Channel

POLL_SECONDS = 0.2


class SilentWorkers:
    """Workers of which nothing is heard, though no connection was reset: stopped, or on a node that is cut off.

    The coordinator would wait for what it sent them for ever. With their connections cut they are dead to it like any
    other: it gives their closures to the others, and takes them back when they answer.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        # Found now: a host that is gone may have no address any more.
        self._known = {f"worker:{i}": connections.peers(address) for i, address in enumerate(addresses)}
        self._addresses = {f"worker:{i}": address for i, address in enumerate(addresses)}
        self._silent: frozenset[str] = frozenset()

    def cut_off(self, silent: frozenset[str]) -> None:
        """Again and again while they are silent: gRPC connects anew, and the kernel of a stopped process accepts."""
        for name in silent & self._known.keys():  # a silent ps is no matter of closures: the job forms anew
            if name not in self._silent:
                self._known[name] |= connections.peers(self._addresses[name])
            connections.cut(self._known[name])
        self._silent = silent

    def keep_cut_off(self, channel: Channel) -> None:
        """To the end of the process."""
        while True:
            self.cut_off(channel.silent)
            time.sleep(POLL_SECONDS)
