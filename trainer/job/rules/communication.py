"""Rules for `communication`."""

from __future__ import annotations

from trainer.job.rules.problem import Problem
from trainer.job.spec import JobSpec
from trainer.job.strategies import names


def problems(spec: JobSpec) -> list[Problem]:
    """Lists every broken rule."""
    if spec.program:
        return []
    # Settings of PowerSGD and of rounds that exclude each other are one problem, not two.
    return [*_exchange(spec), *_weights(spec), *(_powersgd(spec) or _rounds(spec))]


def _exchange(spec: JobSpec) -> list[Problem]:
    """Problems of exchanging gradients in each step."""
    problems: list[Problem] = []
    row, worker = spec.traits, spec.tasks.worker
    implementation = spec.communication.implementation
    if implementation not in row.all_reduces:
        rule = f"{spec.strategy} knows {', '.join(row.all_reduces)}"
        problems.append(Problem("communication.implementation", implementation, rule, ("strategy",)))
    elif implementation == "nccl" and row.one_task and not worker.gpus:
        rule = "NCCL is for GPUs; set tasks.worker.gpus, or hierarchical_copy or reduction_to_one_device"
        problems.append(Problem("communication.implementation", implementation, rule, ("tasks.worker",)))
    packed, peers = spec.communication.bytes_per_pack, names(lambda other: other.collective)
    if packed is not None and not row.collective:
        rule = f"is for {peers}; remove it"
        problems.append(Problem("communication.bytes_per_pack", packed, rule, ("strategy",)))
    allowed = ["float32"]
    if row.collective or row.on_ps:
        allowed += ["bfloat16"]
    if row.collective:
        allowed += ["powersgd"]
    if spec.communication.gradients not in allowed:
        rule = f"{spec.strategy} knows {', '.join(allowed)}"
        problems.append(Problem("communication.gradients", spec.communication.gradients, rule, ("strategy",)))
    return problems


def _weights(spec: JobSpec) -> list[Problem]:
    """Problems of reading weights from ps."""
    weights = spec.communication.weights
    if weights == "float32" or spec.traits.on_ps:
        return []
    rule = f"is for {names(lambda other: other.on_ps)}; remove it"
    return [Problem("communication.weights", weights, rule, ("strategy",))]


def _powersgd(spec: JobSpec) -> list[Problem]:
    communication = spec.communication
    if communication.gradients != "powersgd" and communication.rank != type(communication).model_fields["rank"].default:
        return [Problem("communication.rank", communication.rank, "is for gradients: powersgd; remove it")]
    if communication.gradients == "powersgd" and spec.train.mixed_precision == "float16":
        rule = "an overflow would stay in what is left out; use bfloat16"
        return [Problem("communication.gradients", communication.gradients, rule, ("train.mixed_precision",))]
    if communication.gradients == "powersgd" and communication.every > 1:
        rule = "sends no gradients in rounds of local steps; use float32 or bfloat16, or every: 1"
        return [Problem("communication.gradients", communication.gradients, rule, ("communication.every",))]
    return []


def _rounds(spec: JobSpec) -> list[Problem]:
    """Problems of rounds of local steps."""
    communication = spec.communication
    set_ = {
        "warmup_steps": communication.warmup_steps,
        "outer": communication.outer and communication.outer.model_dump(),
    }
    if communication.every == 1:
        rule = "is for rounds of local steps; set communication.every above 1, or remove it"
        return [Problem(f"communication.{key}", value, rule) for key, value in set_.items() if value]
    if not (spec.traits.collective or spec.traits.on_ps):
        rule = f"is for {names(lambda other: other.collective or other.on_ps)}; remove it"
        return [Problem("communication.every", communication.every, rule, ("strategy",))]
    if not spec.traits.collective and any(set_.values()):
        rule = f"is for {names(lambda other: other.collective)}; remove it"
        return [Problem(f"communication.{key}", value, rule, ("strategy",)) for key, value in set_.items() if value]
    if spec.train.mixed_precision == "float16":
        rule = "replicas would skip different batches; use bfloat16, or 1"
        return [Problem("communication.every", communication.every, rule, ("train.mixed_precision",))]
    return []
