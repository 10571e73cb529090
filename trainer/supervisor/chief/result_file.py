"""result.json of a successful job."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainer.job.spec import JobSpec
from trainer.model_dir import result
from trainer.model_dir.result import Computed, Ran, Result, Training
from trainer.supervisor.rendezvous.state_machine import Rendezvous


def result_of(
    spec: JobSpec,
    rendezvous: Rendezvous,
    figures: Training | Computed | Ran,
    *,
    seconds: float,
    warnings: list[str],
    versions: dict[str, str],
    key: Mapping[str, object],
) -> Result:
    # The evaluator removes this warning when it has scored the last checkpoint, or replaces it by the reason.
    evaluators = rendezvous.tasks.evaluators if spec.runs.checkpoints else []
    not_scored = [f"{name}: the last checkpoint is not scored yet" for name in evaluators]
    tests = figures.test if isinstance(figures, Training) else {}
    no_numbers = [f"test_{name} is {figure}: no number" for name, figure in tests.items() if not math.isfinite(figure)]
    return Result(
        job=spec.name,
        strategy=spec.strategy,
        figures=figures,
        seconds=round(seconds, 3),
        generations=rendezvous.generation,
        warnings=[*warnings, *no_numbers, *not_scored],
        tasks=dict(sorted(rendezvous.tasks.start_lines.items())),
        events=rendezvous.chronicle.events,
        hangs=rendezvous.gathering.hangs,
        versions=versions,
        compatibility_key={**key, **result.steps_asked(spec)},
        spec=spec.model_dump(mode="json"),
    )
