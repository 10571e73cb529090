"""The parts of Kubernetes' objects that are read here, as the API server sends them (kubernetes.io/docs/reference)."""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict

from typing_extensions import NotRequired

Manifest: TypeAlias = dict[str, Any]
"""An object of any kind, as it is applied."""


class Metadata(TypedDict):
    name: str
    uid: str
    labels: dict[str, str]
    creationTimestamp: str
    deletionTimestamp: NotRequired[str]
    ownerReferences: NotRequired[list[Reference]]


class Condition(TypedDict):
    type: str
    status: str
    reason: NotRequired[str]
    message: NotRequired[str]


class Waiting(TypedDict, total=False):
    reason: str
    message: str


class Terminated(TypedDict):
    exitCode: int
    reason: NotRequired[str]
    message: NotRequired[str]
    startedAt: NotRequired[str]
    finishedAt: NotRequired[str]


class State(TypedDict, total=False):
    """The state of a container: one of these."""

    waiting: Waiting
    running: dict[str, str]
    terminated: Terminated


class ContainerStatus(TypedDict):
    name: NotRequired[str]
    state: NotRequired[State]
    restartCount: NotRequired[int]


class PodStatus(TypedDict, total=False):
    phase: str
    reason: str
    message: str
    conditions: list[Condition]
    containerStatuses: list[ContainerStatus]
    initContainerStatuses: list[ContainerStatus]


class ClaimSource(TypedDict):
    claimName: str


class Volume(TypedDict):
    name: str
    persistentVolumeClaim: NotRequired[ClaimSource]


class ConfigMapKey(TypedDict):
    name: str
    key: str


class VariableSource(TypedDict, total=False):
    configMapKeyRef: ConfigMapKey


class Variable(TypedDict):
    name: str
    valueFrom: NotRequired[VariableSource]


class Container(TypedDict):
    name: str
    env: NotRequired[list[Variable]]
    command: NotRequired[list[str]]


class PodSpec(TypedDict):
    volumes: list[Volume]
    containers: list[Container]
    nodeName: NotRequired[str]
    terminationGracePeriodSeconds: int


class Pod(TypedDict):
    metadata: Metadata
    spec: PodSpec
    status: PodStatus


class PodTemplate(TypedDict):
    spec: PodSpec


class JobSpec(TypedDict):
    completions: int
    suspend: NotRequired[bool]
    podFailurePolicy: NotRequired[dict[str, object]]
    template: PodTemplate


class JobStatus(TypedDict, total=False):
    conditions: list[Condition]


class Job(TypedDict):
    metadata: Metadata
    spec: JobSpec
    status: JobStatus


class ClaimStatus(TypedDict, total=False):
    phase: str


class Claim(TypedDict):
    metadata: Metadata
    status: ClaimStatus


class Reference(TypedDict):
    kind: str
    name: str


class Event(TypedDict):
    involvedObject: Reference
    reason: NotRequired[str]
    message: NotRequired[str]
    lastTimestamp: NotRequired[str | None]
    eventTime: NotRequired[str | None]


class ConfigMap(TypedDict):
    data: dict[str, str]
    binaryData: NotRequired[dict[str, str]]
