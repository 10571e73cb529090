"""A result as rows of a name and a text, on a terminal and on the page."""

from __future__ import annotations

import itertools
import textwrap

from trainer.job.messages import digits
from trainer.model_dir.result import EQUAL, Computed, Ran, Result, Training

FIGURES_SHOWN = 10
"""Maximum number of test metrics in a summary; result.json has all."""


def rows_of(job_result: Result) -> list[tuple[str, str]]:
    """The main figures of a result, with their names; missing ones are left out."""
    shown: dict[str, object] = {"status": job_result.status}
    bad: list[tuple[str, str]] = []
    if isinstance(job_result.figures, Training):
        tests = itertools.islice(job_result.figures.test.items(), FIGURES_SHOWN)
        shown |= {"steps": job_result.figures.steps, "skipped_batches": job_result.figures.skipped_batches}
        shown["stopped_early"] = job_result.figures.stopped_early
        shown["bad_records"] = job_result.figures.bad_records or None
        shown |= {f"test_{name}": value for name, value in tests}
        shown["examples_per_second"] = job_result.figures.examples_per_second
        shown["seconds_to_first_step"] = job_result.figures.seconds_to_first_step
        if best := job_result.figures.best:
            shown["best"] = f"{best.metric}={digits(best.value)} at step {best.step}"
        bad = [(f"export/{name}", verdict) for name, verdict in job_result.figures.exports.items() if verdict != EQUAL]
        shown["exports"] = EQUAL if job_result.figures.exports and not bad else None
    shown["generations"] = job_result.generations
    if isinstance(job_result.figures, Computed):
        values = job_result.figures.result
        shown |= {name: value for name, value in values.items() if isinstance(value, (bool, int, float, str))}
    if isinstance(job_result.figures, Ran):
        reported = itertools.islice(job_result.figures.reported.items(), FIGURES_SHOWN)
        shown |= {"steps": job_result.figures.steps or None, **dict(reported)}
    warnings = [("warning", text) for text in job_result.warnings]
    return [*((name, figure(value)) for name, value in shown.items() if value is not None), *bad, *warnings]


def figure(value: object) -> str:
    """Formats a value for people: four significant digits, thousands with commas."""
    if isinstance(value, float):
        return digits(value, thousands=",")
    return f"{value:,}" if isinstance(value, int) else textwrap.shorten(str(value), 200)
