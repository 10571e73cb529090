"""The section `kubernetes` of a spec."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainer.job.fields import Count, Document, Quantity, Strict, Text, Word

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
LABEL_VALUE = r"^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$"
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
LABEL_KEY = rf"^({_LABEL}(\.{_LABEL})*/)?[A-Za-z0-9]([-._A-Za-z0-9]{{0,61}}[A-Za-z0-9])?$"
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE)]
LabelKey = Annotated[str, Field(pattern=LABEL_KEY)]
Labels = dict[LabelKey, LabelValue]

OUR_VOLUMES = ("runs", "tmp", "code", "files", "shm", "cache", "tensorboard", "track", "report-secret")
"""Names of volumes in every pod, besides data-NAME."""
OUR_CONTAINERS = ("task", "tensorboard", "track")


class Volume(Strict):
    """What holds model_dir: a new claim of this size, or one of claim, host_path and empty_dir."""

    size: Quantity = "1Gi"
    """Size of the claim <name> that is made for the job."""
    storage_class: Name | None = None
    """Storage class of the new claim. Default: the cluster's default class."""
    claim: Name | None = None
    """An existing PersistentVolumeClaim; the job writes to the folder <name> in it."""
    host_path: Annotated[str, Field(pattern=r"^/[^\x00-\x1f\x7f]*$")] | None = None
    """A folder of the node, writable by user 1000, or the job ends at once. Pod Security "baseline" and "restricted"
    forbid it."""
    empty_dir: bool = False
    """Storage of the chief's pod only: a new pod starts from step 0, and the model is lost with the pod."""
    access: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    """How many nodes can mount the volume at once. With ReadWriteOnce a lost node's chief waits until its volume is
    free, and all tasks of a program that share a new claim run on one node; with ReadWriteMany the chief moves. It is
    the access mode of a new claim, and says what is true of a `claim` or `host_path`."""


class Source(Strict):
    """Where a pod finds the value of an environment variable: a key of a ConfigMap, a field, or a resource."""

    config_map: Name | None = None
    """The ConfigMap that holds the value."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")] | None = None
    """The key in that ConfigMap. Default: the variable's name."""
    field: Text | None = None
    """A field of the pod: status.podIP."""
    resource: Text | None = None
    """A resource of the container: limits.memory."""


class Pod(Strict):
    """Settings of pods: of all, or in `tasks` of those of one type."""

    node_selector: Labels = {}
    """As in a pod's spec."""
    tolerations: list[Document] = []
    """As in a pod's spec."""
    affinity: Document = {}
    """As in a pod's spec."""
    priority_class: Name | None = None
    """The pods' priorityClassName."""
    service_account: Name | None = None
    """The pods' serviceAccountName, as workload identity of a cloud needs it. They get no token of the cluster."""
    image_pull_secrets: list[Name] = []
    """Secrets that the nodes pull the image with."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """As in a container. Default: the cluster's for the image's tag."""
    labels: Labels = {}
    """Further labels of every object, or for a type of tasks of its pods."""
    annotations: dict[LabelKey, Word] = {}
    """Annotations of the pods."""
    env: dict[Variable, Word | Source] = {}
    """Further environment variables on Kubernetes: texts, or sources as in {REGION: {config_map: NAME}}. For all
    targets use `env`, for confidential values `secrets`."""
    env_from: list[Document] = []
    """envFrom, as in a container: all keys of a ConfigMap or Secret."""
    volumes: list[Document] = []
    """Further volumes, as in a pod's spec."""
    mounts: list[Document] = []
    """Where the container has those volumes: volumeMounts, as in a container."""
    init_containers: list[Document] = []
    """Containers that run before the task, as in a pod's spec."""
    sidecars: list[Document] = []
    """Containers that run beside the task and end with it, as in a pod's spec."""
    pod: Document = {}
    """A strategic merge patch of the pod template, for what has no setting here: {spec: {hostAliases: [...]}}. The
    patch of a type of tasks is applied after that of the job."""


class Metrics(Strict):
    """Who may read /metrics of the job's pods, on a port that serves nothing else."""

    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    """The namespace of Prometheus: the NetworkPolicy opens the port 4222 to it."""
    pods: Labels = {}
    """Labels of the pods there that may. Default: all of that namespace."""
    kind: Literal["podmonitor", "annotations"] = "annotations"
    """How Prometheus finds the pods: by a PodMonitor, which needs the Prometheus operator, or by the annotations
    prometheus.io/scrape, port and path."""


class Kubernetes(Pod):
    """Settings for Kubernetes only."""

    topology: LabelKey | None = None
    """Prefers nodes of one domain for all tasks, while there is room: host, zone, region, or a key of node labels, such
    as that of racks. Default: tasks spread over the nodes."""
    unsafe: list[Text] = []
    """Protections that patches in `pod` give up, by their paths: [spec.hostNetwork]. Without that such a patch is
    refused."""
    volume: Volume = Volume()
    data_cache: Annotated[str, Field(pattern=r"^/[^\x00-\x1f\x7f]*$")] | None = None
    """A folder of every node, writable by user 1000, for copies of data (`copy: node`), which stay there. Default: a
    copy for each pod. Pod Security "baseline" and "restricted" forbid it."""
    gpu_resource: Annotated[str, Field(pattern=r"^[-.a-z0-9]{1,253}/[-._A-Za-z0-9]{1,63}$")] = "nvidia.com/gpu"
    """The resource that `gpus` of a task type counts."""
    gang: Literal["none", "jobset", "volcano", "podgroup"] = "none"
    """What starts all pods of the job or none: a JobSet, which Kueue admits as a whole, or a PodGroup for a scheduler:
    Volcano's, or that of Kubernetes 1.37."""
    queue: LabelValue | None = None
    """Kueue's local queue; the job then starts suspended, and one of several types of tasks needs `gang: jobset`. With
    `gang: volcano`: a queue of Volcano's."""
    suspend: bool = False
    """The Jobs wait until their field suspend is set to false."""
    egress: bool = False
    """Whether the pods may connect to anything but their peers and DNS."""
    metrics: Metrics | None = None
    """Lets Prometheus read the metrics of every task. Default: the job's pods alone reach them."""
    tensorboard: bool = False
    """A container in the chief's pod, for as long as the job runs: `kubectl port-forward job/NAME-chief 6006`."""
    tensorboard_image: Text | None = None
    """Default: trainer:tensorboard, in the same registry and folder as `image`."""
    track_image: Text | None = None
    """The image of the container that `tracking` adds to the chief's pod. Default: trainer:track, in the same registry
    and folder as `image`."""
    node_lost_seconds: Count = 60
    """How long a pod stays on a node that does not answer; then it is replaced on another node. A toleration of your
    own for node.kubernetes.io/not-ready or unreachable takes precedence."""
    ttl_seconds: Count = 604_800
    """Finished Jobs are removed after this time, by default a week; the volume stays."""

    def job_of(self, task_type: str) -> str:
        """What the name of this type's Job has after that of the job: a JobSet adds a number."""
        return f"{task_type}-0" if self.gang == "jobset" else task_type
