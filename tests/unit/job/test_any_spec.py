"""Any input is either a spec with a valid cluster, or a UserError that names the problem and its place."""

import datetime
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from trainer.job.cluster import Task, tasks_of
from trainer.job.derived import batch_sizes, replicas_in_sync
from trainer.job.errors import Exit, UserError
from trainer.job.load import build, load_environment, load_file
from trainer.job.names import DNS_LABEL, MAX_DNS_LABEL, TASK_TYPES, host_name
from trainer.job.spec import JobSpec
from trainer.job.strategies import STRATEGIES
from trainer.job.tf_config import from_environment

pytestmark = pytest.mark.part("properties")

ANY = settings(deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
Keys = dict[str, SearchStrategy[Any]]

# Junk: what is right somewhere in a spec is tried where it is wrong, and what is right nowhere as well.
number = st.sampled_from([0, -1, 1, 3, 64, 8192, 8193, 2**31 - 1, 2**31, 10**400])
real = st.sampled_from([1e-4, 0.5, 1e300, -0.0, float("nan"), float("inf")]) | st.floats()
word = st.sampled_from(
    [
        *["adam", "ring", "linear", "mnist", "parameter_server", "j", "2Gi", "1e-4", "nan", "3", "true", "../x.py"],
        *["", " ", "\0", "a\nb", "\x85", "\u2028", "\ud800", "\u0663", "x.y", "Bad_Name", "n" * 300, "0" * 64],
    ]
)
day = st.just(datetime.date(2020, 1, 1))
leaf = st.none() | st.booleans() | number | real | word | st.text(max_size=5) | st.binary(max_size=2) | day
key = word | st.text(max_size=3) | st.none() | st.booleans() | st.integers(0, 3) | st.tuples(st.integers(0, 1)) | day
junk = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(key, inner, max_size=2), max_leaves=4
)


def mostly(good: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.integers(0, 29).flatmap(lambda dice: good if dice else junk)


def some(*good: Any) -> SearchStrategy[Any]:
    return mostly(st.sampled_from(good))


def section(keys: Keys) -> SearchStrategy[Any]:
    """Some of these keys, and sometimes a misspelt or unknown one."""
    good = st.fixed_dictionaries({}, optional=keys)
    misspelt = st.sampled_from([name[:-1] for name in keys])
    nearly = st.builds(lambda most, more: {**most, **more}, good, st.dictionaries(key | misspelt, junk, max_size=1))
    return mostly(st.integers(0, 19).flatmap(lambda dice: good if dice else nearly))


small = mostly(st.integers(1, 12))
count = mostly(st.integers(1, 12) | st.sampled_from([1, 1, 1000, 8192]))
group = section(
    {
        "replicas": count,
        "cpu": some(0.5, 1, 2),
        "memory": some("2Gi", "1.5G", "512M"),
        "gpus": some(0, 0, 0, 1, 2),
        "cpu_devices": some(1, 1, 1, 2),
    }
)
train: Keys = {
    "optimizer": some("adam", "sgd", "rmsprop", "adagrad"),
    "learning_rate": some(1e-3, 1, "1e-4"),
    "learning_rates": some(None, None, None, {64: 1e-3}, {"64": "1e-3", 128: 1}),
    "learning_rate_scaling": some("none", "linear", "sqrt"),
    "deterministic": mostly(st.booleans()),
    "mixed_precision": some("none", "bfloat16", "float16"),
    "global_batch_size": some(12, 24, 60, 64, 120, 840),
    **dict.fromkeys(("steps", "epochs", "batch_size", "seed", "steps_per_call", "checkpoint_steps"), small),
    **dict.fromkeys(("keep_checkpoints", "log_steps"), small),
}
deadlines = ("start", "rejoin", "hang", "progress", "task_lost", "chief_lost", "stop")
sections: Keys = {
    "workload": some("mnist", "digits", "x.py"),
    "dataset": some("mnist", "x.npz", None),
    "dataset_sha256": some(None, "0a" * 32),
    "api": some("loop", "loop", "keras_fit", "train_and_evaluate"),
    "settings": some({}, {"x": [1, None, {"y": 0.5}]}),
    "devices": some(None, None, None, ["CPU:0"], ["GPU:0", "GPU:1"]),
    "job_name": some("worker", "local"),
    "tpu": section({"address": some("local"), "cores": small}),
    "train": section(train),
    "communication": section(
        {
            "implementation": some("auto", "ring", "nccl"),
            "bytes_per_pack": small,
            "every": small,
            "warmup_steps": small,
        }
    ),
    "model_dir": some(None, "/data/x", "runs/é\u2028\U0001f600"),
    "warm_standby": mostly(st.booleans()),
    "max_restarts": small,
    "deadlines": section(dict.fromkeys(deadlines, some(0.5, 1, 600))),
}
name = some("j", "j", "mnist-ps", "n" * 52, "n" * 53, "n" * 54, "n" * 55)


def spec_for(strategy: str) -> SearchStrategy[dict[str, Any]]:
    single, many = some(1, None) | group, count | group
    servers: Keys = {"ps": many} if strategy == "parameter_server" else {}
    one = STRATEGIES[strategy].one_task
    others: Keys = {"worker": single} if one else {"chief": single, "worker": many, "evaluator": single}
    tasks = st.fixed_dictionaries(servers, optional=others)
    keys: Keys = {"name": name, "strategy": some(strategy), "tasks": mostly(tasks)}
    return st.fixed_dictionaries(keys, optional=sections)


whole = st.sampled_from(list(STRATEGIES)).flatmap(spec_for)
parts = section({"name": name, "strategy": word, "tasks": junk, **sections}).filter(lambda raw: isinstance(raw, dict))
raw_specs: SearchStrategy[dict[str, Any]] = whole | whole | parts


def check(spec: JobSpec) -> None:
    """The cluster of an accepted spec is sound."""
    tasks, counts = tasks_of(spec), spec.tasks.counts()
    assert [(task.type, task.index) for task in tasks] == [(t, i) for t in counts for i in range(counts[t])]
    assert all(task.cluster is tasks[0].cluster for task in tasks), "they share one, so all print the same JSON"
    cluster = tasks[0].cluster
    assert {t: len(cluster[t]) for t in cluster} == {t: n for t, n in counts.items() if t != "evaluator"}
    assert len({address for each in cluster.values() for address in each}) == sum(map(len, cluster.values()))
    assert [task.name for task in tasks if task.is_chief] == [tasks[0].name]
    assert ("ps" in counts) == (spec.strategy == "parameter_server")
    assert counts.get("chief", 0) <= 1
    assert counts.get("chief") == 1 or not spec.traits.coordinated
    for task in tasks if len(tasks) < 40 else [tasks[0], tasks[-1]]:  # each reads the whole cluster
        host = host_name(spec.name, task.type, task.index)
        assert len(host) <= MAX_DNS_LABEL
        assert DNS_LABEL.fullmatch(host)
        assert from_environment(spec, {"TF_CONFIG": task.tf_config()}) == task
    replicas, (total, per_replica) = replicas_in_sync(spec, counts), batch_sizes(spec, counts)
    assert total == per_replica * replicas > 0
    assert load_environment({"TRAINER_JOB": spec.model_dump_json()}) == spec


def outcome(load: Callable[[], JobSpec], source: str) -> str:
    """Loads and checks; anything but a valid spec or a well-formed UserError fails the test."""
    spec: JobSpec | None = None
    problems: tuple[str, ...] = ()
    try:
        spec = load()
    except UserError as error:
        assert error.code is Exit.USER  # noqa: PT017
        problems = error.problems
    if spec:
        check(spec)
        return "accepted"
    assert problems
    assert len(set(problems)) == len(problems)
    for problem in problems:
        assert problem.isprintable(), "one line that any terminal can show"
        assert problem.startswith((source, "TRAINER_SET: "))
        path, _, rule = problem.partition(": ")[2].rpartition(": ")
        assert path or re.match(rf"{re.escape(source)}:\d+:\d+: ", problem), "the place, and the value if it is short"
        assert rule.strip(), "the rule"
    return "refused"


def test_any_data_is_a_sound_spec_or_a_user_error() -> None:
    outcomes: Counter[str] = Counter()

    @settings(ANY, max_examples=800)
    @given(raw_specs)
    def run(raw: dict[str, Any]) -> None:
        outcomes[outcome(lambda: build(raw), "spec: ")] += 1

    run()
    assert min(outcomes["accepted"], outcomes["refused"]) > 80, "a test of one outcome says nothing"


pieces = st.sampled_from(
    [
        *["name: j\n", "strategy: x\n", "tasks: {worker: 2}\n", "train:\n", "  steps: 5\n", "x", "\n", " ", "\t", "- "],
        *[": ", "? ", "{", "}", "[", "]", ",", "'", '"', "|", ">", "&a ", "*a", "<<: ", "#", "%", "=", "---\n", "~"],
        *["!!bool ", "!!int ", "!!float ", "!!timestamp ", "!!set ", "!!omap ", "!!python/name:os ", "1:30", ".inf"],
        *["\0", "\ufeff", "\x85", "é", '"\\ud800"', "2020-99-99", "0x" + "f" * 9000, "9" * 5000],
    ]
)


@st.composite
def spec_texts(draw: st.DrawFn) -> str:
    """A spec as YAML into which some pieces were put, or pieces alone."""
    raw = draw(raw_specs)
    try:
        text = yaml.safe_dump(raw, allow_unicode=True)
    except yaml.YAMLError:  # YAML cannot say a tuple
        text = ""
    for piece in draw(st.lists(pieces | st.text(max_size=2), max_size=3)):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + piece + text[at + draw(st.integers(0, 2)) :]
    return text


def test_any_text_is_a_sound_spec_or_a_user_error(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    outcomes: Counter[str] = Counter()

    @settings(ANY, max_examples=250)
    @given(spec_texts())
    def run(text: str) -> None:
        path.write_bytes(text.encode(errors="surrogatepass"))
        outcomes[outcome(lambda: load_file(path, environ={}), str(path))] += 1

    run()
    assert min(outcomes["accepted"], outcomes["refused"]) > 5, "a test of one outcome says nothing"


paths = st.lists(st.sampled_from(["tasks", "worker", "ps", "train", "steps", "name", "x", "", "a\nb", "\ud800"]))
values = st.sampled_from(["3", "{replicas: 2}", "", "!!bool x", "{[", "2020-99-99", "1e-4", "\0", "\ud800"]) | st.text()
overrides = (
    st.builds(lambda path, value: ".".join(path) + "=" + value, paths, values)
    | st.sampled_from(["train.steps=5", "tasks.worker=4", "tasks.worker.cpu=2", "model_dir=/x y"])
    | st.text(max_size=8)
)
environments = st.lists(overrides, max_size=2).map(shlex.join) | st.text(max_size=8) | st.just("")


def test_any_override_makes_a_sound_spec_or_a_user_error(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: j\nstrategy: multi_worker_mirrored\ntasks: {worker: 3}\nworkload: digits\n")
    outcomes: Counter[str] = Counter()

    @settings(ANY, max_examples=250)
    @given(st.lists(overrides, max_size=2), environments)
    def run(command_line: list[str], environment: str) -> None:
        outcomes[outcome(lambda: load_file(path, command_line, {"TRAINER_SET": environment}), str(path))] += 1

    run()
    assert min(outcomes["accepted"], outcomes["refused"]) > 5, "a test of one outcome says nothing"


bad_addresses = st.sampled_from(["http://a:1", "a:99999", "\0:1", ":1", "worker0:1"]) | junk
types = st.sampled_from(TASK_TYPES)
some_clusters = st.dictionaries(types | st.sampled_from(["master", "a\nb"]), st.lists(bad_addresses, max_size=2) | junk)


def configs(strategy: str) -> SearchStrategy[Any]:
    def hosts(task_type: str, most: int) -> SearchStrategy[Any]:
        return mostly(st.integers(1, most).flatmap(lambda n: st.tuples(*(some(f"{task_type}{i}:1") for i in range(n)))))

    chief, servers = {"chief": hosts("chief", 1)}, {"ps": hosts("ps", 2)}
    more = {**chief, **servers} if strategy == "parameter_server" else {}
    good = st.fixed_dictionaries({"worker": hosts("worker", 3), **more}, optional={} if more else chief)
    clusters = st.builds(lambda most, more: {**most, **more}, good, st.just({}) | st.just({}) | some_clusters)
    tasks = st.fixed_dictionaries({"type": mostly(types), "index": some(0, 0, 1, 2, -1)})
    return st.fixed_dictionaries({"cluster": mostly(clusters), "task": mostly(tasks)})


@pytest.mark.parametrize("strategy", ["parameter_server", "multi_worker_mirrored"])
def test_any_tf_config_is_a_task_of_its_cluster_or_a_user_error(strategy: str) -> None:
    servers = {"ps": 1} if strategy == "parameter_server" else {}
    spec = build({"name": "j", "strategy": strategy, "tasks": servers, "train": {"global_batch_size": 6}})
    outcomes: Counter[str] = Counter()

    @settings(ANY, max_examples=200)
    @given(configs(strategy).map(lambda config: json.dumps(config, default=str, skipkeys=True)) | st.text())
    def run(text: str) -> None:
        task: Task | None = None
        problems: tuple[str, ...] = ()
        try:
            task = from_environment(spec, {"TF_CONFIG": text})
        except UserError as error:
            problems = error.problems
        assert task or problems
        assert all(problem.isprintable() for problem in problems)
        outcomes["accepted" if task else "refused"] += 1
        if task:
            assert task.type == "evaluator" or (task.type, task.index) in task.members()
            assert task.chief in task.members()
            assert json.loads(task.tf_config())["cluster"] == json.loads(text)["cluster"]

    run()
    assert min(outcomes["accepted"], outcomes["refused"]) > 0, "a test of one outcome says nothing"
