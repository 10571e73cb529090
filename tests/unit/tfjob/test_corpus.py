"""Ten TFJobs as users have them: what of each is left out, and whether the pods on Kubernetes have what theirs had."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kubernetes_validate
import pytest
import yaml

from trainer.cli import main as cli
from trainer.job import program
from trainer.job.errors import Exit
from trainer.job.load import build, load_file
from trainer.targets.kubernetes import render as kubernetes
from trainer.tfjob import convert as tfjob

FILES = sorted((Path(__file__).parent / "tfjobs").glob("*.yaml"))
by_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)

LINE = re.compile(r"(?P<place>\S+): .*: is left out: .*")


# How much is left out. ----------------------------------------------------------------------------------


def tfjob_of(path: Path) -> dict[str, Any]:
    (found,) = (each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "TFJob")
    assert isinstance(found, dict)
    return found


def leaves(value: Any, place: str = "") -> Iterator[str]:
    """The places of all texts, numbers and booleans, as in notes: items of lists by name, if they have one."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            name = each.get("name", index) if isinstance(each, dict) else index
            yield from leaves(each, f"{place}[{name}]")
    else:
        yield place


def left_out(notes: list[str]) -> list[str]:
    """The places in notes, of which each may name several types of tasks: {PS,Worker}."""
    places = [match["place"] for note in notes if (match := LINE.fullmatch(note))]
    found = []
    for place in places:
        types = re.search(r"\{(.*?)\}", place)
        found += [place.replace(types[0], each) for each in types[1].split(",")] if types else [place]
    return found


def share(path: Path) -> tuple[int, int]:
    """How many settings of a TFJob are left out, and how many it has."""
    job, (_, notes) = tfjob_of(path), tfjob.convert_file(str(path))
    there = list(leaves({key: job[key] for key in ("metadata", "spec")}))
    out = left_out(notes)
    return sum(any(re.match(rf"{re.escape(each)}($|[.\[])", place) for each in out) for place in there), len(there)


def test_the_corpus_has_ten_tfjobs() -> None:
    assert len(FILES) == 10


def test_at_most_one_setting_in_ten_is_left_out() -> None:
    shares = {path.stem: share(path) for path in FILES}
    assert all(10 * out <= all_of for out, all_of in shares.values()), shares
    assert sum(out for out, _ in shares.values()) > 0, "what has no place is counted"
    assert 20 * sum(out for out, _ in shares.values()) <= sum(all_of for _, all_of in shares.values()), shares


# What the pods have. ------------------------------------------------------------------------------------


class Pod(NamedTuple):
    """What the user sees of a pod, in the words of Kubernetes."""

    replicas: int
    words: list[str]
    env: dict[str, Any]
    mounts: list[Any]
    scheduling: dict[str, Any]
    limits: dict[str, float]
    others: list[Any]
    """Init containers and sidecars: name, image, words, mounts."""


def volumes_of(spec: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: {k: v for k, v in each.items() if k != "name"} for each in spec.get("volumes", [])}


def mounts_of(container: dict[str, Any], volumes: dict[str, Any]) -> list[Any]:
    """Path, source, folder in it and whether it is read-only, of each mount."""
    mounts = [
        [each["mountPath"], volumes[each["name"]], each.get("subPath"), bool(each.get("readOnly"))]
        for each in container.get("volumeMounts", [])
    ]
    return sorted(mounts, key=str)


def other_of(container: dict[str, Any], volumes: dict[str, Any]) -> Any:
    kept = {key: container.get(key) for key in ("name", "image", "command", "args", "resources")}
    return {**kept, "mounts": mounts_of(container, volumes)}


def quantity(value: object) -> float:
    text = str(value)
    units = {"m": 1e-3, "Gi": 2.0**30, "Mi": 2.0**20}
    unit = next((each for each in units if text.endswith(each)), "")
    return float(text.removesuffix(unit)) * units.get(unit, 1)


def limits_of(container: dict[str, Any]) -> dict[str, float]:
    limits = container.get("resources", {}).get("limits", {})
    return {key: quantity(value) for key, value in limits.items()}


SCHEDULING = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "serviceAccountName", "imagePullSecrets")
LOST_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TYPES = {"Master": "chief", "Chief": "chief", "CHIEF": "chief", "worker": "worker", "Ps": "ps"}


def theirs(job: dict[str, Any]) -> dict[str, Pod]:
    """The pods that the operator makes of a TFJob: variables refer to those before them."""
    policy = job["spec"].get("runPolicy", {}).get("schedulingPolicy", {})
    priority = {"priorityClassName": policy["priorityClass"]} if "priorityClass" in policy else {}
    found = {}
    for key, replica in job["spec"]["tfReplicaSpecs"].items():
        spec, metadata = replica["template"]["spec"], replica["template"].get("metadata", {})
        (container,) = (each for each in spec["containers"] if each["name"] == "tensorflow")
        env: dict[str, Any] = {}
        for each in container.get("env", []):
            value = each.get("valueFrom") or each.get("value", "")
            for name, known in env.items():
                if isinstance(value, str) and isinstance(known, str):
                    value = value.replace(f"$({name})", known)
            env[each["name"]] = value
        words = [*container.get("command", []), *container.get("args", [])]
        for name, known in env.items():
            words = [word.replace(f"$({name})", known) if isinstance(known, str) else word for word in words]
        volumes = volumes_of(spec)
        others = [*spec.get("initContainers", []), *(each for each in spec["containers"] if each is not container)]
        found[TYPES.get(key, key.lower())] = Pod(
            replicas=replica.get("replicas", 1),
            words=words,
            env={**env, "": container.get("envFrom")},
            mounts=mounts_of(container, volumes),
            scheduling={
                **priority,
                **{key: spec[key] for key in SCHEDULING if key in spec},
                "image": container["image"],
                "pull": container.get("imagePullPolicy"),
                "annotations": metadata.get("annotations", {}),
                "labels": metadata.get("labels", {}),
                "seconds": spec.get("terminationGracePeriodSeconds", 0),
            },
            limits=limits_of(container),
            others=[other_of(each, volumes) for each in others],
        )
    return found


def ours(text: str, expected: dict[str, Pod]) -> dict[str, Pod]:
    """The pods of rendered manifests, without what the user did not ask for."""
    objects = list(yaml.safe_load_all(text))
    (config,) = (each["data"] for each in objects if each["kind"] == "ConfigMap")
    spec = build(json.loads(config["job"]))
    found = {}
    for job in (each for each in objects if each["kind"] == "Job"):
        template, name = job["spec"]["template"], job["metadata"]["name"].rpartition("-")[2]
        pod, metadata, want = template["spec"], template["metadata"], expected[name]
        (container,) = pod["containers"]
        given = {each["name"]: each.get("valueFrom") or each["value"] for each in container["env"]}
        # As the supervisor starts the program.
        own = program.variables(spec, name, {key: each for key, each in given.items() if isinstance(each, str)})
        env = {**given, **own}
        texts = {key: each for key, each in env.items() if isinstance(each, str)}
        volumes = volumes_of(pod)
        mounts = [each for each in mounts_of(container, volumes) if each[0] in [mount[0] for mount in want.mounts]]
        # Kubernetes gives every pod a toleration of a lost node, of 300 s; ours has kubernetes.node_lost_seconds.
        asked = want.scheduling.get("tolerations", [])
        pod["tolerations"] = [each for each in pod["tolerations"] if each in asked or each["key"] not in LOST_NODE]
        scheduling = {key: pod[key] for key in SCHEDULING if pod.get(key)}
        labels = {key: each for key, each in metadata["labels"].items() if key in want.scheduling["labels"]}
        found[name] = Pod(
            replicas=job["spec"]["completions"],
            words=[program.expand(word, texts) for word in spec.program_of(name)],
            env={**{key: env.get(key) for key in want.env}, "": container.get("envFrom")},
            mounts=mounts,
            scheduling={
                **scheduling,
                "image": container["image"],
                "pull": container.get("imagePullPolicy"),
                "annotations": metadata.get("annotations", {}),
                "labels": labels,
                # The program's own: the pod has some more.
                "seconds": want.scheduling["seconds"] and spec.deadlines.stop,
            },
            limits=limits_of(container),
            others=[other_of(each, volumes) for each in pod.get("initContainers", [])],
        )
    return found


@by_file
def test_pods_have_what_those_of_the_tfjob_had(path: Path) -> None:
    job, (raw, _) = tfjob_of(path), tfjob.convert_file(str(path))
    expected = theirs(job)
    found = ours(kubernetes.render(build(raw), "x"), expected)
    assert found.keys() == expected.keys()
    for task_type, pod in expected.items():
        assert found[task_type]._asdict() == pod._asdict(), task_type


@by_file
def test_manifests_are_what_kubernetes_accepts(path: Path) -> None:
    raw, _ = tfjob.convert_file(str(path))
    for manifest in yaml.safe_load_all(kubernetes.render(build(raw), "x")):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


@by_file
def test_tf_config_has_the_types_of_the_tfjob(path: Path) -> None:
    raw, _ = tfjob.convert_file(str(path))
    objects = list(yaml.safe_load_all(kubernetes.render(build(raw), "x")))
    (cluster,) = (json.loads(each["data"]["cluster"]) for each in objects if each["kind"] == "ConfigMap")
    counts = {name: pod.replicas for name, pod in theirs(tfjob_of(path)).items() if name != "evaluator"}
    assert {name: len(addresses) for name, addresses in cluster.items()} == counts


@by_file
def test_check_accepts_the_spec_for_kubernetes(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import", str(path)]) == Exit.OK
    file = tmp_path / "job.yaml"
    file.write_text(capsys.readouterr().out)
    assert load_file(file, environ={}).program
    assert cli.main(["check", str(file)]) == Exit.OK
    assert cli.main(["check", "--target", "kubernetes", str(file)]) == Exit.OK
    assert "warning" not in capsys.readouterr().err
