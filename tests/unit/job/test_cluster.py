import json

from trainer.job.cluster import tasks_of
from trainer.job.load import build

PS = build({"name": "j", "strategy": "parameter_server", "tasks": {"worker": 2, "ps": 1, "evaluator": 1}})
MWMS = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}})


def test_tasks_of_a_parameter_server_job() -> None:
    tasks = tasks_of(PS)
    assert [task.name for task in tasks] == ["chief:0", "worker:0", "worker:1", "ps:0", "evaluator:0"]
    assert tasks[0].cluster == {
        "chief": ["j-chief-0.j:2222"],
        "worker": ["j-worker-0.j:2222", "j-worker-1.j:2222"],
        "ps": ["j-ps-0.j:2222"],
    }


def test_addresses_may_come_from_elsewhere() -> None:
    ports = {("worker", 0): 5000, ("worker", 1): 5001}
    tasks = tasks_of(MWMS, lambda task_type, index: f"localhost:{ports[task_type, index]}")
    assert tasks[1].cluster == {"worker": ["localhost:5000", "localhost:5001"]}
    assert tasks[1].address == ("localhost", 5001)


def test_tf_config_has_the_index_as_a_number_and_no_evaluator_in_the_cluster() -> None:
    config = json.loads(tasks_of(PS)[-1].tf_config())
    assert config["task"] == {"type": "evaluator", "index": 0}
    assert list(config["cluster"]) == ["chief", "worker", "ps"]


def test_the_chief_is_worker_0_where_there_is_none() -> None:
    assert [task.is_chief for task in tasks_of(PS)] == [True, False, False, False, False]
    assert [task.is_chief for task in tasks_of(MWMS)] == [True, False]
    assert tasks_of(PS)[4].chief == ("chief", 0)
    assert tasks_of(MWMS)[1].chief == ("worker", 0)


def test_a_task_describes_itself_and_its_cluster() -> None:
    worker, evaluator = tasks_of(PS)[2], tasks_of(PS)[4]
    assert worker.counts == evaluator.counts == {"chief": 1, "worker": 2, "ps": 1}
    assert worker.members() == [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
    assert worker.address == ("j-worker-1.j", 2222)
    assert evaluator.address is None
    assert evaluator.control_address("chief", 0) == ("j-chief-0.j", 3222)


def test_the_digest_is_the_same_for_all_tasks_and_another_for_another_cluster() -> None:
    (digest,) = {task.digest for task in tasks_of(PS)}
    (other,) = {task.digest for task in tasks_of(MWMS)}
    assert digest != other
