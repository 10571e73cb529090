"""The arguments of the `trainer` command. Each subcommand has a name, by which main.py finds its function."""

from __future__ import annotations

import argparse
import textwrap
from typing import TypeAlias

from trainer import __version__
from trainer.job.errors import Exit
from trainer.targets.base import TARGETS, elsewhere

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_EXAMPLES = """\
examples:
  trainer check examples/mnist-ps.yaml
  trainer local examples/digits-ps.yaml --set train.steps=600
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="trainer",
        description="Distributed TensorFlow training from one job spec.",
        epilog=f"{_exit_codes()}\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"trainer {__version__}")
    commands = made.add_subparsers(metavar="COMMAND", required=True)

    check = commands.add_parser("check", help="show tasks, addresses, derived numbers and each TF_CONFIG of a spec")
    _add_spec(check)
    check.add_argument("--target", choices=TARGETS, help="check the limits of this target too")
    check.set_defaults(command="check")

    local = commands.add_parser("local", help="run the whole cluster as processes on this machine")
    _add_spec(local)
    local.add_argument(
        "--port", type=int, metavar="BASE", help="TensorFlow ports BASE, BASE+1, ...; control ports 1000 above"
    )
    local.add_argument("--plain", action="store_true", help="prefixed lines instead of a live view")
    local.set_defaults(command="local")

    render = commands.add_parser("render", help="print the files that a target runs, such as manifests")
    render.add_argument("target", choices=elsewhere())
    render.add_argument(
        "specs", metavar="[PROFILE=]SPEC", nargs="+", help="job specs (YAML); several need a profile each"
    )
    _add_set(render, "change one value of every SPEC, as in train.steps=600")
    render.set_defaults(command="render")

    _add_deployed(commands)
    _add_files(commands)

    _add_track(commands)

    task = commands.add_parser("task", help="run one task; TF_CONFIG and the job come from the environment")
    task.set_defaults(command="task")

    probe = commands.add_parser("probe", help="print what the supervisor of this container's task answers")
    probe.add_argument(
        "path",
        choices=["healthz", "status", "metrics", "stacks", "relay"],
        help="exit code 1 if it does not answer; relay connects stdin and stdout to it",
    )
    probe.set_defaults(command="probe")
    return made


def _add_track(commands: Commands) -> None:
    track = commands.add_parser(
        "track", help="send a job to MLflow, by the files in its model_dir: while it runs, or after its end"
    )
    track.add_argument("model_dir", metavar="MODEL_DIR", help="the job's")
    track.add_argument("--mlflow", metavar="ADDRESS", help="the server; default: tracking.mlflow of the spec")
    track.add_argument("--experiment", metavar="NAME", help="default: that of the spec, or the job's name")
    track.add_argument("--register", metavar="NAME", help="make the exported model a version of this registered model")
    track.add_argument("--keep", action="store_true", help="go on after the job's end, until SIGTERM")
    track.add_argument(
        "--next", action="store_true", help="wait for the next start of a job that has already ended once"
    )
    track.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="for a job that does not run (default: 60)"
    )
    track.add_argument("--index", type=int, default=0, metavar="N", help="of this pod: only that with index 0 tracks")
    track.set_defaults(command="track")


_ALSO_LOCAL = ("status", "stacks", "logs", "debug", "ui")
"""Commands that know jobs on this machine too."""


def _add_deployed(commands: Commands) -> None:
    for name, text in (
        ("submit", "start a job on a cluster and return"),
        ("status", "show the phase and the tasks of a job; exit code 0, or that of a failed job"),
        ("logs", "print the output of a job's tasks, in order of time"),
        ("stacks", "show where each task of a job is, and which one the others wait for"),
        ("ui", "open the page of a job: while it runs, and after its end from its model_dir"),
        ("delete", "stop and remove a job; its volume is kept"),
        ("debug", "write an archive of a job, without secrets, that names what failed first and what to try"),
    ):
        command = commands.add_parser(name, help=text)
        command.set_defaults(command=name)
        choices = [*TARGETS] if name in _ALSO_LOCAL else elsewhere()
        command.add_argument(
            "--target", choices=choices, default=choices[0] if name == "submit" else None, help="where it runs"
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
            command.add_argument("-w", "--watch", action="store_true", help="repeat until the job is over")
            command.add_argument("-o", "--output", choices=["text", "json"], default="text", help="json: for programs")
        elif name == "stacks":
            command.add_argument("of", metavar="TASK", nargs="?", help="only of this task, such as worker:1")
        elif name == "logs":
            command.add_argument("--task", metavar="TYPE:INDEX", help="only this task, such as worker:1")
            command.add_argument("-f", "--follow", action="store_true", help="continue until the job ends")
        elif name == "debug":
            command.add_argument("-o", "--output", metavar="FILE", help="the archive; default: NAME-debug-TIME.zip")
        elif name == "ui":
            command.add_argument("--port", type=int, default=0, help="of this machine; default: a free one")
            command.add_argument("--no-browser", action="store_true", help="print the address only")
        elif name == "delete":
            command.add_argument("--volumes", action="store_true", help="delete the volume too")


def _job_help(command: str) -> str:
    local = "; or the model_dir of a job on this machine" if command in _ALSO_LOCAL else ""
    return f"a job spec (YAML), or a name where the target keeps names{local}"


def _add_files(commands: Commands) -> None:
    result = commands.add_parser("result", help="print the result of a job from its model_dir")
    result.add_argument(
        "spec", metavar="SPEC", nargs="?", help="a job spec (YAML) or a model_dir; default: the job of this container"
    )
    _add_set(result)
    result.set_defaults(command="result")

    imported = commands.add_parser(
        "import", help="convert a Kubeflow TFJob to a job spec; report settings without a counterpart"
    )
    imported.add_argument(
        "file", metavar="TFJOB", help="a TFJob of kubeflow.org/v1 (YAML or JSON), or - for standard input"
    )
    entrypoint = "the words of the image's ENTRYPOINT, for containers without a command: 'python /opt/train.py'"
    imported.add_argument("--entrypoint", default="", metavar="WORDS", help=entrypoint)
    imported.set_defaults(command="import")

    schema = commands.add_parser("schema", help="print the JSON Schema of a spec, for editors")
    schema.set_defaults(command="schema")

    secret = commands.add_parser("secret", help="write a random secret for a job's tasks to FILE, unless it has one")
    secret.add_argument("file", metavar="FILE", help="the file that TRAINER_SECRET_FILE names to the tasks")
    secret.add_argument("folders", metavar="FOLDER", nargs="*", help="with --owner: more folders of that user")
    secret.add_argument("--owner", type=int, metavar="UID", help="the user who gets FILE and its folder; for root")
    secret.set_defaults(command="secret")


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
