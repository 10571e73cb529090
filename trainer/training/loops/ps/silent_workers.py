"""Cuts the connections to silent workers, so that the coordinator reassigns their steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

from trainer.training.runtime import connections
from trainer.training.runtime.channel import Channel

CUT_SECONDS = 0.2
"""Seconds between two cuts of a silent worker's connections: gRPC makes new ones."""


class SilentWorkers:
    """Workers that have become silent without a reset connection: stopped, or on a disconnected node.

    The coordinator would wait for their closures for ever. When their connections are cut it treats them as dead:
    it reassigns their closures, and accepts the workers again when they answer.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        # Resolved now: the name of a lost host may no longer resolve.
        self._known = {f"worker:{i}": connections.peers(address) for i, address in enumerate(addresses)}
        self._addresses = {f"worker:{i}": address for i, address in enumerate(addresses)}
        self._silent: frozenset[str] = frozenset()

    def cut_off(self, silent: frozenset[str]) -> None:
        """Cuts them repeatedly while they are silent: gRPC reconnects, and the kernel of a stopped process accepts."""
        for name in silent & self._known.keys():  # a silent ps does not concern closures: the job is re-formed
            if name not in self._silent:
                self._known[name] |= connections.peers(self._addresses[name])
            connections.cut(self._known[name])
        self._silent = silent

    def keep_cut_off(self, channel: Channel) -> None:
        """Runs until the end of the process."""
        while True:
            self.cut_off(channel.silent)
            time.sleep(CUT_SECONDS)
