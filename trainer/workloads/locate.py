"""Locates errors in the user's files."""

from __future__ import annotations

import contextlib
import re
import traceback
from pathlib import Path

from trainer.job import workload_file
from trainer.job.errors import UserError
from trainer.workloads.workload import NO_COMMAND_LINE

_USER_ERROR = f"{UserError.__module__}.{UserError.__name__}: "
_COLOUR = re.compile(r"\x1b\[\d+m")
"""Colour codes in errors of Keras."""


def original(error: BaseException) -> BaseException:
    """The error that AutoGraph, which runs a translation of every function in a graph, has wrapped in its own."""
    while (cause := error.__context__) is not None and hasattr(cause, "ag_error_metadata"):
        error = cause
    return error


def where_it_failed(error: BaseException, workload: str) -> str | None:
    """`file:line: Type: text` of the innermost frame in the user's workload file or in a module beside it that it
    imports, or None if no frame is the user's."""
    if not workload.endswith(".py"):
        return None
    error = original(error)
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    # Frames of translated code name a temporary file; AutoGraph records those of the source, innermost first.
    translated = getattr(error, "ag_error_metadata", None)
    frames += [(f.filename, f.lineno) for f in reversed(translated.translated_stack)] if translated else []
    own = own_files(workload)
    lines = [(own[file], line) for file, line in frames if file in own]
    if not lines:
        return None
    text = " ".join(_COLOUR.sub("", str(error)).split())
    place = f"workload: {lines[-1][0]}:{lines[-1][1]}: {type(error).__name__}: {text[:300]}".rstrip(": ")
    return f"{place}; {NO_COMMAND_LINE}" if _reads_arguments(error) else place


def _reads_arguments(error: BaseException) -> bool:
    """Whether a file reads the words of a command line, as sys.argv has them or absl's flags; argparse ends the
    process."""
    *_, last = (frame.line or "" for frame in traceback.extract_tb(error.__traceback__))
    return (isinstance(error, IndexError) and "argv" in last) or type(error).__name__ == "UnparsedFlagAccessError"


def python_error(text: str, workload: str) -> str | None:
    """The Python exception in an error of TensorFlow, which quotes the traceback of a function called by a graph:
    from_generator, py_function, numpy_function (py_func.cc); None if there is none."""
    # A peer's error also contains gRPC's copy, escaped and truncated if long. Any copy may be the complete one.
    plain = text.replace("\\n", "\n").replace('\\"', '"')
    places = []
    for trace in plain.split("Traceback (most recent call last):\n")[1:]:
        last = re.search(r"^\S.*", trace, re.MULTILINE)
        for file, line in re.findall(r'^ +File "(.+)", line (\d+)', trace, re.MULTILINE):
            places.append(
                (Path(file) == Path(workload).absolute(), file, line, last[0][:300] if last else "an exception")
            )
    if not places:
        return None
    theirs, file, line, what = max(reversed(places), key=lambda place: place[0])
    if what.startswith(_USER_ERROR):  # of a function of trainer
        return str(what).removeprefix(_USER_ERROR)
    if what.startswith("TypeError: `generator` yielded an element"):  # tensorflow/python/data/ops/from_generator_op.py
        return f"workload: {workload}: {what.rstrip('.')}; each must be as the output_signature of from_generator"
    return f"workload: {workload}:{line}: {what}" if theirs else f"workload: {workload}: {file}:{line}: {what}"


def own_files(workload: str) -> dict[str, str]:
    """Names of a workload file and of the modules beside it that it imports, by their paths in a traceback."""
    path, names = Path(workload), {str(Path(workload).absolute()): workload}
    with contextlib.suppress(UserError):
        files = [file for module in workload_file.helpers(path) for file in workload_file.files_of(module)]
        names |= {str(file.absolute()): str(file) for file in files}
    return names
