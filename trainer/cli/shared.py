"""What commands share: a quick start, lines on stderr, and options that the target does not have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from trainer.job.errors import UserError
from trainer.targets import base


def without_plugins() -> None:
    """pydantic looks for its plugins in the metadata of every installed package: 30 ms. Only this process does without:
    the variable PYDANTIC_DISABLE_PLUGINS would reach the user's program too."""
    from pydantic.plugin import _loader

    _loader._plugins = {}


def print_errors(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"trainer: {line}", file=sys.stderr)


def warn(lines: Iterable[str]) -> None:
    print_errors(f"warning: {line}" for line in lines)


def require_options(args: argparse.Namespace) -> None:
    """
    Raises:
        UserError: the target of `--target` does not have an option that is used.
    """
    if args.target is None:
        return
    for option, others in base.lacking(args.target, [name for name in base.OPTIONS if getattr(args, name, None)]):
        raise UserError(
            f"--{option.replace('_', '-')}: is not an option of --target {args.target}; it is for "
            f"{' or '.join(f'--target {name}' for name in others)}"
        )
