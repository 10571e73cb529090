"""Variables of a TFJob's containers, and their sources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tfjob.documents import CONTAINER, LEFT, TYPES, convert, job, replica
from trainer.job import program
from trainer.job.load import build


def env(**values: Any) -> list[dict[str, Any]]:
    """Variables: texts, or the source of a value."""
    return [{"name": n, **({"valueFrom": v} if isinstance(v, dict) else {"value": v})} for n, v in values.items()]


def test_variables_that_types_share_are_those_of_the_job() -> None:
    worker = env(
        A="1", ROLE="w", B="$(A)", C="$(ROLE)/x", D=3, ONLY="", SITE={"configMapKeyRef": {"name": "m", "key": "k"}}
    )
    ps = env(A="1", ROLE="p", B="$(A)", C="$(ROLE)/x", D=3, SITE={"configMapKeyRef": {"name": "m", "key": "other"}})
    raw, notes = convert(job(Worker=replica(env=worker), PS=replica(env=[*ps, {"name": "EMPTY"}])))
    assert raw["env"] == {"A": "1", "B": "$(A)", "D": "3"}
    # C follows ROLE, which it refers to.
    assert [*raw["tasks"]["worker"]["env"].items()] == [("ROLE", "w"), ("C", "$(ROLE)/x"), ("ONLY", "")]
    assert raw["tasks"]["ps"]["env"] == {"ROLE": "p", "C": "$(ROLE)/x", "EMPTY": ""}
    assert raw["tasks"]["worker"]["kubernetes"] == {"env": {"SITE": {"config_map": "m", "key": "k"}}}
    assert raw["tasks"]["ps"]["kubernetes"] == {"env": {"SITE": {"config_map": "m", "key": "other"}}}
    assert f"spec.tfReplicaSpecs.{{Worker,PS}}.{CONTAINER}.env[D]: 3: is the text '3' here" in notes
    assert program.variables(build(raw), "ps", {})["C"] == "p/x"


@pytest.mark.parametrize(
    ("source", "section", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "kubernetes", {"field": "metadata.namespace"}),
        ({"fieldRef": {"fieldPath": "spec.nodeName", "apiVersion": "v1"}}, "kubernetes", {"field": "spec.nodeName"}),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "kubernetes", {"resource": "limits.cpu"}),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, "secrets", {"secret": "s", "key": "k"}),
        ({"secretKeyRef": {"name": "s", "key": "k", "optional": True}}, "secrets", {"secret": "s", "key": "k"}),
        ({"secretKeyRef": {"name": "s"}}, None, None),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, None, None),
        ({"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}, None, None),
        ({"fieldRef": {"fieldPath": "metadata.labels['replica-index']"}}, None, None),
        ({"fieldRef": {"fieldPath": "metadata.labels['tf-replica-type']"}}, None, None),
        ({"fieldRef": {"fieldPath": "metadata.labels['team']"}}, "kubernetes", {"field": "metadata.labels['team']"}),
        ({"fileKeyRef": {"path": "x"}}, None, None),
    ],
)
def test_sources_of_variables(source: Any, section: str | None, value: Any) -> None:
    raw, notes = convert(job(Worker=replica(env=env(X=source))))
    found = {"kubernetes": raw["kubernetes"].get("env", {}).get("X"), "secrets": raw.get("secrets", {}).get("X")}
    assert found == {"kubernetes": None, "secrets": None, **({section: value} if section else {})}
    noted = [note for note in notes if "env[X]" in note]
    assert len(noted) == (section is None or "optional" in str(source))


def test_secrets_are_those_of_all_tasks() -> None:
    first, other = ({"secretKeyRef": {"name": name, "key": "k"}} for name in ("s", "t"))
    raw, notes = convert(job(PS=replica(env=env(X=other)), Worker=replica(env=env(X=first, Y=first))))
    assert raw["secrets"] == {"X": {"secret": "s", "key": "k"}, "Y": {"secret": "s", "key": "k"}}
    place = f".{CONTAINER}.env"
    assert f'{TYPES}.PS{place}[X]: {{"secret": "t", "key": "k"}}: {LEFT}all tasks get the same secret here' in notes
    assert f'{TYPES}.Worker{place}[Y]: {{"secret": "s", "key": "k"}}: all tasks get it here' in notes
