"""Commands that need no target: they check, run or convert files, print what a model_dir holds, or run in a container:
its task, and the probe of its supervisor."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from trainer.cli.shared import print_errors, warn, without_plugins
from trainer.job import environment
from trainer.job.errors import Exit, UserError


def check(args: argparse.Namespace) -> int:
    without_plugins()
    from trainer.api.job import load
    from trainer.cli.describe import describe

    job = load(args.spec, args.set)
    warn(job.warnings(args.target))
    job.check(args.target)
    print("\n".join(describe(job.spec)))
    return int(Exit.OK)


def local(args: argparse.Namespace) -> int:
    without_plugins()
    from trainer.api import started
    from trainer.api.job import load
    from trainer.targets.base import LOCAL
    from trainer.targets.local import run as local
    from trainer.workloads.check import check_imports

    job = load(args.spec, args.set)
    check_imports(job.spec)
    warn(job.warnings())
    started.note(job.path, LOCAL, job.name, job.overrides)
    return local.run(job.spec, base_port=args.port, plain=args.plain)


def result(args: argparse.Namespace) -> int:
    from trainer.job.errors import UserError
    from trainer.targets.show import summary

    model_dir = _model_dir(args)
    if summary.read_result(model_dir) is None:
        raise UserError(
            f"model_dir: {model_dir}: it has no result.json that can be read: the job has not completed there; "
            f"run or resume it, or choose the model_dir where it ran; `trainer status {model_dir}` shows one that runs"
        )
    print(summary.summary(model_dir))
    return int(Exit.OK)


def _model_dir(args: argparse.Namespace) -> str:
    """The folder that SPEC is or names; without SPEC that of this container's job."""
    from trainer.job.errors import UserError
    from trainer.job.load import load_environment

    if args.spec and Path(args.spec).is_dir():
        if args.set:
            raise UserError(f"--set: {args.spec!r} is a folder, and --set changes the values of a spec; give its file")
        return str(args.spec)
    if args.set and not args.spec:
        raise UserError("SPEC: is missing: --set changes the values of a spec")
    if not args.spec and environment.JOB not in os.environ:
        container = f"{environment.JOB} is set in a task's container only"
        raise UserError(f"SPEC: is missing: give a job spec or a model_dir; {container}")
    if not args.spec:
        return load_environment().directory
    from trainer.api import run as runs

    return runs.spec_here(args.spec, args.set).directory


def import_(args: argparse.Namespace) -> int:
    from trainer.tfjob import convert

    try:
        entrypoint = shlex.split(args.entrypoint)
    except ValueError as error:
        raise UserError(f"--entrypoint: {args.entrypoint!r}: {error}; quote its words as in a shell") from None
    raw, notes = convert.convert_file(args.file, entrypoint)
    print(convert.to_yaml(raw), end="")
    print_errors(notes)
    return int(Exit.OK)


def schema(_: argparse.Namespace) -> int:
    without_plugins()
    from trainer.job.schema import schema

    print(schema())
    return int(Exit.OK)


def secret(args: argparse.Namespace) -> int:
    from trainer.job import secret

    secret.keep(Path(args.file), args.owner, map(Path, args.folders))
    return int(Exit.OK)


def task(_: argparse.Namespace) -> int:
    without_plugins()
    from trainer.supervisor.main import main

    return main()


def probe(args: argparse.Namespace) -> int:
    from trainer.supervisor.probe import main

    return main(args.path)
