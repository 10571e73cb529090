import json
from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from trainer.job.cluster import tasks_of
from trainer.job.derived import batch_rule, batch_sizes, memory_bytes, replicas_in_sync
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.job.names import TaskType

MWMS = {"name": "j", "strategy": "multi_worker_mirrored"}
PS = {"name": "j", "strategy": "parameter_server", "tasks": {"worker": 2, "ps": 1}}
LABEL = "must be lower-case letters, digits and '-', from a letter to a letter or digit (RFC 1035)"
NO_CONTROL = r"string should match pattern '^[^\x00-\x1f\x7f]+$'"

ITSELF: list[Any] = []
ITSELF.append(ITSELF)


def problems(raw: dict[str, Any]) -> list[str]:
    with pytest.raises(UserError) as caught:
        build(raw)
    return [line.removeprefix("spec: ") for line in caught.value.problems]


def test_the_shortest_spec_gets_the_documented_defaults() -> None:
    spec = build(MWMS)
    assert spec.tasks.counts() == {"worker": 1}
    assert (spec.workload, spec.train.optimizer, spec.train.learning_rate) == ("mnist", "adam", 1e-3)
    assert (spec.directory, spec.warm_standby, spec.max_restarts) == ("runs/j", True, 5)
    assert (spec.deadlines.start, spec.deadlines.rejoin, spec.deadlines.progress) == (120, 120, 600)


def test_a_spec_cannot_be_changed_after_its_rules_were_checked() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        build(MWMS).name = "other"


def test_model_dir_wins_over_the_default_directory() -> None:
    assert build({**MWMS, "model_dir": "/data/x"}).directory == "/data/x"


@pytest.mark.parametrize("chief", [{}, {"chief": None}, {"chief": 1}, {"chief": {"cpu": 2}}])
def test_parameter_server_has_one_chief_in_any_case(chief: dict[str, Any]) -> None:
    spec = build({**PS, "tasks": {"worker": 2, "ps": 1, **chief}})
    assert spec.tasks.counts() == {"chief": 1, "worker": 2, "ps": 1}


def test_multi_worker_mirrored_has_a_chief_only_on_request() -> None:
    assert build({**MWMS, "tasks": {"worker": 2}}).tasks.counts() == {"worker": 2}
    assert build({**MWMS, "tasks": {"worker": 2, "chief": 1}}).tasks.counts() == {"chief": 1, "worker": 2}


@pytest.mark.parametrize("value", [1e-4, "1e-4", "0.0001", ".1e-3"])
def test_a_number_that_yaml_reads_as_text_is_a_number(value: Any) -> None:
    assert build({**MWMS, "train": {"learning_rate": value}}).train.learning_rate == 1e-4


# Each: what is added to a good spec, and the only problem it makes.
APIS = "loop, keras_fit, train_and_evaluate"
STRATEGIES = "parameter_server, multi_worker_mirrored, mirrored, central_storage, one_device, tpu, graph"
BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"name": None}, "name: null: input should be a valid string"),
    ({"name": 3}, 'name: 3: must be text: write it in quotes, as in "3"'),
    ({"name": ""}, f"name: '': {LABEL}"),
    ({"name": "My_Job"}, f"name: 'My_Job': {LABEL}"),
    ({"name": "job-"}, f"name: 'job-': {LABEL}"),
    ({"strategy": "mirored"}, f"strategy: 'mirored': must be one of {STRATEGIES}; did you mean mirrored?"),
    (
        {"api": "keras-fit"},
        "api: 'keras-fit': must be one of loop, keras_fit, train_and_evaluate; did you mean keras_fit?",
    ),
    ({"settings": {"x": float("nan")}}, "settings.x: NaN: JSON has no such number"),
    (
        {"settings": {"x": {"a": [date(2026, 5, 1)]}}},
        'settings.x: {"a": ["2026-05-01"]}: a[0] is a date, which JSON has not; write it in quotes',
    ),
    (
        {"kubernetes": {"affinity": {"a": b"x"}}},
        'kubernetes.affinity: {"a": "b\'x\'"}: a is binary data, which JSON has not; write it in quotes',
    ),
    (
        {"kubernetes": {"pod": {"spec": {1: 2}}}},
        'kubernetes.pod: {"spec": {"1": 2}}: the name 1 in spec must be text: write it in quotes',
    ),
    (
        {"kubernetes": {"affinity": {"a": ITSELF}}},
        "kubernetes.affinity: (dict): refers to itself, or is nested too deeply",
    ),
    ({"devices": []}, "devices: []: list should have at least 1 item after validation, not 0"),
    ({"devices": ["TPU:0"]}, "devices.0: 'TPU:0': string should match pattern '^(CPU|GPU):[0-9]{1,3}$'"),
    ({"job_name": "a-b"}, "job_name: 'a-b': string should match pattern '^[a-z][a-z0-9_]*$'"),
    ({"strategy": "ps"}, f"strategy: 'ps': must be one of {STRATEGIES}"),
    ({"strategy": ["x"]}, f'strategy: ["x"]: must be one of {STRATEGIES}'),
    ({"env": {"RATE": 0.1}}, 'env.RATE: 0.1: must be text: write it in quotes, as in "0.1"'),
    ({"env": {True: "1"}}, "env: true: a name must be text: write it in quotes"),
    ({"workload": 1}, 'workload: 1: must be text: write it in quotes, as in "1"'),
    ({"workload": ""}, f"workload: '': {NO_CONTROL}"),
    ({"model_dir": "a\nb"}, rf"model_dir: 'a\nb': {NO_CONTROL}"),
    ({"dataset_sha256": "abc"}, "dataset_sha256: 'abc': string should match pattern '^[0-9a-f]{64}$'"),
    ({"warm_standby": "yes"}, "warm_standby: 'yes': input should be a valid boolean"),
    (
        {"deadlines": {"rendezvous": 60}},
        "deadlines.rendezvous: 60: is now deadlines.start, for the first formation, and deadlines.rejoin, for each "
        "later one",
    ),
    ({"max_restarts": -1}, "max_restarts: -1: input should be greater than or equal to 0"),
    ({"tasks": None}, "tasks: null: must be a mapping of settings"),
    ({"tasks": [1]}, "tasks: [1]: must be a mapping of settings"),
    ({"tasks": {"worker": "3"}}, "tasks.worker: '3': must be a mapping of settings"),
    ({"data": {"train": "./records"}}, "data.train: './records': must be a mapping of settings: {path: ./records}"),
    ({"tasks": {"worker": True}}, "tasks.worker: true: must be a mapping of settings"),
    ({"tasks": {"worker": 0}}, "tasks.worker.replicas: 0: input should be greater than or equal to 1"),
    ({"tasks": {"worker": 9999}}, "tasks.worker.replicas: 9999: input should be less than or equal to 8192"),
    ({"tasks": {"worker": {"replicas": 1.5}}}, "tasks.worker.replicas: 1.5: input should be a valid integer"),
    ({"tasks": {"worker": {"cpu": 0}}}, "tasks.worker.cpu: 0: input should be greater than 0"),
    ({"tasks": {"worker": {"cpu": float("nan")}}}, "tasks.worker.cpu: NaN: input should be a finite number"),
    ({"tasks": {"worker": {"memory": 2}}}, 'tasks.worker.memory: 2: must be text: write it in quotes, as in "2"'),
    ({"tasks": {"worker": {"gpus": -1}}}, "tasks.worker.gpus: -1: input should be greater than or equal to 0"),
    ({"train": {"steps": 0}}, "train.steps: 0: input should be greater than or equal to 1"),
    ({"train": {"steps": True}}, "train.steps: true: input should be a valid integer"),
    ({"train": {"steps": "600"}}, "train.steps: '600': input should be a valid integer"),
    ({"train": {"steps": 2**31}}, "train.steps: 2147483648: input should be less than 2147483648"),
    ({"train": {"learning_rate": "fast"}}, "train.learning_rate: 'fast': input should be a valid number"),
    ({"train": {"learning_rate": "inf"}}, "train.learning_rate: Infinity: input should be a finite number"),
    ({"train": {"learning_rate": 0}}, "train.learning_rate: 0: input should be greater than 0"),
    ({"train": {"learning_rate": True}}, "train.learning_rate: true: input should be a valid number"),
    ({"train": {"seed": -1}}, "train.seed: -1: input should be greater than or equal to 0"),
    ({"train": {"steps_per_call": 10_001}}, "train.steps_per_call: 10001: input should be less than or equal to 10000"),
    ({"deadlines": {"hang": 0}}, "deadlines.hang: 0: input should be greater than 0"),
    ({"deadlines": {"hang": 1e300}}, "deadlines.hang: 1e+300: input should be less than 2147483648"),
    (
        {"communication": {"implementation": 1}},
        "communication.implementation: 1: must be one of auto, ring, nccl, hierarchical_copy, reduction_to_one_device",
    ),
]


@pytest.mark.parametrize(("bad", "problem"), BAD_FIELDS)
def test_a_bad_field_is_reported_by_path_value_and_rule(bad: dict[str, Any], problem: str) -> None:
    assert problems({**MWMS, **bad}) == [problem]


@pytest.mark.parametrize("field", ["name", "strategy"])
def test_a_required_key_that_is_missing(field: str) -> None:
    assert problems({key: value for key, value in MWMS.items() if key != field}) == [f"{field}: null: is required"]


@pytest.mark.parametrize("memory", ["2GB", "two", "-1Gi", "1e3", "2 Gi", "2Gi\n", ""])
def test_memory_is_written_as_kubernetes_writes_it(memory: str) -> None:
    (problem,) = problems({**MWMS, "tasks": {"worker": {"memory": memory}}})
    assert problem.startswith(f"tasks.worker.memory: {memory!r}: string should match pattern '^[0-9]+")


@pytest.mark.parametrize("memory", ["2Gi", "1.5Gi", "512M", "1000000"])
def test_memory_that_kubernetes_takes(memory: str) -> None:
    spec = build({**MWMS, "tasks": {"worker": {"memory": memory}}})
    assert spec.tasks.worker.memory == memory


UNKNOWN_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"epochs": 3}, "epochs: 3: unknown key; did you mean train.epochs?"),
    ({"stratgy": 1}, "stratgy: 1: unknown key; did you mean strategy?"),
    ({"train": {"lerning_rate": 1}}, "train.lerning_rate: 1: unknown key; did you mean learning_rate?"),
    ({"train": {"batch-size": 1}}, "train.batch-size: 1: unknown key; did you mean batch_size?"),
    ({"tasks": {"workers": 3}}, "tasks.workers: 3: unknown key; did you mean worker?"),
    ({"tasks": {"worker": {"replcas": 3}}}, "tasks.worker.replcas: 3: unknown key; did you mean replicas?"),
    ({"tasks": {"chief": {"replcas": 3}}}, "tasks.chief.replcas: 3: unknown key; did you mean replicas?"),
    (
        {"communication": {"q": 1}},
        "communication.q: 1: unknown key; known here: implementation, bytes_per_pack, gradients, rank, "
        "weights, every, warmup_steps, outer",
    ),
    ({"tasks": {"": 1}}, "tasks.'': 1: unknown key; known here: chief, worker, ps, evaluator"),
    ({"tasks": {"a\nb": 1}}, r"tasks.'a\nb': 1: unknown key; known here: chief, worker, ps, evaluator"),
    ({"tasks": {"x.y": 1}}, "tasks.x.y: 1: unknown key; known here: chief, worker, ps, evaluator"),
]


@pytest.mark.parametrize(("bad", "problem"), UNKNOWN_KEYS)
def test_an_unknown_key_is_reported_with_the_nearest_known_one(bad: dict[str, Any], problem: str) -> None:
    assert problems({**MWMS, **bad}) == [problem]


# Each: a spec whose fields are good one by one, and the only problem between them.
BETWEEN_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({**MWMS, "tasks": {"chief": 2}}, "tasks.chief.replicas: 2: there is at most one chief; set 1"),
    ({**PS, "tasks": {"chief": 2, "ps": 1}}, "tasks.chief.replicas: 2: there is at most one chief; set 1"),
    ({**MWMS, "tasks": {"evaluator": 3}}, "tasks.evaluator.replicas: 3: there is at most one evaluator; set 1"),
    (
        {**MWMS, "tasks": {"ps": 2}},
        "tasks.ps: 2: multi_worker_mirrored has no ps (TensorFlow would wait for it for ever); remove tasks.ps",
    ),
    ({**PS, "tasks": {"worker": 2}}, "tasks.ps: null: parameter_server needs at least one ps; add ps: 1"),
    ({**PS, "tasks": {"ps": None}}, "tasks.ps: null: parameter_server needs at least one ps; add ps: 1"),
    (
        {**PS, "tasks": {"worker": {"gpus": 2}, "ps": 1}},
        "tasks.worker.gpus: 2: a ps-worker trains on at most one GPU; use more workers",
    ),
    (
        {**MWMS, "tasks": {"worker": {"gpus": 2}, "chief": 1}},
        "tasks.chief.gpus: 0: the chief trains too: give it the workers' 2",
    ),
    ({**MWMS, "train": {"steps": 1, "epochs": 2}}, "train.epochs: 2: give steps or epochs, not both"),
    (
        {**MWMS, "train": {"batch_size": 1, "global_batch_size": 2}},
        "train.global_batch_size: 2: give batch_size or global_batch_size, not both",
    ),
]


@pytest.mark.parametrize(("raw", "problem"), BETWEEN_FIELDS)
def test_a_rule_between_fields_is_reported_by_path_value_and_rule(raw: dict[str, Any], problem: str) -> None:
    assert problems(raw) == [problem]


@pytest.mark.parametrize(
    ("tasks", "batch", "replicas", "nearest"),
    [
        ({"worker": 3}, 64, 3, "63 or 66"),
        ({"worker": 3, "chief": 1}, 65, 4, "64 or 68"),
        ({"worker": {"replicas": 2, "gpus": 2}}, 2, 4, "4"),
        ({"worker": 3, "evaluator": 1}, 100, 3, "99 or 102"),
    ],
)
def test_a_batch_that_does_not_divide_names_the_nearest(tasks: Any, batch: int, replicas: int, nearest: str) -> None:
    rule = f"must be divisible by the {replicas} replicas in sync; the nearest that are: {nearest}"
    raw = {**MWMS, "tasks": tasks, "train": {"global_batch_size": batch}}
    assert problems(raw) == [f"train.global_batch_size: {batch}: {rule}"]


def test_a_batch_is_whole_under_parameter_server_whatever_the_workers() -> None:
    assert build({**PS, "train": {"global_batch_size": 7}}).train.global_batch_size == 7


@pytest.mark.parametrize(
    ("strategy", "tasks", "longest_tail"),
    [
        ("multi_worker_mirrored", {"worker": 10}, "-worker-9"),
        ("multi_worker_mirrored", {"worker": 11}, "-worker-10"),
        ("multi_worker_mirrored", {"worker": 1, "evaluator": 1}, "-evaluator-0"),
        ("parameter_server", {"worker": 1, "ps": 1000}, "-worker-0"),
    ],
)
def test_the_longest_host_name_decides_how_long_a_name_may_be(strategy: str, tasks: Any, longest_tail: str) -> None:
    longest = "n" * (63 - len(longest_tail))
    raw = {"strategy": strategy, "tasks": tasks}
    assert build({**raw, "name": longest}).name == longest
    for over in (1, 12):
        too_long = longest + "n" * over
        rule = f"{too_long}{longest_tail} would have {63 + over} characters, DNS allows 63; shorten it by {over}"
        assert problems({**raw, "name": too_long}) == [f"name: {too_long!r}: {rule}"]


def test_more_tasks_than_tf_config_can_hold_are_refused_and_what_is_accepted_fits() -> None:
    many = {**PS, "tasks": {"worker": 8000, "ps": 1}}
    rule = "Linux allows 131,072 for an environment variable; use fewer tasks, or a shorter name"
    assert [line.partition(" bytes, ")[2] for line in problems(many)] == [rule]
    most = max(n for n in range(4000, 7000, 50) if not _refused({**PS, "tasks": {"worker": n, "ps": 1}}))
    longest = tasks_of(build({**PS, "tasks": {"worker": most, "ps": 1}}))[-1].tf_config()
    assert 120_000 < len(f"TF_CONFIG={longest}") < 131_072


def _refused(raw: dict[str, Any]) -> bool:
    try:
        build(raw)
    except UserError:
        return True
    return False


@pytest.mark.parametrize(
    ("raw", "replicas", "sizes"),
    [
        (MWMS, 1, (64, 64)),
        ({**MWMS, "tasks": {"worker": 3}}, 3, (192, 64)),
        ({**MWMS, "tasks": {"worker": 3, "chief": 1, "evaluator": 1}}, 4, (256, 64)),
        ({**MWMS, "tasks": {"worker": {"replicas": 2, "gpus": 4}}}, 8, (512, 64)),
        ({**MWMS, "tasks": {"worker": 3}, "train": {"batch_size": 10}}, 3, (30, 10)),
        ({**MWMS, "tasks": {"worker": 3}, "train": {"global_batch_size": 12}}, 3, (12, 4)),
        (PS, 1, (64, 64)),
        ({**PS, "train": {"global_batch_size": 10}}, 1, (10, 10)),
    ],
)
def test_replicas_in_sync_and_batch_sizes(raw: dict[str, Any], replicas: int, sizes: tuple[int, int]) -> None:
    spec = build(raw)
    assert replicas_in_sync(spec, spec.tasks.counts()) == replicas
    assert batch_sizes(spec, spec.tasks.counts()) == sizes


def test_batch_rule_looks_at_the_cluster_it_is_given() -> None:
    spec = build({**MWMS, "tasks": {"worker": 2}, "train": {"global_batch_size": 64}})
    three: dict[TaskType, int] = {"worker": 3}
    assert batch_rule(spec, spec.tasks.counts()) is None
    assert batch_rule(spec, three) == "must be divisible by the 3 replicas in sync; the nearest that are: 63 or 66"


EVERYTHING_WRONG = {
    "name": "Bad_Name",
    "strategy": "multi_worker_mirrored",
    "tasks": {"worker": 3, "chief": 2, "ps": 1, "evaluator": {"cpu": "many"}},
    "train": {"steps": 1, "epochs": 1, "global_batch_size": 64, "optimzer": "adam"},
    "deadlines": {"hang": -1},
    "surprise": None,
}


def test_all_problems_of_all_sections_are_reported_at_once() -> None:
    reported = problems(EVERYTHING_WRONG)
    assert [line.partition(":")[0] for line in reported] == [
        "tasks.evaluator.cpu",
        "train.optimzer",
        "deadlines.hang",
        "surprise",
        "name",
        "tasks.chief.replicas",
        "tasks.ps",
        "train.epochs",
        "train.global_batch_size",
    ]
    assert len(set(reported)) == len(reported)


@pytest.mark.parametrize("wrong", [{"name": 3}, {"name": None}])
def test_a_wrong_name_does_not_hide_other_problems_nor_make_new_ones(wrong: dict[str, Any]) -> None:
    reported = problems({**MWMS, "tasks": {"worker": 3}, "train": {"global_batch_size": 64}, **wrong})
    assert [line.partition(":")[0] for line in reported] == ["name", "train.global_batch_size"]


@pytest.mark.parametrize(
    ("raw", "paths"),
    [
        # A wrong strategy allows nothing in particular.
        ({"strategy": "x", "tasks": {"worker": 3, "ps": 1}, "train": {"global_batch_size": 64}}, ["strategy"]),
        ({"tasks": {"worker": {"gpus": 2}, "chief": 1}}, ["strategy"]),
        # ... nor how many replicas there are when their number is wrong.
        (
            {**MWMS, "tasks": {"worker": "x", "chief": 1}, "train": {"global_batch_size": 65}},
            ["tasks.worker"],
        ),
        (
            {**MWMS, "tasks": {"worker": {"gpu": 2}, "chief": {"gpus": 2}}, "train": {"global_batch_size": 65}},
            ["tasks.worker.gpu"],
        ),
        ({**MWMS, "tasks": {"worker": 2, "chief": "x"}, "train": {"global_batch_size": 63}}, ["tasks.chief"]),
        ({**MWMS, "tasks": 5, "train": {"global_batch_size": 65}}, ["tasks"]),
        ({**PS, "tasks": 5}, ["tasks"]),
        ({**PS, "tasks": {"ps": "x"}}, ["tasks.ps"]),
        # A wrong setting elsewhere hides nothing.
        (
            {**MWMS, "tasks": {"worker": 3, "evaluator": "x"}, "train": {"global_batch_size": 64}},
            ["tasks.evaluator", "train.global_batch_size"],
        ),
    ],
)
def test_rules_stay_silent_about_what_depends_on_a_wrong_field(raw: dict[str, Any], paths: list[str]) -> None:
    reported = problems({"name": "j", **raw})
    assert [line.partition(":")[0] for line in reported] == paths


PROGRAM = {"name": "j", "strategy": "multi_worker_mirrored", "program": ["python", "t.py"]}


@pytest.mark.parametrize(
    ("raw", "counts"),
    [
        ({}, {"worker": 1}),
        ({"tasks": {}}, {"worker": 1}),
        ({"tasks": {"chief": 1}}, {"chief": 1}),
        ({"tasks": {"chief": 1, "worker": 1}}, {"chief": 1, "worker": 1}),
        ({"tasks": {"chief": 1, "worker": {"cpu": 2}}}, {"chief": 1, "worker": 1}),
        ({"tasks": {"chief": None, "evaluator": 1}}, {"worker": 1, "evaluator": 1}),
        ({"strategy": "parameter_server", "tasks": {"ps": 2}}, {"worker": 1, "ps": 2}),
        ({"strategy": "parameter_server", "tasks": {"chief": 1, "ps": 2}}, {"chief": 1, "ps": 2}),
        ({"program": None, "tasks": {"chief": 1}}, {"chief": 1, "worker": 1}),
        ({"program": None, "strategy": "parameter_server", "tasks": {"ps": 1}}, {"chief": 1, "worker": 1, "ps": 1}),
    ],
)
def test_a_program_with_a_chief_has_workers_only_if_the_spec_names_them(raw: Any, counts: Any) -> None:
    spec = build({**PROGRAM, **raw})
    assert spec.tasks.counts() == counts
    again = build(json.loads(spec.model_dump_json(exclude_defaults=True)))  # as containers get it
    assert again == spec
    assert again.tasks.counts() == counts


def test_parameter_server_needs_its_servers_for_a_program_too() -> None:
    with pytest.raises(UserError, match=r"tasks\.ps: null: parameter_server needs at least one ps; add ps: 1"):
        build({**PROGRAM, "strategy": "parameter_server", "tasks": {"chief": 1}})


@pytest.mark.parametrize(
    ("cpu", "memory", "cores", "limit"),
    [
        ("300m", "200Mi", 0.3, 200 * 2**20),
        ("0.3", "1.5Gi", 0.3, 3 * 2**29),
        ("2", "1G", 2.0, 10**9),
        (2, "1073741824", 2.0, 2**30),
        ("1500m", "1Pi", 1.5, 2**50),
    ],
)
def test_resources_are_written_as_kubernetes_writes_them(cpu: object, memory: object, cores: float, limit: int) -> None:
    group = build({**MWMS, "tasks": {"worker": {"cpu": cpu, "memory": memory}}}).tasks.worker
    assert group is not None
    assert group.memory is not None
    assert (group.cpu, memory_bytes(group.memory)) == (cores, limit)
