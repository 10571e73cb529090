"""The live table of a job, in a notebook or on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.api import started
from trainer.api.job import Job
from trainer.api.overrides import Overrides
from trainer.api.run import Run, attach, find
from trainer.protocol.status import JobStatus
from trainer.targets import base
from trainer.targets.base import JobOverview
from trainer.targets.show.overview import describe

if TYPE_CHECKING:
    from trainer.targets.show.table import Drawing


def watch(
    job: Run | Job | str | Path, target: str | None = None, *, namespace: str | None = None, set: Overrides = ()
) -> None:
    """Shows the live table of a job until it is over; one that has ended is shown once.

    It starts nothing: `watch(load("job.yaml").submit("local"))` starts a job and shows it. The interruption of a
    notebook's cell ends the table, not the job.

    Args:
        job: what `submit` or `attach` returned; a `Job`; or as in `attach`: the path of a spec, a name or a model_dir.
        target: where it runs, as in `attach`.
        namespace: as in `attach`.
        set: as in `attach`.

    Raises:
        UserError, TrainerError: as `attach` and `Run.status`. A job that has failed is shown, and raises nothing.
    """
    if isinstance(job, Run):
        run = job
    elif isinstance(job, Job):
        before = started.last(job.path, base.TARGETS, job.overrides) if target is None and namespace is None else None
        run = find(base.Job(job.name, job.spec), before.target if before else target, namespace)
    else:
        run = attach(job, target, namespace=namespace, set=set)
    with _screen() as show:
        for overview in run.statuses():
            show(draw(overview))


def draw(overview: JobOverview) -> Drawing:
    """The live table while the chief answers, otherwise what `trainer status` prints."""
    from rich.text import Text

    from trainer.targets.show import table

    status = overview.job
    if not isinstance(status, JobStatus):
        return table.Drawing(Text(f"{overview.name}\n{describe(overview)}"))
    return table.render(
        status.job,
        status.strategy,
        [*overview.tasks],
        status,
        status.seconds,
        {name: row.restarts for name, row in overview.tasks.items()},
        notes=[f"{name}: {row.state}: {row.reason}" for name, row in overview.tasks.items() if row.reason],
    )


@contextlib.contextmanager
def _screen() -> Iterator[Callable[[Drawing], object]]:
    """Shows one drawing in the place of the last."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    if not console.is_jupyter:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda drawing: live.update(drawing, refresh=True)
        return
    from IPython.display import DisplayHandle

    place = DisplayHandle()
    place.display(Text())
    with contextlib.suppress(KeyboardInterrupt):
        yield place.update
