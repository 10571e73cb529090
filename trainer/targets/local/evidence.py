"""What a job on this machine has left for `trainer debug`: its model_dir, and its chief's status while it runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainer import host
from trainer.debug import files
from trainer.debug.archive import Archive
from trainer.debug.evidence import Evidence, Log, TaskEvidence, lines
from trainer.debug.history import is_error
from trainer.job import load
from trainer.job.cluster import chief_of
from trainer.job.derived import computing_tasks
from trainer.job.errors import Exit, UserError
from trainer.job.messages import counted
from trainer.job.spec import JobSpec
from trainer.model_dir import layout, rotation
from trainer.model_dir import state as job_state
from trainer.model_dir.files import read_json
from trainer.targets.evidence import take
from trainer.targets.local import output, status


def collect(archive: Archive, name: str, model_dir: str, spec: JobSpec | None) -> Evidence:
    """Adds all that there is of a job to the archive.

    Args:
        name: the job's, or if only its model_dir is known that.

    Raises:
        UserError: no job has begun in that model_dir.
    """
    evidence = Evidence(name, "on this machine", chief=_chief(spec))
    if Path(model_dir).is_dir() and not os.access(model_dir, os.R_OK | os.X_OK):
        owner = Path(model_dir).stat().st_uid
        evidence.phase = "unreadable"
        evidence.problems = [f"model_dir: {model_dir}: cannot be read: run `trainer debug` as its owner, user {owner}"]
        return evidence
    _learn(archive, model_dir)
    _ask(archive, evidence, model_dir, spec)
    if Path(model_dir).is_dir():
        files.add_folder(archive, evidence, Path(model_dir))
    evidence.logs = _of_last_run(evidence.logs)
    _end(evidence)
    if (
        evidence.problems and evidence.logs
    ):  # tasks that another program has started, of which the chief did not get far
        evidence.phase, evidence.problems = "failed", ()
    if known := spec or _spec_of(model_dir):
        evidence.remarks += _crowded(known)
    archive.document("machine.json", _machine(model_dir))
    return evidence


def _chief(spec: JobSpec | None) -> str:
    return chief_of(spec).name if spec else "chief:0"


def _learn(archive: Archive, model_dir: str) -> None:
    """The spec of the job may be in its files only."""
    for path in (layout.result(model_dir), layout.spec(model_dir), layout.history(model_dir)):
        archive.redactor.document(read_json(path))


def _ask(archive: Archive, evidence: Evidence, model_dir: str, spec: JobSpec | None) -> None:
    try:
        overview = status.status(model_dir, spec)
    except UserError as error:
        text = archive.clean(str(error))
        archive.text("status.txt", f"{text}\n")
        if job_state.in_use(model_dir):
            evidence.phase, evidence.waiting_for = "unanswered", text.partition(": ")[2]
        elif status.is_model_dir(model_dir):
            evidence.phase, evidence.remarks = "vanished", [text]
        elif spec is None:
            raise
        else:
            evidence.problems = [*_unusable(model_dir), text]
            evidence.code = int(Exit.USER) if len(evidence.problems) > 1 else None
        return
    take(archive, evidence, overview)


def _unusable(model_dir: str) -> list[str]:
    """Why no job can begin in a folder: the tasks of one that tried could not keep what they logged there."""
    there = _nearest(model_dir)
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return []
    return [f"model_dir: {model_dir}: cannot be written: {there} {_what_it_is(there)}"]


def _what_it_is(path: Path) -> str:
    return f"belongs to user {path.stat().st_uid}, or is read-only" if path.is_dir() else "is no folder"


def _nearest(path: str) -> Path:
    """A path, or the first one above it that exists."""
    absolute = Path(path).absolute()
    return next(each for each in (absolute, *absolute.parents) if os.access(each, os.F_OK))


def _of_last_run(logs: Sequence[Log]) -> list[Log]:
    """The logs, without what `trainer local` has kept of earlier runs."""
    by_name = {Path(log.path).name.removesuffix(".txt"): log for log in logs}
    current, earlier = by_name.get(output.NAME), by_name.get(rotation.earlier(Path(output.NAME)).name)
    others = [log for log in logs if log not in (current, earlier)]
    began_before = current is None or output.STARTS not in current.text
    kept = [log for log in ((earlier, current) if began_before else (current,)) if log]
    return [*others, *(replace(log, text=_since_start(log.text)) for log in kept)]


def _since_start(text: str) -> str:
    begin = text.rfind(output.STARTS)
    return text[text.rfind("\n", 0, begin) + 1 :] if begin >= 0 else text


def _end(evidence: Evidence) -> None:
    """Takes over how `trainer local` has ended, and its tasks."""
    told = [each for log in evidence.logs for each in lines(log)]
    launcher = [each for each in told if each.task == "local"]
    end = output.ENDED.fullmatch(launcher[-1].text) if launcher else None
    if not end:
        return
    evidence.moments += launcher
    for each in launcher:
        if task := output.TASK_ENDED.fullmatch(each.text):
            evidence.tasks[task[1]] = TaskEvidence("ended", int(task[2]) or None, ended=each.time)
    if evidence.tasks and evidence.chief not in evidence.tasks:
        evidence.chief = "worker:0"
    if int(end[1]) and not evidence.message:
        # Its line names the task that has ended. That task's own line has the reason, unless it was killed.
        explained = any(is_error(each.text) for each in told)
        evidence.phase, evidence.code, evidence.message = "failed", int(end[1]), "" if explained else end[2] or ""


def _spec_of(model_dir: str) -> JobSpec | None:
    """The spec of a job that has succeeded, perhaps of another version."""
    spec = read_json(layout.result(model_dir)).get("spec")
    try:
        return load.build(spec) if isinstance(spec, dict) else None
    except UserError:
        return None


def _crowded(spec: JobSpec) -> list[str]:
    computing, cpus = computing_tasks(spec, spec.tasks.counts()), host.available_cpus()
    return (
        [f"{computing} tasks compute on {counted(cpus, 'core')}: more workers than cores"] if computing > cpus else []
    )


def _machine(model_dir: str) -> dict[str, object]:
    there = _nearest(model_dir)
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
