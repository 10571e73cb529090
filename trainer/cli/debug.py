"""`trainer debug`: writes an archive of a job, and prints its path and its verdict."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainer.api import run as runs
from trainer.cli.shared import require_options
from trainer.debug.symptoms import plain
from trainer.job.errors import Exit, UserError
from trainer.targets import evidence


def debug(args: argparse.Namespace) -> int:
    require_options(args)
    output = Path(args.output) if args.output else None
    try:
        run = runs.attach(args.spec, args.target, namespace=args.namespace, set=args.set)
    except UserError as error:
        if not Path(args.spec).is_file():
            raise
        done = evidence.write_refused(Path(args.spec), error, output)
    else:
        done = run.debug(output)
    print(f"{done.path}: {done.size:,} bytes; unpack it and open index.html\n{done.verdict.headline}")
    for each in done.verdict.advice:
        if not each.healthy:
            print(f"to try: {plain(each.advice)}")
    return int(Exit.OK)
