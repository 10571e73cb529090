import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainer.job.data import variables
from trainer.job.errors import Exit, UserError
from trainer.job.load import build, load_environment, load_file
from trainer.job.schema import schema
from trainer.job.spec import JobSpec

GOOD = "name: j\nstrategy: parameter_server\ntasks: {worker: 3, ps: 1}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    return path


def load(path: Path, *overrides: str, environ: Mapping[str, str] | None = None) -> JobSpec:
    return load_file(path, overrides, environ or {})


def problems(path: Path, *overrides: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong, without the path of the file."""
    with pytest.raises(UserError) as caught:
        load(path, *overrides, environ=environ)
    assert caught.value.code is Exit.USER
    assert all(problem.startswith(str(path)) for problem in caught.value.problems)
    return [problem.removeprefix(str(path)).removeprefix(": ") for problem in caught.value.problems]


def test_a_good_file_is_loaded(file: Path) -> None:
    assert load(file) == build({"name": "j", "strategy": "parameter_server", "tasks": {"worker": 3, "ps": 1}})


UNREADABLE: list[tuple[str | bytes, str]] = [
    ("", "null: must be a mapping of settings"),
    ("- name: j", '[{"name": "j"}]: must be a mapping of settings'),
    ("just text", "'just text': must be a mapping of settings"),
    ("name: [j", ":1:9: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"),
    ("name: j\n\tx: 1", ":2:1: not valid YAML: while scanning for the next token, found character '\\t' that"),
    ("name: j\nname: k", ":2:1: not valid YAML: key 'name' is given twice"),
    ("train:\n  seed: 1\n  steps: 1\n  seed: 2", ":4:3: not valid YAML: key 'seed' is given twice"),
    ("? [a]\n: 1", ":1:3: not valid YAML: while constructing a mapping, found unhashable key"),
    ("a: 1\n---\nb: 2", ":2:1: not valid YAML: expected a single document in the stream, but found another document"),
    ("a: !!python/object:os.system 1", ":1:4: not valid YAML: could not determine a constructor for the tag"),
    ("a: !!bool x", "not valid YAML: 'x'"),
    ("a: 2020-99-99", "not valid YAML: month must be in 1..12"),
    ("a: " + "9" * 5000, ":1:4: a number of 5,000 characters; write at most 100"),
    ("[" * 1000, ":1:101: is more than 100 levels deep; write fewer"),
    ("a: \0", 'not valid YAML: unacceptable character #x0000: special characters are not allowed in "<unicode'),
    (b"name: \xff", "cannot be read: 'utf-8' codec can't decode byte 0xff in position 6"),
]


@pytest.mark.parametrize(("content", "problem"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_file_that_is_no_mapping_of_settings(tmp_path: Path, content: str | bytes, problem: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (reported,) = problems(path)
    assert reported.startswith(problem)
    assert "\n" not in reported


@pytest.mark.parametrize(
    ("path", "reason"),
    [("missing.yaml", "No such file or directory"), (".", "Is a directory"), ("\0", "embedded null byte")],
)
def test_a_file_that_cannot_be_read(path: str, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        load_file(path, environ={})
    assert str(caught.value) == f"{path}: cannot be read: {reason}"


def test_the_same_key_in_two_mappings_is_no_duplicate(file: Path) -> None:
    file.write_text(GOOD.replace("{worker: 3, ps: 1}", "{worker: {replicas: 3, cpu: 1}, ps: {replicas: 1, cpu: 2}}"))
    assert load(file).tasks.worker.cpu == 1


def test_a_key_may_replace_a_merged_one(file: Path) -> None:
    tasks = "tasks:\n  worker: {<<: &b {replicas: 1}, replicas: 2}\n  ps: {<<: *b, cpu: 4}\n"
    file.write_text("name: j\nstrategy: parameter_server\n" + tasks)
    assert load(file).tasks.counts() == {"chief": 1, "worker": 2, "ps": 1}


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("1", "1: 1"),
        ("on", "1: true"),  # YAML 1.1 reads on, off, yes and no as true and false
        ("null", "None: null"),
        ("2.5", "2.5: 2.5"),
        ("2020-01-01", 'datetime.date(2020, 1, 1): "2020-01-01"'),
    ],
)
def test_a_key_that_is_not_text_is_reported_with_all_other_problems(file: Path, key: str, shown: str) -> None:
    file.write_text(GOOD.replace("ps: 1", "ps: 1, evaluator: 2") + f"{key}: x\n")
    single = "tasks.evaluator.replicas: 2: there is at most one evaluator; set 1"
    assert problems(file) == [f"{shown}: keys should be strings", single]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 100, "'" + "x" * 76 + "..."),
        ({"a": {1, 2}}, '{"a": "{1, 2}"}'),
        ({(1, 2): 3}, "(dict)"),
        (10**5000, "(int)"),
        (float("nan"), "NaN"),
        (b"x", "\"b'x'\""),
    ],
    ids=range(6),
)
def test_any_value_can_be_shown(value: Any, shown: str) -> None:
    with pytest.raises(UserError) as caught:
        build({"name": "j", "strategy": "multi_worker_mirrored", "model_dir": value, "x": value})
    assert f"spec: x: {shown}: unknown key; known here: name, " in str(caught.value)


def test_a_mapping_that_contains_itself_is_reported_like_any_other_problem() -> None:
    loop: dict[str, Any] = {"name": "j", "strategy": "multi_worker_mirrored"}
    loop["train"] = loop
    with pytest.raises(UserError, match=r"spec: train\.name: 'j': unknown key"):
        build(loop)


def test_build_leaves_its_argument_as_it_was() -> None:
    raw = {"name": "j", "strategy": "parameter_server", "tasks": {"worker": 3, "ps": 1}}
    before = json.dumps(raw)
    build(raw)
    assert json.dumps(raw) == before


@pytest.mark.parametrize("key", ["workload", "dataset"])
def test_a_file_in_a_spec_is_relative_to_the_spec(file: Path, key: str) -> None:
    for value, path in [
        ("mine/x.py", str(file.parent / "mine/x.py")),
        ("../x.npz", str(file.parent.parent / "x.npz")),
        ("/abs/x.py", "/abs/x.py"),
        ("digits", "digits"),
    ]:
        file.write_text(f"{GOOD}{key}: {value}\n")
        assert getattr(load(file), key) == path


# --set


@pytest.mark.parametrize("origin", ["--set", "TRAINER_SET"])
def test_a_path_that_is_set_is_relative_to_the_current_folder(
    file: Path, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f"{GOOD}data: {{records: {{path: records}}}}\n")
    here = file.parent / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    given = ["data.records.path=./other", "workload=x.py", "dataset=../x.npz", "code=libs", "init_from=x.keras"]
    given += ["secrets.KEY.file=token"]
    spec = load(file, *given) if origin == "--set" else load(file, environ={"TRAINER_SET": " ".join(given)})
    assert spec.init_from is not None
    named = [spec.data["records"].path, spec.workload, spec.dataset, *spec.code, spec.init_from.path]
    named += [spec.secrets["KEY"].file]
    found = [str(Path(str(name)).resolve()) for name in named]
    parts = ["other", "x.py", "../x.npz", "libs", "x.keras", "token"]
    assert found == [str((here / part).resolve()) for part in parts]
    places = variables(spec.data)
    assert list(places.values()) == [str(here / "other")]


@pytest.mark.parametrize("worker", ["worker: 3", "worker: {replicas: 3}"])
def test_one_field_of_a_group_can_be_set_however_the_group_is_written(file: Path, worker: str) -> None:
    file.write_text(GOOD.replace("worker: 3", worker))
    spec = load(file, "tasks.worker.replicas=4", "tasks.worker.cpu=2")
    assert (spec.tasks.worker.replicas, spec.tasks.worker.cpu) == (4, 2)


@pytest.mark.parametrize("worker", ["worker: {replicas: 3, cpu: 2}", "worker: {cpu: 2}"])
def test_a_count_for_a_group_keeps_what_else_the_group_says(file: Path, worker: str) -> None:
    file.write_text(GOOD.replace("worker: 3", worker))
    spec = load(file, "tasks.worker=4")
    assert (spec.tasks.worker.replicas, spec.tasks.worker.cpu) == (4, 2)


def test_one_group_can_be_set_though_two_share_a_yaml_anchor(file: Path) -> None:
    file.write_text(GOOD.replace("{worker: 3, ps: 1}", "{worker: &same {cpu: 1}, ps: *same}"))
    spec = load(file, "tasks.ps.cpu=2")
    assert spec.tasks.worker.cpu == 1
    assert spec.tasks.ps
    assert spec.tasks.ps.cpu == 2


def test_a_section_left_empty_can_be_set(file: Path) -> None:
    file.write_text(GOOD + "train:\n")
    assert load(file, "train.steps=5").train.steps == 5


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("train.steps=600", "train.steps", 600),
        ("train.learning_rate=1e-4", "train.learning_rate", 1e-4),
        ("train={steps: 5}", "train.steps", 5),
        ("tasks.evaluator=1", "tasks.evaluator.replicas", 1),
        ("tasks.evaluator.gpus=0", "tasks.evaluator.replicas", 1),
        ("warm_standby=false", "warm_standby", False),
        ("model_dir=a=b", "model_dir", "a=b"),
        ("model_dir=", "model_dir", None),
        ("model_dir='600'", "model_dir", "600"),
    ],
)
def test_an_override_sets_a_yaml_value(file: Path, override: str, path: str, value: object) -> None:
    node: Any = load(file, override)
    for key in path.split("."):
        node = getattr(node, key)
    assert node == value
    assert type(node) is type(value)


FORM = "must be path=value, for example train.steps=600"
BAD_OVERRIDES = [
    ("train.steps", f"--set 'train.steps': {FORM}"),
    ("=600", f"--set '=600': {FORM}"),
    ("train.=600", f"--set 'train.=600': {FORM}"),
    (".steps=600", f"--set '.steps=600': {FORM}"),
    ("", f"--set '': {FORM}"),
    ("train.steps=[1", "--set 'train.steps=[1':1:3: not valid YAML: while parsing a flow sequence, expected"),
    ("train={seed: 1, seed: 2}", "--set 'train={seed: 1, seed: 2}':1:11: not valid YAML: key 'seed' is given twice"),
    ("train.steps=!!bool x", "--set 'train.steps=!!bool x': not valid YAML: 'x'"),
    ("name.x=1", "--set 'name.x=1': 'name' is not a mapping of settings"),
    ("tasks.worker.cpu.x.y=1", "tasks.worker.cpu: {\"x\": {\"y\": 1}}: input should be a valid number"),
    ("train.steps.x=1", "train.steps: {\"x\": 1}: input should be a valid integer"),
    ("train.stepz=1", "train.stepz: 1: unknown key; did you mean steps?"),
    ("tasks.worker=many", "tasks.worker: 'many': must be a mapping of settings"),
    ("tasks.worker=true", "tasks.worker.replicas: true: input should be a valid integer"),
    ("train.steps=0", "train.steps: 0: input should be greater than or equal to 1"),
    ("train.steps=6e2", "train.steps: '6e2': input should be a valid integer"),
]  # fmt: skip


@pytest.mark.parametrize(("override", "problem"), BAD_OVERRIDES)
def test_a_bad_override_is_reported(file: Path, override: str, problem: str) -> None:
    (reported,) = problems(file, override)
    assert reported.startswith(problem)


def test_all_bad_overrides_are_reported_with_all_other_problems(file: Path) -> None:
    file.write_text(GOOD + "surprise: 1\n")
    assert len(problems(file, "x", "train.steps=0", "name.x=1", "train.seed=[")) == 5


def test_a_repeated_bad_override_is_reported_once(file: Path) -> None:
    assert len(problems(file, "x", "x")) == 1


def test_an_override_may_mend_the_file(file: Path) -> None:
    file.write_text(GOOD + "train: {steps: none}\n")
    assert load(file, "train.steps=5").train.steps == 5


def test_the_last_override_wins_and_the_command_line_over_the_environment(file: Path) -> None:
    environ = {"TRAINER_SET": "train.steps=1 train.seed=7"}
    spec = load(file, "train.steps=2", "train.steps=3", environ=environ)
    assert (spec.train.steps, spec.train.seed) == (3, 7)


# TRAINER_SET and TRAINER_JOB


def test_trainer_set_is_quoted_as_in_a_shell(file: Path) -> None:
    environ = {"TRAINER_SET": "'model_dir=/my data' train=\"{steps: 5}\""}
    spec = load(file, environ=environ)
    assert (spec.model_dir, spec.train.steps) == ("/my data", 5)


def test_a_bad_override_from_the_environment_is_reported_as_one(file: Path) -> None:
    environ = {"TRAINER_SET": "nonsense train.seed=x"}
    assert problems(file, environ=environ) == [
        f"TRAINER_SET 'nonsense': {FORM}",
        "train.seed: 'x': input should be a valid integer",
    ]


def test_bad_quoting_in_the_environment_is_reported(file: Path) -> None:
    with pytest.raises(UserError) as caught:
        load(file, environ={"TRAINER_SET": "train.steps='600"})
    quoted = '"train.steps=\'600"'
    assert str(caught.value) == f"TRAINER_SET: {quoted}: No closing quotation; quote each path=value as in a shell"


def test_the_environment_is_that_of_the_process_by_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_SET", "train.steps=42")
    assert load_file(file).train.steps == 42


def test_a_task_gets_the_same_spec_through_its_environment(file: Path) -> None:
    spec = load(file, "model_dir=/data/\u2028\u00e9\U0001f600", "train.learning_rate=1e-7")
    assert load_environment({"TRAINER_JOB": spec.model_dump_json()}) == spec
    assert load_environment({"TRAINER_JOB": json.dumps(spec.model_dump())}) == spec
    assert load_environment({"TRAINER_JOB": spec.model_dump_json(exclude_unset=True)}) == spec


def test_trainer_set_also_wins_over_trainer_job(file: Path) -> None:
    environ = {"TRAINER_JOB": load(file).model_dump_json(), "TRAINER_SET": "tasks.worker=5"}
    assert load_environment(environ).tasks.counts() == {"chief": 1, "worker": 5, "ps": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "TRAINER_JOB is not set: it holds the job spec as JSON; `trainer local` sets it for you"),
        ("", "TRAINER_JOB is not set: it holds the job spec as JSON; `trainer local` sets it for you"),
        ("name: j", "TRAINER_JOB: 'name: j': is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[1]", "TRAINER_JOB: [1]: must be a mapping of settings"),
        ('{"name": "j"}', "TRAINER_JOB: strategy: null: is required"),
    ],
)
def test_a_bad_trainer_job_is_reported(text: str | None, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        load_environment({} if text is None else {"TRAINER_JOB": text})
    assert str(caught.value) == problem


# schema


def test_the_schema_describes_each_field_with_the_text_under_it() -> None:
    models = json.loads(schema())
    group = models["$defs"]["TaskGroup"]["properties"]
    assert models["properties"]["name"]["description"].startswith("A DNS label (RFC 1035)")
    assert group["memory"]["description"] == "Memory limit per task, in Kubernetes' notation: 200Mi, 1.5Gi, 1G."
    assert [name for name, field in group.items() if "description" not in field] == []
