"""The reason of a program's end, found in what it wrote to stderr: tracebacks of Python, fatal errors of TensorFlow."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from trainer.protocol.known_errors import way_out
from trainer.reporting import printable

LONGEST = 300
"""Characters of a line in a message."""

_FRAME = re.compile(r'^[ \t]*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>[^\n]+))?$', re.MULTILINE)
"""A syntax error's own place has no function."""
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError)\b")
_GROUP = "Exception Group Traceback (most recent call last):"
_OF_A_GROUP = re.compile(r"^ *(?:\| ?|\+ (?=Exception Group)|\+(?:-\+)?-[-+ \d]*$)", re.MULTILINE)
"""What Python puts before the lines of a group of exceptions, and its lines between them (traceback.py)."""
_TRACEBACK = "Traceback (most recent call last):"
_LOST_PEER = re.compile(r"^(?:[\w.]+\.)?(?:Unavailable|Aborted|Cancelled|DeadlineExceeded)Error\b", re.MULTILINE)
"""Exceptions of TensorFlow (training/runtime/user_code.py), alone or behind another one."""
_CONNECTION = re.compile(
    r"Collective ops is aborted|CoordinationService|coordination service|connect to all addresses|Connection refused"
    r"|Connection reset|Socket closed|heartbeat|UNAVAILABLE|Unable to find the context_id"
)
"""Messages of its other exceptions, and of the fatal errors with which it aborts a process, when a peer is lost."""
_LOG = re.compile(r"^(?:[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: )", re.MULTILINE)
"""The beginning of a line that TensorFlow logs."""
_FUNCTION_NODE = re.compile(r"\{\{function_node [^}]*\}\} ?")
"""What TensorFlow writes before the message of an operation."""
_FATAL = re.compile(r"^(?:F\d{4} |\d{4}-\d\d-\d\d \S+: F |Fatal Python error: )")
"""Errors that are followed by a trace of the stack: those of TensorFlow, and those of Python and its faulthandler."""
_ABORTED = "Fatal Python error: Aborted"
"""Follows the fatal error of a library that aborts the process."""
_CURRENT = re.compile(r"^(?:Current thread \w+|Stack) \(most recent call first\):\n", re.MULTILINE)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d")
_NO_FILE = re.compile(r"<.*>$")
"""A name in place of a file's: `<frozen os>` of a module within Python itself, `<string>` of code that `exec` runs."""
_TYPED = ("<string>", "<stdin>")
"""Those of a program that is an argument or the input of Python."""
_BEGINS = re.compile(
    rf"^(?:{re.escape(_TRACEBACK)}|F\d{{4}} |\d{{4}}-\d\d-\d\d \S+: F |Fatal Python error: (?!Aborted))", re.MULTILINE
)
"""Where the reason of an end begins."""
_CRASHED = re.compile(r'^ +File "(?P<file>[^"\n]+)", line (?P<line>\d+) in (?P<function>[^\n]+)$', re.MULTILINE)
"""A frame of faulthandler's, the innermost first."""


def reason(tail: str, folder: Path, code: int = 1) -> str:
    """A fatal error, the exception of the last traceback with its last frame, or the last line; empty if there is none.

    Args:
        folder: the program's; a frame in it is preferred, because those of libraries do not name the mistake.
        code: the exit code. An exception that was not handled makes it 1.
    """
    if _GROUP in tail:
        tail = _OF_A_GROUP.sub("", tail)
    block = _last_traceback(tail)
    if fatal := _fatal(block or tail):
        return _with_crash(_short(fatal), block or tail, folder)
    last = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")
    if block is None:
        return _with_place(_short(last), tail, folder) if _SYNTAX.match(last) else _short(last)
    text = _with_place(_short(_with_message(block)), block, folder)
    if hint := way_out(block):
        text = f"{text}; {hint}"
    handled = code != 1 and last != _exception(block) and not _LOG.match(last)
    return f"{_short(last)}; before it {text}" if handled else text


def causes(log: str, folder: Path) -> Iterator[str]:
    """The reasons of all ends in a log, as `reason` has each, but for those that a lost peer may cause."""
    begins = [found.start() for found in _BEGINS.finditer(log)]
    for begin, end in itertools.pairwise([*begins, len(log)]):
        if (part := log[begin:end]) and not blames_peer(part):
            yield reason(part, folder)


def _with_place(text: str, block: str, folder: Path) -> str:
    """The text of an exception with the place that it is from."""
    frames = list(_FRAME.finditer(block))
    own = _own(frames, folder)
    if _SYNTAX.match(text):  # that of a text that the program evaluates has no file
        place = [frame for frame in frames if not frame["function"]][-1:]
        own = [frame for frame in place if not _NO_FILE.match(frame["file"])] or own
    if not frames:
        return text
    return _placed(text, (own or frames)[-1], folder)


def _own(frames: list[re.Match[str]], folder: Path) -> list[re.Match[str]]:
    """The frames in the program's folder, or else those that are in no library, or else those of `python -c`."""
    files = [frame for frame in frames if not _NO_FILE.match(frame["file"])]
    inside = [frame for frame in files if (path := _within(frame["file"], folder)) and not _LIBRARY.search(f"/{path}")]
    outside = [frame for frame in files if not _LIBRARY.search(frame["file"])]
    return inside or outside or [frame for frame in frames if frame["file"] in _TYPED]


def _within(file: str, folder: Path) -> Path | None:
    """The path of a file in the folder; None if it is elsewhere."""
    path = Path(folder, file)
    return path.relative_to(folder) if path.is_relative_to(folder) else None


def _placed(text: str, frame: re.Match[str], folder: Path) -> str:
    file = Path(frame["file"])
    name = file.relative_to(folder) if file.is_relative_to(folder) else file
    function = f" in {frame['function']}" if frame["function"] else ""
    return f"{text} ({name}:{frame['line']}{function})"


def _fatal(text: str) -> str:
    """The last fatal error; empty if there is none."""
    fatal = [line for line in text.splitlines() if _FATAL.match(line)]
    named = [line for line in fatal if not line.startswith(_ABORTED)]
    return (named or fatal or [""])[-1]


def _with_crash(text: str, block: str, folder: Path) -> str:
    """A fatal error with the place in Python where faulthandler has found the thread that it is from."""
    stacks = list(_CURRENT.finditer(block))
    frames = list(_CRASHED.finditer(block[stacks[-1].end() :].partition("\n\n")[0])) if stacks else []
    return _placed(text, (_own(frames, folder) or frames)[0], folder) if frames else text


def blames_peer(tail: str) -> bool:
    """Whether a program may have ended because a peer was lost: by its last exception, an exception behind that, or
    what TensorFlow logged when it aborted the process."""
    if _CONNECTION.search(_fatal(tail)):
        return True
    block = _last_traceback(tail)
    if block is None:
        return False
    exceptions = tail[tail.find(_TRACEBACK) :]
    return bool(_LOST_PEER.search(exceptions) or _CONNECTION.search(_message(block)))


def peer_is_silent(text: str) -> bool:
    """Whether an error of TensorFlow is that a peer gave no sign of life: it may still exist. The coordination service
    reports that up to 10 s after a peer was stopped or its machine was lost
    (xla/tsl/distributed_runtime/coordination/coordination_service.cc)."""
    return "stopped sending heartbeats" in text


def _last_traceback(tail: str) -> str | None:
    start = tail.rfind(_TRACEBACK)
    return tail[start:] if start >= 0 else None


def _message(block: str) -> str:
    """The text of a traceback's exception, without what was logged after it."""
    exception = _exception(block)
    text = block[block.find(exception) :] if exception else ""
    logged = _LOG.search(text)
    return text[: logged.start()] if logged else text


def _with_message(block: str) -> str:
    """The line of the exception. Where TensorFlow writes where the graph's nodes come from first, the message too."""
    exception = _exception(block)
    if exception.endswith("Graph execution error:"):
        lines = block[block.find(exception) + len(exception) :].splitlines()
        begins = (line for line in lines if line[:1].strip() and not line.startswith(("Detected at ", "Node:")))
        exception = f"{exception} {next(begins, '')}".strip()
    return _FUNCTION_NODE.sub("", exception)


def _exception(block: str) -> str:
    """The line of the exception: the first without indentation after the frames."""
    lines = block.splitlines()[1:]
    return next((line.strip() for line in lines if line.strip() and not line[0].isspace()), "")


def _short(line: str) -> str:
    line = printable(line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
