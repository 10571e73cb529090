"""`trainer stacks`: shows where each task of a job is."""

from __future__ import annotations

import argparse

from trainer.cli.jobs import attached
from trainer.cli.specs import require_options
from trainer.job.errors import Exit
from trainer.targets.show.stacks import describe


def stacks(args: argparse.Namespace) -> int:
    require_options(args)
    print("\n".join(describe(attached(args).stacks(), args.of)))
    return int(Exit.OK)
