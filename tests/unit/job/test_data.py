"""`data` of a spec: its rules, and the variables that tell a task's code where the data are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.job.data import OTHER_SOURCES, Data, DataVolume, mounted, places, require_here, variables
from trainer.job.errors import UserError
from trainer.job.load import build, load_file
from trainer.job.messages import RELATIVE

SPEC: dict[str, Any] = {"name": "j", "strategy": "multi_worker_mirrored"}


def problems(data: object) -> list[str]:
    with pytest.raises(UserError) as caught:
        build({**SPEC, "data": data})
    return [problem.removeprefix("spec: data.") for problem in caught.value.problems]


def test_paths_are_relative_to_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    path = tmp_path / "jobs/job.yaml"
    path.write_text(
        "name: j\nstrategy: one_device\n"
        "data: {train: {path: ../records}, far: {path: 'gs://b/c/../d'}, home: {path: '~/x'}, all: {path: /abs}}"
    )
    monkeypatch.setenv("HOME", "/home/me")
    data = load_file(path, environ={}).data
    assert {name: each.path for name, each in data.items()} == {
        "train": str(tmp_path / "records"),
        "far": "gs://b/c/../d",
        "home": "/home/me/x",
        "all": "/abs",
    }


def test_variables_are_absolute_folders_and_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = {"train": Data(path="a/b"), "no-labels": Data(path="gs://b/c"), "val": Data(path="/v")}
    assert variables(data) == {
        "TRAINER_DATA_TRAIN": str(tmp_path / "a/b"),
        "TRAINER_DATA_NO_LABELS": "gs://b/c",
        "TRAINER_DATA_VAL": "/v",
    }
    assert mounted(data) == {"train": "/data/train", "val": "/data/val"}


WRONG: list[tuple[object, str]] = [
    ({"a": {}}, "a: null: has neither path, a folder, nor kubernetes, a volume"),
    ({"dir": {"path": "x"}}, "dir: 'dir': TRAINER_DATA_DIR is another variable; choose another name"),
    ({"A b": {"path": "x"}}, "A b.[key]: 'A b': string should match pattern"),
    ({"a": {"pth": "x"}}, "a.pth: 'x': unknown key; did you mean path?"),
    (
        {"a": {"path": "s3://b/c"}},
        "a.path: 's3://b/c': TensorFlow 2.21 reads folders and gs://, not s3://; copy the data",
    ),
    ({"a": {"path": "hdfs://b/c"}}, "a.path: 'hdfs://b/c': TensorFlow 2.21 reads folders and gs://, not hdfs://"),
    ({"a": {"kubernetes": {}}}, "a.kubernetes: {}: must name one source: claim, host_path, nfs, csi, volume"),
    ({"a": {"kubernetes": {"claim": "c", "volume": {}}}}, 'a.kubernetes: {"claim": "c", "volume": {}}: must name one'),
    ({"a": {"kubernetes": {"volume": {"name": "x"}}}}, 'a.kubernetes.volume: {"name": "x"}: must be one source of'),
    ({"a": {"kubernetes": {"volume": {"image": None}}}}, 'a.kubernetes.volume: {"image": null}: must be one source of'),
    (
        {"a": {"kubernetes": {"volume": {"emptyDir": {}}}}},
        'a.kubernetes.volume: {"emptyDir": {}}: must be one source of',
    ),
    (
        {"a": {"kubernetes": {"volume": {"rbd": {}, "fc": {}}}}},
        'a.kubernetes.volume: {"rbd": {}, "fc": {}}: must be one',
    ),
    ({"a": {"kubernetes": {"volume": {}}}}, "a.kubernetes.volume: {}: must be one source of a pod's volume with its"),
    ({"a": {"kubernetes": {"nfs": {"server": "s"}}}}, 'a.kubernetes.nfs: {"server": "s"}: must have server and path'),
    ({"a": {"kubernetes": {"csi": {"driver": 1}}}}, 'a.kubernetes.csi: {"driver": 1}: must have driver'),
    (
        {"a": {"kubernetes": {"volume": {"persistentVolumeClaim": {"claimName": "x"}}}}},
        'a.kubernetes.volume: {"persistentVolumeClaim": {"claimName": "x"}}: has a setting of its own: claim, in place',
    ),
    (
        {"a": {"kubernetes": {"claim": "c", "sub_path": "../x"}}},
        "a.kubernetes.sub_path: '../x': must be a folder in the",
    ),
    ({"a": {"kubernetes": {"claim": "c", "sub_path": "/x"}}}, "a.kubernetes.sub_path: '/x': must be a folder in the"),
    ({"a": {"kubernetes": {"host_path": "x"}}}, "a.kubernetes.host_path: 'x': string should match pattern"),
]


@pytest.mark.parametrize(("data", "reported"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(data: object, reported: str) -> None:
    (problem,) = problems(data)
    assert problem.startswith(reported)


def test_a_folder_of_another_user_is_named(tmp_path: Path, unprivileged: None) -> None:
    (tmp_path / "private/records").mkdir(parents=True)
    (tmp_path / "private").chmod(0)
    with pytest.raises(UserError) as caught:
        require_here({"a": Data(path=f"{tmp_path}/private/records"), "b": Data(path="x" * 300)})
    first, second = caught.value.problems
    assert first.startswith(f"data.a.path: '{tmp_path}/private/records': cannot be read: Permission denied (a path is")
    assert second.startswith(f"data.b.path: '{'x' * 300}': cannot be read: File name too long (a path is relative")


def test_a_home_folder_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: j\nstrategy: one_device\ndata: {train: {path: '~nobody-of-that-name/x'}}")
    with pytest.raises(
        UserError, match=r"job.yaml: '~nobody-of-that-name/x': begins with the home folder of an unknown user;"
    ):
        load_file(path, environ={})


def test_folders_of_this_machine_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    good = {"a": Data(path=str(tmp_path / "folder")), "b": Data(path="gs://b/c")}
    require_here(good)
    claim = DataVolume(claim="c")
    bad = {"c": Data(path=str(tmp_path / "none")), "d": Data(path=str(tmp_path / "file")), "e": Data(kubernetes=claim)}
    with pytest.raises(UserError) as caught:
        require_here({**good, **bad})
    assert caught.value.problems == (
        f"data.c.path: '{tmp_path}/none': no such folder on this machine ({RELATIVE})",
        f"data.d.path: '{tmp_path}/file': is a file; name its folder ({RELATIVE})",
        "data.e.path: is missing: local and compose read a folder of this machine",
    )


@pytest.mark.parametrize(
    ("volume", "reported"),
    [
        (DataVolume(claim="c", sub_path="v/w"), "claim c, folder v/w"),
        (DataVolume(host_path="/x"), "host path /x"),
        (DataVolume(nfs={"server": "s", "path": "/x"}), "nfs /x"),
        (DataVolume(csi={"driver": "d"}), "csi d"),
        (DataVolume(volume={"image": {"reference": "i"}}), "volume image"),
    ],
)
def test_a_source_in_words(volume: DataVolume, reported: str) -> None:
    assert places(Data(kubernetes=volume)) == f"local, compose: none; kubernetes: {reported}"


def test_any_other_source_of_a_volume_is_known() -> None:
    from kubernetes.client import V1Volume

    known = {*V1Volume.attribute_map.values()} - {"name"}
    assert {*OTHER_SOURCES} == known - {"persistentVolumeClaim", "hostPath", "nfs", "csi", "emptyDir"}


def test_what_cannot_be_copied_is_refused() -> None:
    assert problems({"a": {"path": "gs://b/c", "copy": "node"}}) == [
        "a.copy: 'node': is for folders; TensorFlow reads gs:// itself; remove it"
    ]
    assert problems({"a": {"kubernetes": {"host_path": "/x"}, "copy": "node"}}) == [
        "a.copy: 'node': a host_path is on the node already; remove it"
    ]
    assert problems({"a": {"path": "x", "copy": "pod"}})[0].startswith("a.copy: 'pod': must be one of node")
