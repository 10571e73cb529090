"""`trainer debug`: writes an archive of a job, and prints where it is and what it says."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainer.api import run as runs
from trainer.cli.jobs import attached
from trainer.cli.specs import require_options
from trainer.debug.symptoms import plain
from trainer.job.errors import Exit, UserError
from trainer.job.load import load_file
from trainer.targets import base
from trainer.targets import debug as archives
from trainer.targets.local import status


def debug(args: argparse.Namespace) -> int:
    require_options(args)
    output = Path(args.output) if args.output else None
    try:
        run = _run(args)
    except UserError as error:
        if not Path(args.spec).is_file():
            raise
        done = archives.write_refused(Path(args.spec), error, output)
    else:
        done = run.debug(output)
    print(f"{done.path}: {done.size:,} bytes; unpack it and open index.html\n{done.verdict.headline}")
    for each in done.verdict.advice:
        print(f"to try: {plain(each.advice)}")
    return int(Exit.OK)


def _run(args: argparse.Namespace) -> runs.Run:
    """The job in JOB. Without --target a spec's job is that of this machine, if one has begun here."""
    here = args.target is None and args.namespace is None and Path(args.spec).is_file()
    if here and status.is_model_dir(load_file(args.spec, args.set).directory):
        args.target = base.LOCAL
    return attached(args)
