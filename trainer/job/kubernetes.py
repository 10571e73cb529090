"""The section `kubernetes` of a spec."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from trainer.job.fields import Count, Quantity, Strict, Text

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")]
LabelKey = Annotated[str, Field(pattern=r"^([-.a-z0-9]{1,253}/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?$")]
Labels = dict[LabelKey, LabelValue]


class Volume(Strict):
    """The volume for model_dir: a new claim of this size, or one of the others."""

    size: Quantity = "1Gi"
    """Of the claim <name> that is made for the job."""
    storage_class: Name | None = None
    """Of the new claim. Default: the cluster's default class."""
    claim: Name | None = None
    """An existing PersistentVolumeClaim; the job writes to the folder <name> in it."""
    host_path: Annotated[str, Field(pattern=r"^/[^\x00-\x1f\x7f]*$")] | None = None
    """A folder of the node; Pod Security "restricted" forbids it."""
    empty_dir: bool = False
    """A volume of the chief's pod: a new pod starts from step 0, and the model is deleted with the pod."""


class Kubernetes(Strict):
    """Settings for Kubernetes only."""

    volume: Volume = Volume()
    node_selector: Labels = {}
    tolerations: list[dict[str, Any]] = []
    """As in a pod's spec."""
    affinity: dict[str, Any] = {}
    """As in a pod's spec."""
    priority_class: Name | None = None
    image_pull_secrets: list[Name] = []
    env: dict[Variable, Text] = {}
    """More environment variables of every task; for confidential values use `secrets`."""
    labels: Labels = {}
    """More labels of every object."""
    gpu_resource: Annotated[str, Field(pattern=r"^[-.a-z0-9]{1,253}/[-._A-Za-z0-9]{1,63}$")] = "nvidia.com/gpu"
    """Resource that `gpus` counts."""
    queue: LabelValue | None = None
    """Kueue's local queue; the Jobs are then created suspended."""
    suspend: bool = False
    """Creates the Jobs suspended: they start when their `suspend` is set to false."""
    egress: bool = False
    """Whether the pods may open connections to outside the job."""
    tensorboard: bool = False
    """A container beside the chief that shows the curves while the job runs; reached by `kubectl port-forward`."""
    tensorboard_image: Text | None = None
    """Default trainer:tensorboard, in the same place as `image`."""
    ttl_seconds: Count = 604_800
    """Finished Jobs are removed after this long; the volume stays."""
