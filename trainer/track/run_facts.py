"""What an experiment tracker shows of a job besides its figures: parameters and tags."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from trainer import __version__
from trainer.job import program
from trainer.job.derived import batch_sizes, learning_rate, replicas_in_sync
from trainer.job.errors import TrainerError
from trainer.job.spec import JobSpec
from trainer.track.story import Story

GIT_SECONDS = 5.0
_END = ("trainer.exit_code", "trainer.message")
"""Tags of an end."""


def params(spec: JobSpec) -> dict[str, str]:
    """The settings by which runs are compared, mostly by their paths in the spec. Not `env`, which may be secret."""
    counts = spec.tasks.counts()
    found: dict[str, object] = {"strategy": spec.strategy, **{f"tasks.{name}": count for name, count in counts.items()}}
    if spec.program:
        return _as_text({**found, "program": shlex.join(spec.program)})
    found |= {"workload": spec.workload, **{f"settings.{name}": value for name, value in spec.settings.items()}}
    if not spec.traits.trains:
        return _as_text(found)
    train = spec.train.model_dump(exclude_none=True)
    # Those that change the weights a job ends with, as in the compatibility key.
    communication = spec.communication.model_dump(exclude={"implementation", "bytes_per_pack"}, exclude_none=True)
    return _as_text(
        {
            **found,
            "api": spec.api,
            "dataset": spec.dataset,
            **{f"train.{name}": value for name, value in train.items()},
            **{f"communication.{name}": value for name, value in communication.items()},
            "replicas_in_sync": replicas_in_sync(spec, counts),
            "global_batch": batch_sizes(spec, counts)[0],
            "learning_rate": learning_rate(spec, counts),
        }
    )


def _as_text(values: dict[str, object]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
        if value is not None
    }


def tags(spec: JobSpec) -> dict[str, str]:
    """Tags of a run. Runs git for some milliseconds, where the code is in a repository of it."""
    name = shlex.join(spec.program) if spec.program else spec.workload
    commit = _commit(spec)
    return {
        "trainer.job": spec.name,
        "trainer.version": __version__,
        "trainer.model_dir": spec.directory,
        "mlflow.source.name": name,
        "mlflow.source.type": "JOB",
        **({"mlflow.source.git.commit": commit} if commit else {}),
    }


def story_tags(story: Story) -> dict[str, str]:
    """Tags that change while the job runs, and those of its end."""
    found = {"trainer.generations": str(story.generations), "trainer.restarts": str(story.restarts)}
    if story.lost:
        found["trainer.lost"] = story.lost
    if story.ended is None:
        return found
    exit_code, message = _END
    seconds = max(0.0, story.ended.time - story.began)
    return {**found, exit_code: str(story.code), message: story.message, "trainer.seconds": f"{seconds:.3f}"}


def no_longer_true(known: Mapping[str, str]) -> dict[str, str]:
    """Empty tags in place of those of an earlier end, for a job that runs again."""
    return {name: "" for name in _END if known.get(name)}


def _commit(spec: JobSpec) -> str:
    """The commit of the job's code; empty if it is in no repository, or git is not installed."""
    with contextlib.suppress(OSError, TrainerError, subprocess.SubprocessError):
        folder = Path(spec.workload).parent if spec.workload.endswith(".py") else program.folder(spec)
        if spec.program or spec.workload.endswith(".py"):
            words = ["git", "-C", str(folder), "rev-parse", "--verify", "HEAD"]
            return subprocess.run(words, capture_output=True, text=True, check=True, timeout=GIT_SECONDS).stdout.strip()
    return ""
