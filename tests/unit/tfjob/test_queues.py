"""Queues and gangs of a TFJob: Kueue's and Volcano's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tfjob.documents import LEFT, WORKER, convert, job, replica
from trainer.job.load import build
from trainer.targets.kubernetes import render as kubernetes

KUEUE, VOLCANO = "kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name"


def queued(of_job: Any = None, run: Any = None, name: str = "j", **types: Any) -> Any:
    """A TFJob with a label of Kueue's, of itself and of its types: (label, further keys of the pod)."""
    made = {}
    for key, (label, pod) in types.items():
        made[key] = replica(pod={k: v for k, v in pod.items() if k != "annotations"})
        labels = {KUEUE: label} if label else {}
        made[key]["template"]["metadata"] = {"labels": labels, "annotations": pod.get("annotations", {})}
    document = job(name=name, run=run, **made)
    document["metadata"]["labels"] = {KUEUE: of_job} if of_job else {}
    return document


def about_queues(document: Any) -> tuple[dict[str, Any], list[str]]:
    """What the spec has of queues, and the notes about them. It can be rendered."""
    raw, notes = convert(document)
    kubernetes.render(build(raw), "x")
    found = {key: raw["kubernetes"][key] for key in ("gang", "queue") if key in raw["kubernetes"]}
    words = ("queue-name", "schedulerName", "schedulingPolicy")
    return found, [note for note in notes if any(word in note for word in words)]


JOBSET = {"gang": "jobset", "queue": "q"}
ALL_WAIT = f"{{}}.template.metadata.labels.{KUEUE}: 'q': all tasks wait in this queue here"


@pytest.mark.parametrize(
    ("document", "found", "notes"),
    [
        (queued("q", Worker=("", {}), PS=("", {})), JOBSET, []),
        (queued(Worker=("q", {}), PS=("q", {})), JOBSET, []),
        (queued("q", Worker=("q", {}), PS=("q", {})), JOBSET, []),
        (queued(Worker=("q", {})), {"queue": "q"}, []),
        (queued(Worker=("q", {}), PS=("", {})), JOBSET, [f"spec.tfReplicaSpecs.{ALL_WAIT.format('Worker')}"]),
        (
            queued("q", Worker=("q", {}), PS=("r", {})),
            JOBSET,
            [f"spec.tfReplicaSpecs.PS.template.metadata.labels.{KUEUE}: 'r': {LEFT}a job has one queue, that of "
             f"metadata.labels.{KUEUE}: 'q'"],
        ),
        (
            queued("?", Worker=("", {}), PS=("", {})),
            {},
            [f"metadata.labels.{KUEUE}: '?': {LEFT}string should match pattern "
             "'^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$'"],
        ),
    ],
)  # fmt: skip
def test_the_queue_of_kueue_is_that_of_the_job(document: Any, found: Any, notes: list[str]) -> None:
    assert about_queues(document) == (found, notes)


def test_a_name_that_is_too_long_for_a_job_set_leaves_out_the_queue_with_it() -> None:
    name = "n" * (63 - len("-worker-0"))
    found, notes = about_queues(queued("q", name=name, Worker=("", {}), PS=("", {})))
    assert found == {}
    (note,) = notes
    why = f"{LEFT}it needs kubernetes.gang: jobset; name: '{name}': {name}-worker-0-0 would have 65 characters, "
    assert note.startswith(f"metadata.labels.{KUEUE}: 'q': {why}")
    # One Job needs no JobSet.
    assert about_queues(queued("q", name=name, Worker=("", {}))) == ({"queue": "q"}, [])


BY_VOLCANO = {"schedulerName": "volcano"}
ANNOTATED = {**BY_VOLCANO, "annotations": {VOLCANO: "q"}}
POLICY = {"schedulingPolicy": {"queue": "q"}}
NO_VOLCANO = (
    f"spec.runPolicy.schedulingPolicy.queue: 'q': {LEFT}of a gang scheduler; set kubernetes.queue with kubernetes.gang"
    ": volcano if Volcano has such a queue, or with kubernetes.gang: jobset if Kueue has such a local queue"
)


@pytest.mark.parametrize(
    ("document", "found", "notes"),
    [
        (queued(run=POLICY, Worker=("", BY_VOLCANO), PS=("", BY_VOLCANO)), {"gang": "volcano", "queue": "q"}, []),
        (queued(Worker=("", ANNOTATED), PS=("", ANNOTATED)), {"gang": "volcano", "queue": "q"}, []),
        (queued(Worker=("", BY_VOLCANO)), {"gang": "volcano"}, []),
        (
            queued(run=POLICY, Worker=("", BY_VOLCANO), PS=("", {})),
            {"gang": "volcano", "queue": "q"},
            [f"{WORKER}.schedulerName: 'volcano': places the pods of all tasks here"],
        ),
        (
            queued(run={"schedulingPolicy": {"queue": "r"}}, Worker=("", ANNOTATED)),
            {"gang": "volcano", "queue": "r"},
            [f"spec.tfReplicaSpecs.Worker.template.metadata.annotations.{VOLCANO}: 'q': {LEFT}a job has one queue, "
             "that of spec.runPolicy.schedulingPolicy.queue: 'r'"],
        ),
        (
            queued(run=POLICY, Worker=("", {})),
            {},
            [NO_VOLCANO],
        ),
        (
            queued("k", run=POLICY, Worker=("", BY_VOLCANO)),
            {"queue": "k"},
            [NO_VOLCANO,
             f"{WORKER}.schedulerName: 'volcano': {LEFT}the cluster's default scheduler places the pods; for gangs set "
             "kubernetes.gang"],
        ),
    ],
)  # fmt: skip
def test_volcanos_jobs_are_gangs_of_volcano(document: Any, found: Any, notes: list[str]) -> None:
    assert about_queues(document) == (found, notes)


def test_volcanos_annotation_of_the_tfjob_names_a_queue() -> None:
    document = queued(Worker=("", BY_VOLCANO))
    document["metadata"]["annotations"] = {VOLCANO: "q"}
    assert about_queues(document) == ({"gang": "volcano", "queue": "q"}, [])
