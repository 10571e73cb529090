"""Maps the queue of a TFJob, Kueue's or Volcano's, to `kubernetes.queue` and `kubernetes.gang` of a job spec."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.tfjob.manifest import ANNOTATIONS, LABELS, POD, Path, Settings, dotted, show
from trainer.tfjob.rules import Groups, Results
from trainer.tfjob.spec import LEFT_OUT, Note, Setting

_KUEUE, _VOLCANO = "kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name"
_GANG, _QUEUE = ("kubernetes", "gang"), ("kubernetes", "queue")


def queues(settings: Settings, groups: Groups) -> Results:
    """The queue, and what admits or starts the job as a whole. Kueue's counts where there are both: the pods of a
    TFJob that waits in it do not exist for a scheduler."""
    labels: list[Path] = [("metadata", "labels", _KUEUE), *((*base, *LABELS, _KUEUE) for base in groups.values())]
    if labels := [path for path in labels if path in settings]:
        yield from _kueue(settings, groups, labels)
    else:
        yield from _volcano(settings, groups)


def _kueue(settings: Settings, groups: Groups, labels: Sequence[Path]) -> Results:
    """The queue that the first of these labels names."""
    name = settings[labels[0]]
    same = tuple(path for path in labels if settings[path] == name)
    yield from _others(settings, labels)
    # The operator's workload is one for Kueue, whatever its types of tasks.
    gang = ((_GANG, "jobset"),) if name and len(groups) > 1 else ()
    some = labels[0][0] != "metadata" and len(labels) < len(groups)
    notes = tuple(Note(path, name, "all tasks wait in this queue here") for path in same if some)
    yield Setting(_QUEUE, name, same, notes, also=gang)


def _volcano(settings: Settings, groups: Groups) -> Results:
    schedulers = [path for base in groups.values() if settings.get(path := (*base, *POD, "schedulerName")) == "volcano"]
    if not schedulers:
        return
    some = len(schedulers) < len(groups)
    notes = tuple(Note(path, settings.pop(path), "places the pods of all tasks here") for path in schedulers)
    yield Setting(_GANG, "volcano", tuple(schedulers), notes if some else ())
    places: list[Path] = [("spec", "runPolicy", "schedulingPolicy", "queue"), ("metadata", "annotations", _VOLCANO)]
    places += [(*base, *ANNOTATIONS, _VOLCANO) for base in groups.values()]
    if places := [path for path in places if path in settings]:
        name = settings[places[0]]
        same = tuple(path for path in places if settings[path] == name)
        yield from _others(settings, places)
        yield Setting(_QUEUE, name, same)


def _others(settings: Settings, places: Sequence[Path]) -> Results:
    """Removes all places of a queue, and reports each whose name differs from the first."""
    first = places[0]
    name = settings[first]
    for path in places:
        if (value := settings.pop(path)) != name:
            yield Note(path, value, f"{LEFT_OUT}a job has one queue, that of {dotted(first)}: {show(name)}")
