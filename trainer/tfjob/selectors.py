"""Selectors of pods in a TFJob's affinity: the operator's labels become those that pods have here."""

from __future__ import annotations

from collections.abc import Mapping

_TYPE, _JOB = "app.kubernetes.io/component", "app.kubernetes.io/instance"
_INDEX = "batch.kubernetes.io/job-completion-index"
_LABELS = {
    # training-operator, pkg/apis/kubeflow.org/v1/common_types.go.
    "training.kubeflow.org/job-name": _JOB,
    "training.kubeflow.org/replica-type": _TYPE,
    "training.kubeflow.org/replica-index": _INDEX,
    # kubeflow/common, pkg/apis/common/v1/constants.go, where they are deprecated.
    "job-name": _JOB,
    "replica-type": _TYPE,
    "replica-index": _INDEX,
    # tf-operator, pkg/controller.v1/tensorflow/controller.go, and v1beta1.
    "tf-job-name": _JOB,
    "tf_job_name": _JOB,
    "tf-replica-type": _TYPE,
    "tf-replica-index": _INDEX,
}
_OPERATORS = ("training.kubeflow.org/", "tf-job", "tf_job", "group-name", "group_name", "controller-name", "job-role")
"""Beginnings of the operator's other labels."""
_OF_JOBS = "job-name"
_NO_POD = "is a label of the operator that no pod has here; correct kubernetes.affinity"
_TAKEN = f"is taken for the operator's label, and is {_JOB} here; Kubernetes' own Jobs have it too"


def is_operators(label: str) -> bool:
    """Whether the operator sets a label, which pods here do not have."""
    return label in _LABELS or label.startswith(_OPERATORS)


def with_our_labels(value: object) -> tuple[object, dict[str, str]]:
    """An affinity whose selectors have the labels of pods here, and notes about labels that may select others."""
    notes: dict[str, str] = {}
    return _converted(value, notes), notes


def _converted(value: object, notes: dict[str, str]) -> object:
    if isinstance(value, list):
        return [_converted(each, notes) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _selector(key, _converted(each, notes), notes) for key, each in value.items()}


def _selector(key: str, value: object, notes: dict[str, str]) -> object:
    if key == "matchLabels" and isinstance(value, dict):
        return {_label(name, notes): _value(name, each) for name, each in value.items()}
    if key == "matchExpressions" and isinstance(value, list):
        return [_expression(each, notes) if isinstance(each, dict) else each for each in value]
    return value


def _expression(value: Mapping[str, object], notes: dict[str, str]) -> dict[str, object]:
    name, values = value.get("key"), value.get("values")
    if not isinstance(name, str):
        return {**value}
    converted = {"values": [_value(name, each) for each in values]} if isinstance(values, list) else {}
    return {**value, "key": _label(name, notes), **converted}


def _label(name: str, notes: dict[str, str]) -> str:
    if name == _OF_JOBS:
        notes[name] = _TAKEN
    elif name not in _LABELS and is_operators(name):
        notes[name] = _NO_POD
    return _LABELS.get(name, name)


def _value(name: str, value: object) -> object:
    if _LABELS.get(name) != _TYPE or not isinstance(value, str):
        return value
    return "chief" if value.lower() == "master" else value.lower()
