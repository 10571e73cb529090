"""Names that others use: what `submit` did not create it neither adopts nor lets `delete` delete."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.targets.kubernetes.stored import CORE, JOBS, Cluster, delete, left, spec, submit
from trainer.job.errors import Exit, UserError
from trainer.targets.kubernetes import names

NETWORK = "/apis/networking.k8s.io/v1/namespaces/default"
OF_OTHERS = {
    "PersistentVolumeClaim": f"{CORE}/persistentvolumeclaims/j",
    "Service": f"{CORE}/services/j",
    "Secret": f"{CORE}/secrets/j-report-secret",
    "NetworkPolicy": f"{NETWORK}/networkpolicies/j",
    "Job": f"{JOBS}/j-worker",
}


def foreign(path: str, **labels: str) -> Any:
    name = path.rpartition("/")[2]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"template": {"spec": {"containers": []}}}}


@pytest.mark.parametrize("kind", OF_OTHERS)
def test_what_another_has_made_under_the_name_is_refused_and_stays(cluster: Cluster, kind: str) -> None:
    path = OF_OTHERS[kind]
    before = cluster.objects[path] = foreign(path)
    with pytest.raises(UserError) as caught:
        submit()
    (problem,) = caught.value.problems
    assert problem.startswith(f"name: 'j': is taken in namespace default by a {kind} that trainer did not create")
    assert (f"({path.rpartition('/')[2]})" in problem) == (kind in ("Job", "Secret"))
    assert ("kubernetes.volume.claim" in problem) == (kind == "PersistentVolumeClaim")
    assert cluster.objects == {path: before}


def test_all_that_is_another_s_is_named_at_once(cluster: Cluster) -> None:
    cluster.objects |= {path: foreign(path) for path in OF_OTHERS.values()}
    with pytest.raises(UserError) as caught:
        submit()
    assert len(caught.value.problems) == len(OF_OTHERS)


def test_an_object_of_another_job_is_another_s(cluster: Cluster) -> None:
    claim = OF_OTHERS["PersistentVolumeClaim"]
    cluster.objects[claim] = foreign(claim, **{**names.labels(spec()), names.INSTANCE: "other"})
    with pytest.raises(UserError, match=r"by a PersistentVolumeClaim that trainer did not create;"):
        submit()


def test_jobs_that_a_job_set_would_make_are_looked_for_too(cluster: Cluster) -> None:
    cluster.objects[f"{JOBS}/j-worker-0"] = foreign(f"{JOBS}/j-worker-0")
    with pytest.raises(UserError, match=r"by a Job that trainer did not create \(j-worker-0\)"):
        submit(gang="jobset")


def test_a_volume_that_an_earlier_submit_has_left_is_used_again(cluster: Cluster) -> None:
    submit()
    claim = OF_OTHERS["PersistentVolumeClaim"]
    kept = cluster.objects[claim]
    cluster.objects = {claim: kept}
    assert submit().new


def test_a_claim_that_appears_beside_a_running_job_stays_at_its_delete(cluster: Cluster) -> None:
    submit()
    claim = OF_OTHERS["PersistentVolumeClaim"]
    cluster.objects[claim] = foreign(claim)
    with pytest.raises(UserError):
        submit()
    delete()
    assert left(cluster) == [claim]


def test_where_the_user_may_not_look_kubernetes_decides(cluster: Cluster) -> None:
    cluster.forbidden = {"get services", "get secrets", "get networkpolicies"}
    assert submit().new


def test_a_running_job_is_refused_with_the_difference(cluster: Cluster) -> None:
    submit()
    config = next(each for path, each in cluster.objects.items() if "/configmaps/" in path)
    config["data"]["job"] = config["data"]["job"].replace('"digits"', '"mnist"')
    config["metadata"]["name"] = "j-before"
    cluster.objects[f"{CORE}/configmaps/j-before"] = config
    chief = cluster.objects[f"{JOBS}/j-chief"]
    for each in chief["spec"]["template"]["spec"]["containers"][0]["env"]:
        if "configMapKeyRef" in each.get("valueFrom", {}):
            each["valueFrom"]["configMapKeyRef"]["name"] = "j-before"
    with pytest.raises(UserError) as caught:
        submit()
    assert caught.value.code is Exit.USER
    assert str(caught.value) == (
        'name: \'j\': is taken in namespace default by another job (workload: "mnist" there, "digits" here); '
        "`trainer delete --namespace default j` first, or choose another name"
    )
    del cluster.objects[f"{CORE}/configmaps/j-before"]
    with pytest.raises(UserError, match="by another job, whose ConfigMap j-before is gone; `trainer delete"):
        submit()
