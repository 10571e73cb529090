"""`trainer submit|status|logs|delete`: what they ask a target, and what they print."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.job.errors import Exit, UserError
from trainer.job.load import load_file
from trainer.job.names import DNS_LABEL
from trainer.job.spec import JobSpec
from trainer.targets import outside, view
from trainer.targets.text import aligned, command_line


def run(args: argparse.Namespace) -> int:
    """The command that `args.command` names, on `args.target`; returns the exit code.

    Args:
        args: as the parser makes them; `load` reads the spec that they name.
    """
    if args.target == "compose":
        for name in ("namespace", "dry_run", "watch", "task"):
            if getattr(args, name, None):
                raise UserError(f"--{name.replace('_', '-')}: means nothing to compose; it is for --target kubernetes")
    code: int = {"submit": submit, "status": status, "logs": logs, "delete": delete}[args.command](args)
    return code


def submit(args: argparse.Namespace) -> int:
    command = command_line(["trainer", "submit", "--target", args.target, args.spec], args.set)
    spec = _spec(args)
    outside.warn(spec)
    if args.target == "compose":
        from trainer.targets.compose import target as compose_target

        compose_target.submit(spec, command)
        return int(Exit.OK)
    from trainer.targets.kubernetes import target as kubernetes_target

    print("\n".join(asyncio.run(kubernetes_target.submit(spec, args.namespace, command, args.dry_run))))
    return int(Exit.OK)


def status(args: argparse.Namespace) -> int:
    if args.target == "compose":
        from trainer.targets.compose import target as compose_target

        return _print_status(compose_target.status(_spec(args)), args.output)
    from trainer.targets.kubernetes import target as kubernetes_target

    if args.spec is None and args.watch:
        raise UserError("JOB: is missing: --watch follows one job; `trainer status` lists them")
    if args.spec is None and args.set:
        raise UserError("JOB: is missing: --set changes the values of a spec")
    if args.spec is None:
        rows = asyncio.run(kubernetes_target.jobs(args.namespace))
        table = [("job", "phase", "submitted"), *((row["job"], row["phase"], row["submitted"]) for row in rows)]
        print(json.dumps(rows, indent=2) if args.output == "json" else "\n".join(aligned(table)))
        return int(Exit.OK)
    if not args.watch:
        return _print_status(asyncio.run(kubernetes_target.status(_name(args), args.namespace)), args.output)
    return asyncio.run(_watch(args))


async def _watch(args: argparse.Namespace) -> int:
    """A new text whenever something has changed; on a terminal in place of the one before."""
    from trainer.targets.kubernetes import target as kubernetes_target

    code, last = int(Exit.OK), ""
    async for found in kubernetes_target.watch(_name(args), args.namespace):
        text = json.dumps(found) if args.output == "json" else describe(found)
        if text != last:
            clear = "\033[H\033[2J" if sys.stdout.isatty() and args.output != "json" else ""
            print(f"{clear}{text}", flush=True)
        code, last = found["code"], text
    return code


def logs(args: argparse.Namespace) -> int:
    if args.target == "compose":
        from trainer.targets.compose import target as compose_target

        compose_target.logs(_spec(args), args.follow)
        return int(Exit.OK)
    return asyncio.run(_logs(args))


async def _logs(args: argparse.Namespace) -> int:
    from trainer.targets.kubernetes import target as kubernetes_target

    async for task, line in kubernetes_target.logs(_name(args), args.namespace, args.task, args.follow):
        print(f"{task:<11} | {line}", flush=args.follow)
    return int(Exit.OK)


def delete(args: argparse.Namespace) -> int:
    if args.target == "compose":
        from trainer.targets.compose import target as compose_target

        compose_target.delete(_spec(args), args.volumes)
        return int(Exit.OK)
    from trainer.targets.kubernetes import target as kubernetes_target

    print("\n".join(asyncio.run(kubernetes_target.delete(_name(args), args.namespace, args.volumes))))
    return int(Exit.OK)


def describe(found: Mapping[str, Any]) -> str:
    """A job's status as text: where it is, and a line per task."""
    job = found["job"]
    head = [("phase", found["phase"]), *view.figures(job)]
    head += [
        (name, view.figure(job[name])) for name in ("step", "loss", "last_checkpoint") if job.get(name) is not None
    ]
    head += [("waiting for", str(job["waiting_for"]))] if job.get("waiting_for") else []
    head += [("said", found["said"])] if found.get("said") else []
    told = rows if isinstance(rows := job.get("tasks"), dict) else {}
    return "\n".join([*aligned(head), "", *aligned(_table(found["tasks"], told))])


def _table(tasks: Mapping[str, Mapping[str, Any]], told: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row per task, of what the target knows and what the chief tells; no column in which no task says anything."""
    rows = [("task", "state", "code", "node", "step", "examples/s", "restarts", "generation", "why")]
    for name, row in tasks.items():
        # In result.json a task has its start line there.
        mine = known if isinstance(known := told.get(name), dict) else {}
        restarts = row["restarts"] + (own if isinstance(own := mine.get("restarts"), int) else 0)
        cells = (row["code"], row.get("node"), mine.get("step"), mine.get("examples_per_second"), restarts)
        rows.append((name, row["state"], *map(_cell, (*cells, mine.get("generation"), row.get("why")))))
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True))


def _cell(value: object) -> str:
    rounded = round(value) if isinstance(value, float) and math.isfinite(value) else value
    return view.figure(rounded) if value else ""


def _print_status(found: Mapping[str, Any], output: str) -> int:
    print(json.dumps(found, indent=2) if output == "json" else describe(found))
    return int(found["code"])


def _spec(args: argparse.Namespace) -> JobSpec:
    if args.spec is None:
        raise UserError("JOB: is missing: the path of a job spec")
    spec: JobSpec = args.load(args)
    return spec


def _name(args: argparse.Namespace) -> str:
    """JOB is a name, or a spec that has one."""
    if Path(args.spec).is_file() or not DNS_LABEL.fullmatch(args.spec):
        return load_file(args.spec, args.set).name
    if args.set:
        raise UserError(f"--set: {args.spec!r} is a job's name, and --set changes the values of a spec; give its file")
    return str(args.spec)
