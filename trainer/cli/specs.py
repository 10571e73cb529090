"""Loads the specs and the target of a command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainer.job.errors import UserError
from trainer.targets import base

if TYPE_CHECKING:
    from trainer.job.spec import JobSpec


def load(path: str, overrides: Sequence[str]) -> JobSpec:
    """Loads a spec and checks its workload, or that its programs are there."""
    from trainer.job import program
    from trainer.job.load import load_file
    from trainer.workloads.check import check_workload

    spec = load_file(path, overrides)
    program.require_scripts(spec)
    if not spec.program:
        check_workload(spec)
    return spec


def warn(*specs: JobSpec, target: base.Target | None = None) -> None:
    """Prints the warnings of these specs, also those of the target."""
    from trainer.targets import outside

    for spec in specs:
        warn_of([*outside.warnings(spec), *(target.warnings(spec) if target else ())])


def warn_of(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"trainer: warning: {line}", file=sys.stderr)


def open_target(args: argparse.Namespace) -> base.Target:
    """The target of `--target`.

    Raises:
        UserError: an option that the target does not have.
    """
    own = base.TARGETS[args.target].options
    for option in base.OPTIONS:
        if getattr(args, option, None) and option not in own:
            others = [name for name, entry in base.TARGETS.items() if option in entry.options]
            raise UserError(
                f"--{option.replace('_', '-')}: is not an option of --target {args.target}; it is for "
                f"{' or '.join(f'--target {name}' for name in others)}"
            )
    namespace = getattr(args, "namespace", None)
    return base.load(args.target, **({"namespace": namespace} if namespace else {}))
