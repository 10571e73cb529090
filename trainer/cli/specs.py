"""Warnings of the specs of a command line, and options that its target does not have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from trainer.job.errors import UserError
from trainer.targets import base


def warn(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"trainer: warning: {line}", file=sys.stderr)


def require_options(args: argparse.Namespace) -> None:
    """
    Raises:
        UserError: the target of `--target` does not have an option that is given.
    """
    if args.target is None:
        return
    for option, others in base.lacking(args.target, [name for name in base.OPTIONS if getattr(args, name, None)]):
        raise UserError(
            f"--{option.replace('_', '-')}: is not an option of --target {args.target}; it is for "
            f"{' or '.join(f'--target {name}' for name in others)}"
        )
