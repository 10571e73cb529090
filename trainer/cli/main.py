"""The `trainer` command. Each subcommand imports its modules when it runs, so `--help` and `check` start fast."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from trainer import __version__
from trainer.cli import specs
from trainer.job import environment
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.targets.base import LOCAL, TARGETS

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
READER_GONE = 141
"""Exit code that a shell reports for a program ended by SIGPIPE (128 + 13)."""

_EXAMPLES = """\
examples:
  trainer check examples/mnist-ps.yaml
  trainer local examples/digits-ps.yaml --set train.steps=600
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code. Usage errors raise SystemExit, as in argparse."""
    try:
        args = _parser().parse_args(argv)
        code: int = args.run(args)
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
        text = " ".join(str(error).split())
        return _print_errors([f"internal error: {type(error).__name__}: {text}; please report it"], Exit.BUG)
    return code


def _print_errors(lines: Iterable[str], code: Exit) -> int:
    for line in lines:
        print(f"trainer: {line}", file=sys.stderr)
    return int(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainer",
        description="Distributed TensorFlow training from one job spec.",
        epilog=f"{_exit_codes()}\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainer {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    check = commands.add_parser("check", help="show tasks, addresses, derived numbers and each TF_CONFIG of a spec")
    _add_spec(check)
    check.add_argument("--target", choices=TARGETS, help="check the limits of this target too")
    check.set_defaults(run=_check)

    local = commands.add_parser("local", help="run the whole cluster as processes on this machine")
    _add_spec(local)
    local.add_argument(
        "--port", type=int, metavar="BASE", help="TensorFlow ports BASE, BASE+1, ...; control ports 1000 above"
    )
    local.add_argument("--plain", action="store_true", help="prefixed lines instead of a live view")
    local.set_defaults(run=_local)

    render = commands.add_parser("render", help="print the files that a target runs, such as manifests")
    render.add_argument("target", choices=TARGETS)
    render.add_argument(
        "specs", metavar="[PROFILE=]SPEC", nargs="+", help="job specs (YAML); several need a profile each"
    )
    _add_set(render, "change one value of every SPEC, as in train.steps=600")
    render.set_defaults(run=_on_target, command="render")

    _add_deployed(commands)
    _add_files(commands)

    task = commands.add_parser("task", help="run one task; TF_CONFIG and the job come from the environment")
    task.set_defaults(run=_task)

    probe = commands.add_parser("probe", help="print what the supervisor of this container's task answers")
    probe.add_argument("path", choices=["healthz", "status", "metrics"], help="exit code 1 if it does not answer")
    probe.set_defaults(run=_probe)
    return parser


def _add_deployed(commands: Commands) -> None:
    for name, text in (
        ("submit", "start a job on a cluster and return"),
        ("status", "show the phase and the tasks of a job; exit code 0, or that of a failed job"),
        ("logs", "print the output of a job's tasks, in order of time"),
        ("delete", "stop and remove a job; its volume is kept"),
    ):
        command = commands.add_parser(name, help=text)
        command.set_defaults(run=_on_target, command=name)
        choices = [*TARGETS, LOCAL] if name == "status" else [*TARGETS]
        command.add_argument(
            "--target", choices=choices, default=None if name == "status" else choices[0], help="where it runs"
        )
        command.add_argument(
            "--namespace", metavar="NS", help="for a target with namespaces; default: that of its context"
        )
        _add_set(command)
        if name == "submit":
            command.add_argument("spec", metavar="JOB", help="a job spec (YAML)")
            command.add_argument("--dry-run", action="store_true", help="let the target check the job only")
        else:
            command.add_argument("spec", metavar="JOB", help=_job_help(name), nargs="?" if name == "status" else None)
        if name == "status":
            command.add_argument("--watch", action="store_true", help="repeat until the job is over")
            command.add_argument("-o", "--output", choices=["text", "json"], default="text", help="json: for programs")
        elif name == "logs":
            command.add_argument("--task", metavar="TYPE:INDEX", help="only this task, such as worker:1")
            command.add_argument("--follow", action="store_true", help="continue until the job ends")
        elif name == "delete":
            command.add_argument("--volumes", action="store_true", help="delete the volume too")


def _job_help(command: str) -> str:
    local = "; or the model_dir of a job on this machine" if command == "status" else ""
    return f"a job spec (YAML), or a name where the target keeps names{local}"


def _add_files(commands: Commands) -> None:
    result = commands.add_parser("result", help="print the result of a job from its model_dir")
    result.add_argument(
        "spec", metavar="SPEC", nargs="?", help="a job spec (YAML) or a model_dir; default: the job of this container"
    )
    _add_set(result)
    result.set_defaults(run=_result)

    imported = commands.add_parser(
        "import", help="convert a Kubeflow TFJob to a job spec; report settings without a counterpart"
    )
    imported.add_argument("file", metavar="TFJOB", help="a TFJob of kubeflow.org/v1 (YAML)")
    entrypoint = "the words of the image's ENTRYPOINT, for containers without a command: 'python /opt/train.py'"
    imported.add_argument("--entrypoint", default="", metavar="WORDS", help=entrypoint)
    imported.set_defaults(run=_import)

    schema = commands.add_parser("schema", help="print the JSON Schema of a spec, for editors")
    schema.set_defaults(run=_schema)

    secret = commands.add_parser("secret", help="write a random secret for a job's tasks to FILE, unless it has one")
    secret.add_argument("file", metavar="FILE", help="the file that TRAINER_SECRET_FILE names to the tasks")
    secret.add_argument("folders", metavar="FOLDER", nargs="*", help="with --owner: more folders of that user")
    secret.add_argument("--owner", type=int, metavar="UID", help="the user who gets FILE and its folder; for root")
    secret.set_defaults(run=_secret)


def _add_spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="a job spec (YAML)")
    _add_set(parser)


def _add_set(parser: argparse.ArgumentParser, text: str = "change one value, as in train.steps=600") -> None:
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help=text)


def _exit_codes() -> str:
    lines = ["exit codes:"]
    for code in Exit:
        lines += textwrap.wrap(code.meaning, 80, initial_indent=f"{code:>5}  ", subsequent_indent=" " * 7)
    return "\n".join(lines) + "\n"


# Commands. --------------------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    _without_plugins()
    from trainer.cli.describe import describe

    spec = specs.load(args.spec, args.set)
    if args.target is None:
        from trainer.targets import here

        here.require_named(spec)
    if args.target is None and spec.image is None and not spec.program:  # other images have other modules
        from trainer.workloads.check import check_imports

        check_imports(spec)
    target = specs.open_target(args) if args.target else None
    specs.warn(spec, target=target)
    if target:
        target.check(spec)
    print("\n".join(describe(spec)))
    return int(Exit.OK)


def _local(args: argparse.Namespace) -> int:
    _without_plugins()
    from trainer.targets.local import run as local
    from trainer.workloads.check import check_imports

    spec = specs.load(args.spec, args.set)
    if not spec.program:
        check_imports(spec)
    specs.warn(spec)
    return local.run(spec, base_port=args.port, plain=args.plain)


def _on_target(args: argparse.Namespace) -> int:
    from trainer.cli import jobs

    commands = {
        "render": jobs.render,
        "submit": jobs.submit,
        "status": jobs.status,
        "logs": jobs.logs,
        "delete": jobs.delete,
    }
    return commands[args.command](args)


def _result(args: argparse.Namespace) -> int:
    from trainer.job.errors import UserError
    from trainer.targets import summary

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
    from trainer.job.load import load_environment, load_file

    if args.spec and Path(args.spec).is_dir():
        if args.set:
            raise UserError(f"--set: {args.spec!r} is a folder, and --set changes the values of a spec; give its file")
        return str(args.spec)
    if args.set and not args.spec:
        raise UserError("SPEC: is missing: --set changes the values of a spec")
    if not args.spec and environment.JOB not in os.environ:
        container = f"{environment.JOB} is set in a task's container only"
        raise UserError(f"SPEC: is missing: give a job spec or a model_dir; {container}")
    return (load_file(args.spec, args.set) if args.spec else load_environment()).directory


def _import(args: argparse.Namespace) -> int:
    from trainer.tfjob import convert

    try:
        entrypoint = shlex.split(args.entrypoint)
    except ValueError as error:
        raise UserError(f"--entrypoint: {args.entrypoint!r}: {error}; quote its words as in a shell") from None
    raw, notes = convert.convert_file(args.file, entrypoint)
    print(convert.to_yaml(raw), end="")
    return _print_errors(notes, Exit.OK)


def _schema(_: argparse.Namespace) -> int:
    _without_plugins()
    from trainer.job.schema import schema

    print(schema())
    return int(Exit.OK)


def _secret(args: argparse.Namespace) -> int:
    from trainer.job import secret

    secret.keep(Path(args.file), args.owner, map(Path, args.folders))
    return int(Exit.OK)


def _probe(args: argparse.Namespace) -> int:
    from trainer.supervisor.probe import main

    return main(args.path)


def _without_plugins() -> None:
    """pydantic looks for its plugins in the metadata of every installed package: 30 ms. Only this process does without:
    the variable PYDANTIC_DISABLE_PLUGINS would reach the user's program too."""
    from pydantic.plugin import _loader

    _loader._plugins = {}


def _task(_: argparse.Namespace) -> int:
    _without_plugins()
    from trainer.supervisor.main import main

    return main()
