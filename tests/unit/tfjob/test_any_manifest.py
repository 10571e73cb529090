"""For any TFJob, no setting is dropped silently and no value breaks the import."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.tfjob import convert as tfjob

pytestmark = pytest.mark.part("properties")

FILES = sorted(Path(__file__).parent.glob("*/*.yaml"))

# Files, with one thing changed. -------------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in nested mappings and lists, by its place."""
    yield path, value
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(each, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    whole = {"": copy.deepcopy(document)}
    node: Any = whole
    for key in ("", *path)[:-1]:
        node = node[key]
    node[("", *path)[-1]] = value
    return whole[""]


def tfjob_in(path: Path) -> Any:
    documents = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "TFJob"]
    types = documents[0]["spec"]["tfReplicaSpecs"]
    for key in [key for key, each in types.items() if each.get("replicas") == 0]:
        del types[key]  # a setting that no task has is not expected
    return json.loads(json.dumps(documents[0]))


def outcome(document: Any) -> Any:
    try:
        return tfjob.convert(yaml.safe_dump(document), "x.yaml")
    except UserError as error:
        return str(error)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_value_matters(path: Path) -> None:
    document = tfjob_in(path)
    before = outcome(document)
    for place, value in places(document):
        if not isinstance(value, dict | list) and not (place[-1] == "readOnly" and not value):
            other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}x"
            assert outcome(changed(document, place, other)) != before, place


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_unknown_key_is_reported_or_kept(path: Path) -> None:
    document = tfjob_in(path)
    for place, value in places(document):
        if isinstance(value, dict):
            assert "surprise" in str(outcome(changed(document, place, {"surprise": 7, **value}))), place


# Documents at random. -----------------------------------------------------------------------------------


number = st.sampled_from([0, -1, 1, 2, 3, 2**31, 10**400, 0.5])
word = st.sampled_from(
    ["", "j", "a-b", "2Gi", "500m", "None", "true", "x" * 300, "a: b", "\n", "\0", "é", "\ud800", "$(A)"]
)
leaf = st.none() | st.booleans() | number | word | st.text(max_size=3)
junk = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(word, inner, max_size=2), max_leaves=4
)


def mostly(good: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.integers(0, 39).flatmap(lambda dice: good if dice else junk)


def some(*good: Any) -> SearchStrategy[Any]:
    return mostly(st.sampled_from(good))


def section(**keys: SearchStrategy[Any]) -> SearchStrategy[Any]:
    good = st.fixed_dictionaries({}, optional=keys)
    return mostly(
        st.builds(lambda most, more: {**most, **more}, good, st.just({}) | st.dictionaries(word, junk, max_size=1))
    )


names = some("a", "b", "tensorflow", "TF_CONFIG")
amounts = st.dictionaries(
    some("cpu", "memory", "nvidia.com/gpu", "x/gpu").filter(lambda key: isinstance(key, str)), leaf
)
claims = st.fixed_dictionaries({"persistentVolumeClaim": section(claimName=names, readOnly=st.booleans())})
folders = st.fixed_dictionaries({"hostPath": section(path=some("/a", "b"))})
volumes = st.builds(lambda name, kind: {"name": name, **kind}, names, claims | folders | st.just({"emptyDir": {}}))
container = st.fixed_dictionaries(
    {"name": some("tensorflow"), "image": some("i", "k")},
    optional={
        "command": mostly(st.lists(some("python", "-c", "--lr=1e-4", "$(A)", "a\nb", 3), min_size=1, max_size=3)),
        "args": mostly(st.lists(some("--epochs=2", "x", 0.5), max_size=2)),
        "envFrom": junk,
        "workingDir": word,
        "ports": mostly(st.lists(section(name=some("tfjob-port"), containerPort=number), max_size=2)),
        "env": mostly(st.lists(section(name=names, value=word, valueFrom=junk), max_size=2)),
        "resources": section(limits=mostly(amounts), requests=mostly(amounts)),
        "volumeMounts": mostly(st.lists(section(name=names, mountPath=word, readOnly=st.booleans()), max_size=2)),
    },
)
pod = st.fixed_dictionaries(
    {"containers": mostly(st.lists(mostly(container), min_size=1, max_size=2))},
    optional={
        "volumes": mostly(st.lists(mostly(volumes), max_size=2)),
        "nodeSelector": some({"a": "b"}, {}),
        "tolerations": some([], [{"key": "a"}]),
        "affinity": some({}, {"nodeAffinity": {}}),
        "priorityClassName": names,
        "imagePullSecrets": mostly(st.lists(section(name=names), max_size=2)),
        "schedulerName": leaf | st.just("volcano"),
        "serviceAccountName": names,
        "initContainers": mostly(st.lists(section(name=names, volumeMounts=junk), max_size=2)),
        "terminationGracePeriodSeconds": number,
    },
)
labels = st.dictionaries(
    some("team", "kueue.x-k8s.io/queue-name").filter(lambda key: isinstance(key, str)), word, max_size=2
)
templates = st.fixed_dictionaries(
    {"spec": mostly(pod)}, optional={"metadata": section(labels=labels | junk, annotations=junk)}
)
replicas = st.fixed_dictionaries(
    {"template": mostly(templates)}, optional={"replicas": some(0, 1, 1, 2), "restartPolicy": leaf}
)
run_policy = section(
    suspend=st.booleans(), ttlSecondsAfterFinished=number, schedulingPolicy=section(queue=word, minAvailable=number)
)
tfjobs = st.fixed_dictionaries(
    {
        "apiVersion": some("kubeflow.org/v1"),
        "kind": some("TFJob"),
        "metadata": mostly(
            st.fixed_dictionaries({"name": some("j")}, optional={"labels": mostly(labels), "namespace": leaf})
        ),
        "spec": mostly(
            st.fixed_dictionaries(
                {"tfReplicaSpecs": mostly(
                    st.fixed_dictionaries(
                        {"Worker": mostly(replicas)},
                        optional=dict.fromkeys(("Chief", "PS", "evaluator", "MASTER"), mostly(replicas)),
                    )
                )},
                optional={"runPolicy": run_policy, "x": junk},
            )
        ),
    },
    optional={"status": junk},
)  # fmt: skip


WHOLE = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "j"},
    "spec": {
        "tfReplicaSpecs": {
            "Worker": {
                "replicas": 2,
                "template": {"spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["python"]}]}},
            }
        }
    },
}


def test_any_tfjob_is_a_valid_spec_or_a_user_error() -> None:
    outcomes: Counter[str] = Counter()

    @settings(deadline=None, max_examples=200, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    @given(tfjobs | tfjobs | junk)
    @example(WHOLE)  # of the others all may be refused by chance
    def run(document: Any) -> None:
        reported: list[str] | tuple[str, ...] = ()
        try:
            raw, reported = tfjob.convert(json.dumps(document), "x.yaml")
        except UserError as error:
            assert error.code is Exit.USER  # noqa: PT017
            reported = error.problems
            assert reported
            assert all(problem.startswith("x.yaml:") for problem in reported)
            outcomes["refused"] += 1
        else:
            assert build(yaml.safe_load(tfjob.to_yaml(raw))) == build(raw)
            outcomes["accepted"] += 1
        assert all(line.isprintable() for line in reported), "one line that any terminal can show"

    run()
    assert min(outcomes["accepted"], outcomes["refused"]) > 0, "both outcomes must occur"
