"""Where the pods of a job are scheduled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.targets.kubernetes.test_patch import spec, templates

SOFT, HARD = "preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(template: dict[str, Any]) -> Any:
    return template["spec"].get("affinity")


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("host", "kubernetes.io/hostname"),
        ("zone", "topology.kubernetes.io/zone"),
        ("region", "topology.kubernetes.io/region"),
        ("rack", "rack"),
        ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/leaf"),
    ],
)
def test_all_tasks_prefer_one_domain_and_then_spread(given: str, key: str) -> None:
    found = templates(spec(kubernetes={"topology": given}))
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app.kubernetes.io/instance": "j"}}}
    wanted = {"podAffinity": {SOFT: [{"weight": 100, "podAffinityTerm": term}]}}
    assert {name: affinity(each) for name, each in found.items()} == dict.fromkeys(found, wanted)
    (spread,) = found["j-worker"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 100)


def test_without_a_topology_tasks_spread_over_the_nodes() -> None:
    (worker,) = (each for name, each in templates(spec()).items() if name == "j-worker")
    assert affinity(worker) is None
    assert worker["spec"]["topologySpreadConstraints"][0]["maxSkew"] == 1


def test_a_topology_is_beside_the_users_affinity_and_the_evaluators_node() -> None:
    mine = {"podAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": {"topologyKey": "x"}}]}, "nodeAffinity": {SOFT: []}}
    tasks = {"worker": 2, "ps": 1, "evaluator": 1}
    found = affinity(templates(spec(tasks=tasks, kubernetes={"topology": "zone", "affinity": mine}))["j-evaluator"])
    assert found["nodeAffinity"] == {SOFT: []}
    assert [each["weight"] for each in found["podAffinity"][SOFT]] == [1, 100]
    (chief,) = found["podAffinity"][HARD]
    assert chief["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "chief"


def test_types_of_tasks_have_selectors_tolerations_and_affinity_of_their_own() -> None:
    own = {
        "node_selector": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {SOFT: []}},
    }
    job = spec(
        tasks={
            "worker": {"replicas": 2, "kubernetes": own},
            "ps": {"replicas": 1, "kubernetes": {"node_selector": {}}},
        },
        kubernetes={"node_selector": {"pool": "cpu"}},
    )
    found = {name: each["spec"] for name, each in templates(job).items()}
    worker = found["j-worker"]
    assert (worker["nodeSelector"], worker["affinity"]) == ({"pool": "spot"}, {"nodeAffinity": {SOFT: []}})
    assert {"key": "spot", "operator": "Exists"} in worker["tolerations"]
    assert "nodeSelector" not in found["j-ps"]
    assert found["j-chief"]["nodeSelector"] == {"pool": "cpu"}
