"""Admission: whether a task that reports belongs to this job and runs what the chief runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from trainer.protocol.reports import Report

UNSTARTED = "unstarted"
"""In place of the workload's digest: a task that cannot start, and reports why. It may know neither that nor its
versions."""


def mismatch(
    report: Report, chief: Report | None, digest: str, required: Sequence[str], known: Container[str], workload: str
) -> str | None:
    """How a task differs from its chief, in one line; None if it may take part.

    Args:
        chief: the chief's own report, with which the others are compared; None before there is one.
        digest: of the chief's cluster.
        required: the tasks of that cluster.
        known: the required tasks and the evaluator.
        workload: its name in the spec.
    """
    if report.task not in known:
        return f"{report.task} is not in the chief's cluster ({', '.join(required)}); compare their TF_CONFIGs"
    if report.cluster != digest:
        return (
            f"{report.task} has a different cluster than the chief; all tasks need the same 'cluster' in "
            "TF_CONFIG, in the same order"
        )
    own = chief or report
    # Before the spec, whose digest another version makes of other keys. A task that cannot start may know no versions.
    if "trainer" in report.versions and (difference := _other_versions(report, own, ("trainer",))):
        return difference
    if report.spec != own.spec:
        return f"{report.task} has a different job spec than the chief; give all tasks the same"
    if report.loss is not None and report.workload == UNSTARTED:
        return None
    if report.workload != own.workload:
        return (
            f"{report.task} has a different workload file ({workload}) than the chief; give all tasks the same file, "
            "and restart the job if the file was changed meanwhile"
        )
    return _other_versions(report, own, own.versions)


def _other_versions(report: Report, chief: Report, packages: Iterable[str]) -> str | None:
    for package in packages:
        theirs, version = report.versions.get(package), chief.versions.get(package)
        if theirs != version:
            return f"{report.task} has {package} {theirs}, the chief {version}; use one image for all tasks"
    return None
