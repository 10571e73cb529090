"""`trainer render|submit|status|logs|stacks|debug|delete`: each calls the API and prints the answer."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

from trainer.api import job as api
from trainer.api import run as runs
from trainer.api import started
from trainer.api.places import default
from trainer.api.run import Run
from trainer.cli.shared import print_errors, require_options, warn
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import load_file
from trainer.job.messages import aligned, command_line
from trainer.targets import base
from trainer.targets.base import JobOverview, Submitted
from trainer.targets.show.overview import describe
from trainer.targets.show.stacks import describe as describe_stacks


def render(args: argparse.Namespace) -> int:
    require_options(args)
    profiles = "profile" in base.entry(args.target).options
    jobs, seen = [], set()
    for each in args.specs:
        profile, equals, path = each.rpartition("=") if profiles else ("", "", each)
        if profiles and ((len(args.specs) > 1 and not equals) or profile in seen):
            raise UserError(f"{each!r}: several jobs in one file need one profile each: PROFILE=SPEC")
        seen.add(profile)
        jobs.append((profile, api.read(path, args.set)))
    warn(line for _, job in jobs for line in job.warnings(args.target))
    print(api.render(args.target, jobs), end="")
    return int(Exit.OK)


def submit(args: argparse.Namespace) -> int:
    require_options(args)
    job = api.load(args.spec, args.set)
    warn(job.warnings(args.target))
    if args.dry_run:
        done = job.dry_run(args.target, namespace=args.namespace)
        lines = "\n".join(f"{name}: would be applied" for name in done.objects)
    else:
        run = job.submit(args.target, namespace=args.namespace)
        assert run.submitted
        done = run.submitted
        lines = _submitted(done, _words(args, done))
    warn(done.warnings)
    print(lines)
    return int(Exit.OK)


def status(args: argparse.Namespace) -> int:
    require_options(args)
    if args.spec is None:
        return _list(args)
    try:
        run = attached(args)
        return _watch(run.statuses(), args.output) if args.watch else _show(run.status(), args.output)
    except TrainerError as error:
        if not (hint := _local_hint(args)):
            raise
        raise TrainerError(f"{error}; {hint}", error.code) from None


def logs(args: argparse.Namespace) -> int:
    require_options(args)
    for line in attached(args).logs(args.task, follow=args.follow):
        print(line, flush=args.follow)
    return int(Exit.OK)


def stacks(args: argparse.Namespace) -> int:
    require_options(args)
    print("\n".join(describe_stacks(attached(args).stacks(), args.of)))
    return int(Exit.OK)


def debug(args: argparse.Namespace) -> int:
    require_options(args)
    from trainer.debug.symptoms import plain
    from trainer.targets import evidence

    output = Path(args.output) if args.output else None
    try:
        run = runs.located(args.spec, args.target, namespace=args.namespace, set=args.set)
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


def delete(args: argparse.Namespace) -> int:
    require_options(args)
    if args.target is None:  # a job of this machine is stopped where it runs
        before = started.last(args.spec, base.elsewhere(), args.set or None)
        args.target = before.target if before else default()
    done = attached(args).delete(volumes=args.volumes)
    stays = "; its volume stays, with checkpoints and model; --volumes removes it too" if done.volume_stays else ""
    print(f"{done.job}: deleted{stays}")
    return int(Exit.OK)


def attached(args: argparse.Namespace) -> Run:
    """The job in JOB: without --target and --namespace that of this machine, if one has begun there."""
    return runs.located(args.spec, args.target, namespace=args.namespace, set=args.set)


def _local_hint(args: argparse.Namespace) -> str:
    """Where the status is, if JOB is the spec of a job that runs on this machine and not on the target."""
    from trainer.targets.local import status as local

    if args.target == base.LOCAL or not Path(args.spec).is_file():
        return ""
    try:
        return local.hint(load_file(args.spec, args.set).directory)
    except UserError:
        return ""  # the error to be reported


def _list(args: argparse.Namespace) -> int:
    if args.watch:
        raise UserError("JOB: is missing: --watch follows one job; `trainer status` lists them")
    if args.set:
        raise UserError("JOB: is missing: --set changes the values of a spec")
    rows = _listed(args)
    titles = tuple(dict.fromkeys(["job", "phase", "submitted", *(name for row in rows for name in row)]))
    table = [titles, *(tuple(row[name] for name in titles) for row in rows)]
    print(json.dumps(rows, indent=2) if args.output == "json" else "\n".join(aligned(table)))
    return int(Exit.OK)


def _listed(args: argparse.Namespace) -> list[dict[str, str]]:
    """The jobs of a target; without one those of the cluster and those that were started from this machine.

    Raises:
        TrainerError: the target does not answer, and no job was started from this machine.
    """
    if args.target or args.namespace:
        return [asdict(each) for each in runs.jobs(args.target or default(), namespace=args.namespace)]
    here = [each for each in started.known() if each.target in base.TARGETS and not base.entry(each.target).keeps_names]
    rows = []
    for each in here:
        with contextlib.suppress(TrainerError, OSError):  # its files or containers are gone
            phase = runs.located(each.spec, each.target, set=each.overrides).status().phase
            when = datetime.fromtimestamp(each.time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            rows.append({"job": each.job, "phase": phase, "submitted": when, "target": each.target})
    try:
        rows += [{**asdict(each), "target": default()} for each in runs.jobs(default())]
    except TrainerError as error:
        if not rows:
            asked = f"asked: {default()}, and this machine, where no job was started"
            raise TrainerError(f"{error}; {asked}", error.code) from None
        print_errors([f"warning: {default()} was asked too: {error}"])
    return rows


# Output. ----------------------------------------------------------------------------------------------


def _show(overview: JobOverview, output: str) -> int:
    print(json.dumps(_plain(overview), indent=2) if output == "json" else describe(overview))
    return overview.code


def _watch(statuses: Iterator[JobOverview], output: str) -> int:
    """Prints the status whenever it has changed; on a terminal it replaces the previous one."""
    last, code = "", 0
    for overview in statuses:
        text = json.dumps(_plain(overview)) if output == "json" else describe(overview)
        if text != last:
            clear = "\033[H\033[2J" if sys.stdout.isatty() and output != "json" else ""
            print(f"{clear}{text}", flush=True)
        last, code = text, overview.code
    return code


def _submitted(done: Submitted, words: str) -> str:
    objects = f", {len(done.objects)} objects" if done.objects else ""
    news = f"{done.job}: submitted{objects}" if done.new else f"{done.job}: already exists"
    restored = f"; made again: {', '.join(done.restored)}" if done.restored else ""
    if done.ended:
        return f"{news}, and is {done.ended}{restored}; to run it again: trainer delete {words}"
    return f"{news}{restored}; next: trainer status --watch {words}"


def _words(args: argparse.Namespace, done: Submitted) -> str:
    """The arguments that identify a job in other commands."""
    target = [] if args.target == default() else ["--target", args.target]
    if done.namespace:
        return command_line([*target, "--namespace", done.namespace, done.job], [])
    return command_line([*target, args.spec], args.set)


def _plain(overview: JobOverview) -> dict[str, object]:
    """Converts to JSON, without values that are not known."""
    fields = _known(asdict(replace(overview, job=None, tasks={})))
    rows = {name: _known(asdict(row)) for name, row in overview.tasks.items()}
    return {**fields, "tasks": rows, "job": overview.job.document() if overview.job else {}}


def _known(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
