"""`trainer render|submit|status|logs|delete`: each calls a target and prints the answer."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from trainer.cli.specs import load, open_target, warn, warn_of
from trainer.job import program
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import load_file
from trainer.job.names import DNS_LABEL
from trainer.job.spec import JobSpec
from trainer.protocol.status import JobStatus, TaskRow
from trainer.targets import base, summary
from trainer.targets.base import ContainerState, Job, JobOverview, Submitted
from trainer.targets.text import aligned, command_line

WATCH_SECONDS = 2.0


def render(args: argparse.Namespace) -> int:
    target = open_target(args)
    profiles = "profile" in base.TARGETS[args.target].options
    jobs, seen = [], set()
    for each in args.specs:
        profile, equals, path = each.rpartition("=") if profiles else ("", "", each)
        if profiles and ((len(args.specs) > 1 and not equals) or profile in seen):
            raise UserError(f"{each!r}: several jobs in one file need one profile each: PROFILE=SPEC")
        seen.add(profile)
        spec = load_file(path, args.set)
        program.require_scripts(spec)
        jobs.append((profile, spec))
    warn(*(spec for _, spec in jobs), target=target)
    print(target.render(jobs, command_line(["trainer", "render", args.target, *args.specs], args.set)), end="")
    return int(Exit.OK)


def submit(args: argparse.Namespace) -> int:
    target = open_target(args)
    spec = load(args.spec, args.set)
    warn(spec, target=target)
    command = command_line(["trainer", "submit", "--target", args.target, args.spec], args.set)
    done = target.submit(spec, command, args.dry_run)
    warn_of(done.warnings)
    if args.dry_run:
        print("\n".join(f"{name}: would be applied" for name in done.objects))
    else:
        print(_submitted(done, _words(args, done)))
    return int(Exit.OK)


def status(args: argparse.Namespace) -> int:
    if (here := _local_job(args)) is not None:
        from trainer.targets.local import status as local

        return _show_status(lambda: local.status(*here), args)
    args.target = args.target or next(iter(base.TARGETS))
    try:
        return _status_of_target(args)
    except TrainerError as error:
        if not (hint := _local_hint(args)):
            raise
        raise TrainerError(f"{error}; {hint}", error.code) from None


def _status_of_target(args: argparse.Namespace) -> int:
    target = open_target(args)
    if args.spec is None and args.watch:
        raise UserError("JOB: is missing: --watch follows one job; `trainer status` lists them")
    if args.spec is None and args.set:
        raise UserError("JOB: is missing: --set changes the values of a spec")
    if args.spec is None:
        rows = [asdict(each) for each in target.jobs()]
        table = [("job", "phase", "submitted"), *((row["job"], row["phase"], row["submitted"]) for row in rows)]
        print(json.dumps(rows, indent=2) if args.output == "json" else "\n".join(aligned(table)))
        return int(Exit.OK)
    job = _job(args)
    return _show_status(lambda: target.status(job), args)


def logs(args: argparse.Namespace) -> int:
    for line in open_target(args).logs(_job(args), args.task, args.follow):
        print(f"{line.task:<11} | {line.text}", flush=args.follow)
    return int(Exit.OK)


def delete(args: argparse.Namespace) -> int:
    done = open_target(args).delete(_job(args), args.volumes)
    stays = "; its volume stays, with checkpoints and model; --volumes removes it too" if done.volume_stays else ""
    print(f"{done.job}: deleted{stays}")
    return int(Exit.OK)


def _local_job(args: argparse.Namespace) -> tuple[str, JobSpec | None] | None:
    """The model_dir, and the spec if given, of a job on this machine, if `--target local` is given, or JOB is a
    model_dir and no place is named; local is no target."""
    from trainer.targets.local import status as local

    asked, unnamed = args.target == base.LOCAL, args.target is None and args.namespace is None
    if asked and args.namespace:
        raise UserError("--namespace: is not an option of --target local")
    if asked and args.spec is None:
        raise UserError("JOB: is missing: the path of a job spec, or a model_dir")
    if args.spec is not None and Path(args.spec).is_dir() and (asked or (unnamed and local.is_model_dir(args.spec))):
        if args.set:
            raise UserError(f"--set: {args.spec!r} is a folder, and --set changes the values of a spec")
        return str(args.spec), None
    spec = load_file(args.spec, args.set) if asked else None
    return (spec.directory, spec) if spec else None


def _local_hint(args: argparse.Namespace) -> str:
    """Where the status is, if JOB is the spec of a job that runs on this machine and not on the target."""
    from trainer.targets.local import status as local

    try:
        return local.hint(load_file(args.spec, args.set).directory) if Path(args.spec or "").is_file() else ""
    except UserError:
        return ""  # the error to be reported


def _show_status(ask: Callable[[], JobOverview], args: argparse.Namespace) -> int:
    if args.watch:
        return _watch(ask, args.output)
    found = ask()
    print(json.dumps(_plain(found), indent=2) if args.output == "json" else describe(found))
    return found.code


def _watch(ask: Callable[[], JobOverview], output: str) -> int:
    """Prints the status whenever it has changed; on a terminal it replaces the previous one."""
    last = ""
    while True:
        found = ask()
        text = json.dumps(_plain(found)) if output == "json" else describe(found)
        if text != last:
            clear = "\033[H\033[2J" if sys.stdout.isatty() and output != "json" else ""
            print(f"{clear}{text}", flush=True)
        if found.phase in ("done", "failed"):
            return found.code
        last = text
        time.sleep(WATCH_SECONDS)


def _job(args: argparse.Namespace) -> Job:
    """The job in JOB, which is a name, or a spec that has one."""
    if Path(args.spec).is_file() or not DNS_LABEL.fullmatch(args.spec):
        spec = load_file(args.spec, args.set)
        return Job(spec.name, spec)
    if args.set:
        raise UserError(f"--set: {args.spec!r} is a job's name, and --set changes the values of a spec; give its file")
    return Job(args.spec)


# Output. ----------------------------------------------------------------------------------------------


def _submitted(done: Submitted, words: str) -> str:
    objects = f", {len(done.objects)} objects" if done.objects else ""
    news = f"{done.job}: submitted{objects}" if done.new else f"{done.job}: already exists"
    if done.ended:
        return f"{news}, and is {done.ended}; to run it again: trainer delete {words}"
    return f"{news}; next: trainer status --watch {words}"


def _words(args: argparse.Namespace, done: Submitted) -> str:
    """The arguments that identify a job in other commands."""
    target = [] if args.target == next(iter(base.TARGETS)) else ["--target", args.target]
    if done.namespace:
        return command_line([*target, "--namespace", done.namespace, done.job], [])
    return command_line([*target, args.spec], args.set)


def _plain(found: JobOverview) -> dict[str, object]:
    """Converts to JSON, without values that are not known."""
    own = _known(asdict(replace(found, job=None, tasks={})))
    rows = {name: _known(asdict(row)) for name, row in found.tasks.items()}
    return {**own, "tasks": rows, "job": found.job.document() if found.job else {}}


def _known(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def describe(found: JobOverview) -> str:
    """A job's status as text: its phase and figures, and a line per task."""
    head, rows = [("phase", found.phase)], {}
    if isinstance(found.job, JobStatus):
        head += _figures(found.job)
        rows = found.job.tasks
    elif found.job:
        head += summary.figures(found.job)
    texts = {"last line": found.last_line, "next": found.next, "unreadable": found.unreadable}
    head += [(name, text) for name, text in texts.items() if text]
    table = ["", *aligned(_table(found.tasks, rows))] if found.tasks else []
    return "\n".join([*aligned(head), *table])


def _figures(job: JobStatus) -> list[tuple[str, str]]:
    names = ("step", "loss", "examples_per_second")
    shown = {**{name: job.figures.get(name) for name in names}, "last_checkpoint": job.last_checkpoint}
    rows = {name: summary.figure(value) for name, value in shown.items() if value is not None}
    if "step" in rows and (total := job.figures.get("steps")):
        rows["step"] += f" of {summary.figure(total)}"
    waiting = [("waiting for", job.waiting_for)] if job.waiting_for else []
    return [*rows.items(), *waiting, *(("warning", text) for text in job.warnings)]


def _table(tasks: Mapping[str, ContainerState], known: Mapping[str, TaskRow]) -> list[tuple[str, ...]]:
    """A row per task, from the target and from the chief's status; without empty columns."""
    rows: list[tuple[str, ...]] = [
        ("task", "state", "code", "node", "step", "examples/s", "restarts", "generation", "reason")
    ]
    for name, row in tasks.items():
        own = known.get(name) or TaskRow(state="absent", figures={})
        step, rate = (own.figures.get(name) for name in ("step", "examples_per_second"))
        cells = (row.code, row.node, step, rate, row.restarts + own.restarts, own.generation, row.reason)
        rows.append((name, row.state, *map(_cell, cells)))
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True))


def _cell(value: object) -> str:
    rounded = round(value) if isinstance(value, float) and math.isfinite(value) else value
    return summary.figure(rounded) if value else ""
