"""A strategy is one row of the table and one loop; almost no other code tests its name."""

import ast
import asyncio
import json
import os
import runpy
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.cli.main import main
from trainer.job import derived, environment
from trainer.job.cluster import graph_cluster, tasks_of
from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.job.strategies import APIS, STRATEGIES, Api, Strategy, names
from trainer.job.tf_config import from_environment
from trainer.protocol.facts import Cause, Loss, Lost
from trainer.supervisor.rendezvous.policy import FailurePolicy
from trainer.supervisor.task.agent import Agent

ROOT = Path(__file__).parents[3]
MOST_CONDITIONALS = 3
"""Few on purpose: look for a trait before raising this."""


def conditionals(source: str) -> list[str]:
    """Comparisons with a strategy's or an API's name, or of a spec's strategy or api with anything; matches on such a
    name, and dicts that have one as a key."""
    known, found = {*STRATEGIES, *APIS}, []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare():
                parts = list(ast.walk(node))
                asks = any(isinstance(part, ast.Attribute) and part.attr in ("strategy", "api") for part in parts)
                asks |= any(isinstance(part, ast.Constant) and part.value in known for part in parts)
            case ast.Dict():
                asks = any(isinstance(key, ast.Constant) and key.value in known for key in node.keys)
            case ast.MatchValue(ast.Constant(value)):
                asks = value in known
            case _:
                asks = False
        if asks:
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("if spec.strategy == name: pass", 1),
        ("x = 1 if self.spec.strategy in (PS, GRAPH) else 2", 1),
        ("if data['strategy'] != 'tpu': pass", 1),
        ("if api in ('keras_fit', 'x') or name == 'graph': pass", 2),
        ("MAKERS = {'mirrored': f, 'tpu': g}", 1),
        ("match name:\n    case 'tpu': pass\n    case 'graph' | 'x': pass", 2),
        ("if spec.traits.one_task: text = f'{spec.strategy} is mirrored'", 0),
        ("row = STRATEGIES[spec.strategy]", 0),
        ("if task.type == 'worker': pass", 0),
    ],
)
def test_what_counts_as_a_conditional_on_a_name(source: str, count: int) -> None:
    assert len(conditionals(source)) == count


def test_few_conditionals_on_a_name_stand_outside_the_table_and_the_loops() -> None:
    package = ROOT / "trainer"
    exempt = {package / "job/strategies.py", *(package / "training/loops").rglob("*.py")}
    found = {
        str(path.relative_to(ROOT)): here
        for path in sorted(package.rglob("*.py"))
        if path not in exempt and (here := conditionals(path.read_text(encoding="utf-8")))
    }
    assert sum(map(len, found.values())) <= MOST_CONDITIONALS, found


def test_every_trait_distinguishes_rows_and_every_loop_exists() -> None:
    rows: list[tuple[type, list[Any]]] = [(Strategy, list(STRATEGIES.values())), (Api, list(APIS.values()))]
    for kind, table in rows:
        for trait in fields(kind):
            assert len({repr(getattr(row, trait.name)) for row in table}) > 1, f"{kind.__name__}.{trait.name}"
    loops = {row.loop for row in STRATEGIES.values()}
    assert all((ROOT / "trainer/training/loops" / f"{loop.replace('.', '/')}.py").is_file() for loop in loops)
    assert all(not (row.one_task and row.servers) and {*row.restart_alone} <= {*row.servers}
               for row in STRATEGIES.values())  # fmt: skip


def test_the_schema_has_the_names_of_the_table() -> None:
    found = JobSpec.model_json_schema()["properties"]
    assert (found["strategy"]["enum"], found["api"]["enum"]) == (list(STRATEGIES), list(APIS))


def test_names_as_a_phrase() -> None:
    assert names(lambda row: row.chooses_devices) == "mirrored, central_storage and one_device"
    assert names(lambda row: row.collective) == "multi_worker_mirrored"


# A strategy that there is not: a chief that sends graphs to workers, which may die alone, and of two GPUs each.
ROW = """
from pathlib import Path
import trainer.training.loops
from trainer.job.strategies import STRATEGIES, Strategy

STRATEGIES["gossip"] = Strategy(
    loop="gossip_loop", servers=("worker",), restart_alone=("worker",), replicas="one", all_reduces=("auto", "ring")
)
trainer.training.loops.__path__.append(str(Path(__file__).parent))
"""
LOOP = """
from trainer.protocol.events import Done

def run(spec, task, load, go, channel):
    layers = len(load().workload.model().layers)
    channel.send(Done(result={"by": f"{spec.strategy} on {task.name}", "layers": layers, "resumed": go.resume_step}))
"""
RAW = {"name": "j", "strategy": "gossip", "workload": "digits", "tasks": {"worker": 2}}


@pytest.fixture
def gossip(tmp_path: Path) -> Iterator[Path]:
    """The folder that holds its row, for processes to register as they start, and its loop; here it is registered."""
    (tmp_path / "sitecustomize.py").write_text(ROW)
    (tmp_path / "gossip_loop.py").write_text(LOOP)
    import trainer.training.loops as loops

    runpy.run_path(str(tmp_path / "sitecustomize.py"))
    JobSpec.model_rebuild(force=True)
    yield tmp_path
    del STRATEGIES["gossip"]
    loops.__path__.remove(str(tmp_path))
    JobSpec.model_rebuild(force=True)


def test_a_made_up_strategy_is_checked(gossip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = gossip / "job.yaml"
    path.write_text(yaml.safe_dump({**RAW, "train": {"batch_size": 8}}))
    assert main(["check", str(path)]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split() for line in lines]
    assert ["strategy", "gossip"] in shown
    assert ["replicas", "in", "sync", "1"] in shown
    assert [words[0] for words in shown if words and words[0].startswith(("chief", "worker"))] == [
        "chief:0", "worker:0", "worker:1"
    ]  # fmt: skip
    configs = [json.loads(line) for line in lines if line.startswith("{")]
    spec = build(RAW)
    assert [from_environment(spec, {"TF_CONFIG": json.dumps(config)}).name for config in configs] == [
        "chief:0", "worker:0", "worker:1"
    ]  # fmt: skip
    assert list(graph_cluster(spec, tasks_of(spec)[0])) == ["chief", "worker"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"tasks": {"worker": 2, "ps": 1}}, "tasks.ps: 1: gossip has no ps; remove tasks.ps"),
        ({"devices": ["CPU:0"]}, "devices: .* is for mirrored, central_storage and one_device; the others use all"),
        (
            {"communication": {"implementation": "nccl"}},
            "communication.implementation: 'nccl': gossip knows auto, ring",
        ),
        ({"strategy": "gosip"}, "must be one of parameter_server, .*, gossip; did you mean gossip"),
    ],
)
@pytest.mark.usefixtures("gossip")
def test_rules_know_a_made_up_strategy(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        build({**RAW, **more})


@pytest.mark.usefixtures("gossip")
def test_the_loss_of_a_worker_of_a_made_up_strategy_leaves_the_others_running() -> None:
    spec = build({**RAW, "max_restarts": 1})
    policy = FailurePolicy(spec, [], "chief:0")
    killed = Loss(Cause.KILLED, signal="SIGKILL")
    assert policy.lost("chief:0", killed).re_form
    first, second = policy.lost("worker:1", killed), policy.lost("worker:1", killed)
    assert (first.re_form, first.end, first.fact) == (False, None, Lost("worker:1", killed, "others_continue"))
    assert str(first.fact) == "worker:1 lost (killed by SIGKILL); the others continue"
    assert second.end is not None
    assert second.end[0] is Exit.GAVE_UP
    assert [derived.restarts_alone(spec, task.name, "chief:0") for task in tasks_of(spec)] == [False, True, True]
    assert [derived.is_server(spec, task.type) for task in tasks_of(spec)] == [False, True, True]


def test_the_child_of_a_made_up_strategy_runs_its_loop(gossip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = build(RAW)
    monkeypatch.setenv(environment.JOB, spec.model_dump_json(exclude_defaults=True))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(gossip), str(ROOT)]))
    chief = Agent(spec, tasks_of(spec)[0], gossip / "chief-0.log")

    async def scenario() -> dict[str, Any] | None:
        child = await chief.start_child()
        child.go(1, 40)
        await child.ended()
        assert child.failure is None, child.failure
        return child.result.result if child.result else None

    result = asyncio.run(asyncio.wait_for(scenario(), 120))
    assert result is not None, chief.log.read_text()[-2000:]
    assert (result["by"], result["resumed"], result["layers"] > 1) == ("gossip on chief:0", 40, True)
