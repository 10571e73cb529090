"""Selectors of pods in a TFJob's affinity: the operator's labels become those that pods have here."""

from __future__ import annotations

from collections.abc import Mapping

_TYPE, _JOB = "app.kubernetes.io/component", "app.kubernetes.io/instance"
_INDEX = "batch.kubernetes.io/job-completion-index"
_LABELS = {
    # training-operator, pkg/apis/kubeflow.org/v1/common_types.go; before them those of tf-operator.
    "training.kubeflow.org/job-name": _JOB,
    "training.kubeflow.org/replica-type": _TYPE,
    "training.kubeflow.org/replica-index": _INDEX,
    "tf-job-name": _JOB,
    "tf-replica-type": _TYPE,
    "tf-replica-index": _INDEX,
}
_OPERATORS = ("training.kubeflow.org/", "tf-job", "tf-replica", "group-name", "controller-name", "job-role")
"""Beginnings of the operator's labels."""


def with_our_labels(value: object) -> tuple[object, list[str]]:
    """An affinity whose selectors have the labels of pods here, and the operator's labels that no pod has."""
    unknown: list[str] = []
    return _converted(value, unknown), unknown


def _converted(value: object, unknown: list[str]) -> object:
    if isinstance(value, list):
        return [_converted(each, unknown) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _selector(key, _converted(each, unknown), unknown) for key, each in value.items()}


def _selector(key: str, value: object, unknown: list[str]) -> object:
    if key == "matchLabels" and isinstance(value, dict):
        return {_label(name, unknown): _value(name, each) for name, each in value.items()}
    if key == "matchExpressions" and isinstance(value, list):
        return [_expression(each, unknown) if isinstance(each, dict) else each for each in value]
    return value


def _expression(value: Mapping[str, object], unknown: list[str]) -> dict[str, object]:
    name, values = value.get("key"), value.get("values")
    if not isinstance(name, str):
        return {**value}
    converted = {"values": [_value(name, each) for each in values]} if isinstance(values, list) else {}
    return {**value, "key": _label(name, unknown), **converted}


def _label(name: str, unknown: list[str]) -> str:
    if name not in _LABELS and name.startswith(_OPERATORS):
        unknown.append(name)
    return _LABELS.get(name, name)


def _value(name: str, value: object) -> object:
    if _LABELS.get(name) != _TYPE or not isinstance(value, str):
        return value
    return "chief" if value.lower() == "master" else value.lower()
