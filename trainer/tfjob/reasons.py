"""Reasons why settings of a TFJob have no counterpart in a job spec, and alternatives: one line per common setting."""

from __future__ import annotations

from trainer.tfjob.manifest import FREE, Path

SERVERS = "the API server has set it"
UNKNOWN = "has no counterpart in a job spec"

_REASONS = {
    # The object.
    "namespace": "give it to `trainer submit --namespace`",
    "annotations": "of this object; kubernetes.annotations are those of pods",
    "status": "it is the state of the TFJob, not its specification",
    "uid": SERVERS,
    "resourceVersion": SERVERS,
    "generation": SERVERS,
    "creationTimestamp": SERVERS,
    "managedFields": SERVERS,
    "selfLink": SERVERS,
    # The run.
    "cleanPodPolicy": "finished pods stay for their logs; with their Jobs they go after kubernetes.ttl_seconds",
    "enableDynamicWorker": "the number of tasks is fixed; dead tasks are restarted",
    "spec.restartPolicy": "the type's own counts, as the operator has it",
    "restartPolicy": "must be Never, OnFailure, Always or ExitCode",
    "successPolicy": "must be AllWorkers or Default",
    "minAvailable": "all tasks are needed: a missing one ends the job after deadlines.start",
    "minResources": "nothing reserves a whole job; for that use Kueue: kubernetes.gang: jobset with kubernetes.queue",
    "queue": "of a gang scheduler; set kubernetes.queue with kubernetes.gang: volcano if Volcano has such a queue, or "
    "with kubernetes.gang: jobset if Kueue has such a local queue",
    "priorityClass": "pods have one of their own",
    "managedBy": "there is no operator that could delegate the job",
    # The pods.
    "schedulerName": "the cluster's default scheduler places the pods; for gangs set kubernetes.gang",
    "containers": "a container has a name, which no other has",
    "ports": "only the job's own tasks may connect; to look at a port use kubectl port-forward",
    "securityContext": "trainer sets it",
    "automountServiceAccountToken": "the pods get no token of the cluster",
    "dnsPolicy": "tasks find each other by the DNS of the cluster",
    "hostNetwork": "the pods have names of their own, by a headless Service",
    "topologySpreadConstraints": "trainer spreads the tasks over nodes; for more use kubernetes.affinity",
    "livenessProbe": "trainer has one, of the task's supervisor",
    "readinessProbe": "trainer has one, of the task's supervisor",
    "limits": "must be a number or a text",
    "requests": "must be a number or a text",
    "env": "a name is given twice, or the source is not a key of a Secret or ConfigMap, a field or a resource; "
    "labels of the operator do not exist here, set $(TRAINER_TASK_TYPE) or $(TRAINER_TASK_INDEX) in env",
}


def reason(path: Path) -> str:
    """Why the setting at this place is left out of the spec."""
    key = path[-2] if path[-2:-1] and path[-2] in FREE else path[-1].partition("[")[0]
    return _REASONS.get(".".join((*path[-2:-1], key)), _REASONS.get(key, UNKNOWN))
