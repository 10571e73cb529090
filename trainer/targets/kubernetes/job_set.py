"""A JobSet as the Jobs that it makes, so that the rest of the target knows only Jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from trainer.targets.kubernetes.names import chief_type
from trainer.targets.kubernetes.objects import Condition, Job, Manifest

_OUTCOMES = {"Completed": "Complete", "Failed": "Failed"}
"""A JobSet's conditions at its end, and a Job's."""
QUOTA = "QuotaReserved"
"""The condition of a Workload that shows whether Kueue admits it."""


def with_sets(jobs: Sequence[Job], sets: Sequence[Manifest], workloads: Iterable[Manifest]) -> list[Job]:
    """The Jobs, with those that a JobSet has deleted or not made yet. Each that Kueue does not admit says why.

    Args:
        workloads: Kueue's, in the same namespace.
    """
    live = {each["metadata"]["name"]: each for each in jobs}
    made = [(each["metadata"]["uid"], job) for each in sets for job in jobs_of(each, live)]
    of_sets = {job["metadata"]["name"] for _, job in made}
    made += [(each["metadata"]["uid"], each) for each in jobs if each["metadata"]["name"] not in of_sets]
    waits = {owner: condition for each in workloads for owner, condition in _waits(each)}
    return [_with_condition(job, waits[owner]) if owner in waits else job for owner, job in made]


def jobs_of(job_set: Manifest, live: Mapping[str, Job]) -> list[Job]:
    """The Jobs of a JobSet; the chief's has the outcome of the whole."""
    replicated = job_set["spec"]["replicatedJobs"]
    chief = chief_type([each["name"] for each in replicated])
    return [_job(job_set, each, live, each["name"] == chief) for each in replicated]


def plain(job_set: Manifest) -> list[Manifest]:
    """The Jobs that a JobSet makes, as manifests."""
    jobs = jobs_of(job_set, {})
    kind = {"apiVersion": "batch/v1", "kind": "Job"}
    return [{**kind, "metadata": each["metadata"], "spec": each["spec"]} for each in jobs]


def _job(job_set: Manifest, replicated: Manifest, live: Mapping[str, Job], is_chief: bool) -> Job:
    metadata, template = job_set["metadata"], replicated["template"]
    name = f"{metadata['name']}-{replicated['name']}-0"
    planned: Manifest = {
        "metadata": {**metadata, "name": name, "labels": template["metadata"]["labels"]},
        "spec": {**template["spec"], "suspend": job_set["spec"].get("suspend", False)},
        "status": {},
    }
    job = live.get(name) or cast(Job, planned)
    if not is_chief:
        return job
    # A chief's Job that has failed may be made again.
    conditions = [each for each in job["status"].get("conditions", []) if each["type"] not in _OUTCOMES.values()]
    ends = [each for each in job_set.get("status", {}).get("conditions", []) if each["type"] in _OUTCOMES]
    outcome = [cast(Condition, {**each, "type": _OUTCOMES[each["type"]]}) for each in ends]
    return {**job, "status": {**job["status"], "conditions": [*conditions, *outcome]}}


def _waits(workload: Manifest) -> Iterable[tuple[str, Condition]]:
    """The uid of what a Workload stands for, with the condition by which it waits."""
    for condition in workload.get("status", {}).get("conditions", []):
        if condition["type"] == QUOTA and condition["status"] == "False":
            for owner in workload["metadata"].get("ownerReferences", []):
                yield owner["uid"], condition


def _with_condition(job: Job, condition: Condition) -> Job:
    return {**job, "status": {**job["status"], "conditions": [*job["status"].get("conditions", []), condition]}}
