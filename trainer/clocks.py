"""The clocks of this machine, as supervisors read them.

They call these by the module's name, so that a simulated world can put its own in their place (tests/simulation/); a
rule of the linter holds them to it. What waits in asyncio goes by the clock of the event loop.
"""

from __future__ import annotations

import time

monotonic = time.monotonic
"""Seconds by a clock that nobody can set. Two machines do not share it."""
wall = time.time
"""Seconds since the epoch. Somebody may set it."""
pause = time.sleep
"""Blocks the thread for some seconds."""
