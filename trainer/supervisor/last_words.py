"""What a program wrote to stderr before it ended: copied as it comes, and searched for the reason of its end."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path

TAIL_BYTES = 1 << 16
"""The end of stderr that is kept."""
LONGEST = 300
"""Characters of a line in a message."""

_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)$', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_PEER = re.compile(
    r"UnavailableError|UNAVAILABLE|AbortedError|ABORTED|CancelledError|DeadlineExceededError|DEADLINE_EXCEEDED"
    r"|[Cc]onnection reset|Connection refused|Socket closed|[Cc]oordination ?[Ss]ervice|heartbeat"
    r"|failed to connect to all addresses|Collective ops is aborted|peer task"
)
"""What TensorFlow writes when a peer is lost: the codes of LOST_PEER (training/user_code.py), and the coordination
service's fatal lines."""
_FATAL = re.compile(r"^\S+ \S+: F |^F\d{4} |^\[?[^\n]{0,60}\bF\d{4,}", re.MULTILINE)


class Stderr:
    """A pipe for a program's stderr. A thread copies it to this process's stderr and to the log: writing may block,
    and the supervisor must not."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._pipe, self.theirs = os.pipe()
        self._tail = b""
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def start(self) -> None:
        """Starts to copy; the program has its end of the pipe by now."""
        os.close(self.theirs)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Waits until all was copied. A process that the program left behind may keep the pipe open."""
        self._thread.join(seconds)

    @property
    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def _copy(self) -> None:
        log = -1
        with contextlib.suppress(OSError):
            log = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        try:
            while chunk := os.read(self._pipe, 1 << 16):
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                for output in (2, log):
                    with contextlib.suppress(OSError):
                        os.write(output, chunk)
        finally:
            os.close(self._pipe)
            if log >= 0:
                os.close(log)


def reason(tail: str, folder: Path) -> str:
    """The exception of the last traceback with its last frame, or the last line; empty if there is none.

    Args:
        folder: the program's; a frame in it is preferred, because those of libraries do not name the mistake.
    """
    block = _last_traceback(tail)
    if block is None:
        lines = [line.strip() for line in tail.splitlines() if line.strip()]
        return _short(lines[-1]) if lines else ""
    frames = list(_FRAME.finditer(block))
    own = [frame for frame in frames if Path(folder, frame["file"]).is_relative_to(folder)]
    text = _short(_exception(block))
    if not frames:
        return text
    frame = (own or frames)[-1]
    file = Path(frame["file"])
    name = file.relative_to(folder) if file.is_relative_to(folder) else file
    return f"{text} ({name}:{frame['line']} in {frame['function']})"


def blames_peer(tail: str) -> bool:
    """Whether a program may have ended because a peer was lost: its last exception, or what TensorFlow wrote when it
    aborted the process, is one that a lost peer causes."""
    block = _last_traceback(tail)
    if block is not None and _PEER.search(block[block.find(_exception(block)) :] if _exception(block) else block):
        return True
    return any(_PEER.search(line) for line in tail.splitlines() if _FATAL.search(line))


def _last_traceback(tail: str) -> str | None:
    start = tail.rfind(_TRACEBACK)
    return tail[start:] if start >= 0 else None


def _exception(block: str) -> str:
    """The line of the exception: the first without indentation after the frames."""
    lines = block.splitlines()[1:]
    return next((line.strip() for line in lines if line.strip() and not line[0].isspace()), "")


def _short(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
