"""The `trainer` command. Each subcommand imports its modules when it runs, so `--help` and `check` start fast."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from trainer.cli.parser import parser
from trainer.cli.shared import print_errors
from trainer.job import environment
from trainer.job.errors import Exit, TrainerError

Command: TypeAlias = Callable[[argparse.Namespace], int]
READER_GONE = 141
"""Exit code that a shell reports for a program ended by SIGPIPE (128 + 13)."""

_COMMANDS = {
    "files": ("check", "local", "result", "import", "schema", "secret", "task", "probe"),
    "jobs": ("render", "submit", "status", "logs", "stacks", "debug", "delete"),
    "ui": ("ui",),
    "track": ("track",),
}
"""The commands that each module has a function for."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code. Usage errors raise SystemExit, as in argparse."""
    try:
        args = parser().parse_args(argv)
        code = _command(args.command)(args)
        sys.stdout.flush()
    except TrainerError as error:
        return _print_errors(str(error).split("\n"), error.code)
    except KeyboardInterrupt:
        return int(Exit.STOPPED)
    except BrokenPipeError:
        # As in `trainer check SPEC | head -1`. The interpreter flushes stdout once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except Exception as error:
        if os.environ.get(environment.DEBUG):
            import traceback

            traceback.print_exc()
        if isinstance(error, PermissionError) and error.filename:
            rule = f"{error.strerror}; run trainer as its owner, or make it accessible"
            return _print_errors([f"{error.filename}: {rule}"], Exit.USER)
        text = " ".join(str(error).split())
        return _print_errors([f"internal error: {type(error).__name__}: {text}; please report it"], Exit.BUG)
    return code


def _print_errors(lines: Iterable[str], code: Exit) -> int:
    print_errors(lines)
    return int(code)


def _command(name: str) -> Command:
    module = next(module for module, names in _COMMANDS.items() if name in names)
    function = "import_" if name == "import" else name
    command: Command = getattr(importlib.import_module(f"trainer.cli.{module}"), function)
    return command
