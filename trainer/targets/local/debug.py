"""What a job on this machine has left for `trainer debug`: its model_dir, and its chief's status while it runs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from trainer import host
from trainer.debug import files
from trainer.debug.archive import Archive
from trainer.debug.facts import Facts, Log, lines
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.model_dir import layout
from trainer.model_dir import state as job_state
from trainer.model_dir.files import read_json
from trainer.targets import debug
from trainer.targets.local import output, status


def collect(archive: Archive, name: str, model_dir: str, spec: JobSpec | None) -> Facts:
    """Adds all that there is of a job to the archive.

    Args:
        name: the job's, or if only its model_dir is known that.

    Raises:
        UserError: no job has begun in that model_dir.
    """
    facts = Facts(name, "on this machine", chief=_chief(spec))
    _learn(archive, model_dir)
    _ask(archive, facts, model_dir, spec)
    if Path(model_dir).is_dir():
        files.add_folder(archive, facts, Path(model_dir))
    facts.logs = [_of_last_run(log) for log in facts.logs]
    _end(facts)
    archive.document("machine.json", _machine(model_dir))
    return facts


def _of_last_run(log: Log) -> Log:
    """The part of a job's output that follows its last start."""
    if not log.path.endswith(f"{output.NAME}.txt"):
        return log
    begin = log.text.rfind(output.STARTS)
    return replace(log, text=log.text[log.text.rfind("\n", 0, begin) + 1 :]) if begin >= 0 else log


def _end(facts: Facts) -> None:
    """Takes over how `trainer local` has ended, if the chief has left no word on it, or not the last one."""
    told = [each.text for log in facts.logs for each in lines(log) if each.task == "local"]
    end = output.ENDED.fullmatch(told[-1]) if told else None
    if end and int(end[1]) and (facts.phase != "failed" or not facts.message):
        facts.phase, facts.code, facts.message = "failed", int(end[1]), end[2] or facts.message


def _chief(spec: JobSpec | None) -> str:
    return next(task.name for task in tasks_of(spec) if task.is_chief) if spec else "chief:0"


def _learn(archive: Archive, model_dir: str) -> None:
    """The spec of the job may be in its files only."""
    for path in (layout.result(model_dir), Path(model_dir, layout.HISTORY)):
        archive.redactor.document(read_json(path))


def _ask(archive: Archive, facts: Facts, model_dir: str, spec: JobSpec | None) -> None:
    try:
        found = status.status(model_dir, spec)
    except UserError as error:
        text = archive.redactor.text(str(error))
        archive.text("status.txt", f"{text}\n")
        if job_state.in_use(model_dir):
            facts.phase, facts.waiting_for = "unanswered", text.partition(": ")[2]
        elif status.is_model_dir(model_dir):
            facts.phase, facts.remarks = "vanished", [text]
        elif spec is None:
            raise
        else:
            facts.problems = [text]
        return
    debug.take(archive, facts, found)


def _machine(model_dir: str) -> dict[str, object]:
    there = next(each for each in (Path(model_dir).absolute(), *Path(model_dir).absolute().parents) if each.exists())
    disk = shutil.disk_usage(there)
    return {
        "versions": host.versions(),
        "system": " ".join(os.uname()[each] for each in (0, 2, 4)),
        "cpus": host.available_cpus(),
        "memory_limit_bytes": host.memory_limit(),
        "free_memory_bytes": host.free_memory(),
        "up_seconds": round(host.uptime()),
        "model_dir": {"path": str(there), "total_bytes": disk.total, "free_bytes": disk.free},
    }
