"""The document of a page."""

from __future__ import annotations

import json
from typing import Any

from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.model_dir.history import History
from trainer.page import document
from trainer.page.document import MOST_CONFIGS, View


def job(workers: int = 2, **more: Any) -> dict[str, Any]:
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": workers}, **more})
    return document.job(spec, tasks_of(spec)[0], 5.0)


def test_each_task_has_the_tf_config_that_it_got() -> None:
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}})
    assert job()["tf_config"] == {task.name: json.loads(task.tf_config()) for task in tasks_of(spec)}


def test_of_many_tasks_only_the_first_of_each_type_has_one() -> None:
    assert [*job(MOST_CONFIGS)["tf_config"]] == [f"worker:{index}" for index in range(MOST_CONFIGS)]
    assert [*job(MOST_CONFIGS + 1)["tf_config"]] == ["worker:0"]


def test_of_secrets_the_names_are_shown_and_of_variables_no_value_that_looks_like_one() -> None:
    spec = job(
        env={"MY_TOKEN": "very-secret", "RATE": "5"}, secrets={"API_KEY": {"secret": "mine", "key": "api"}},
        notify={"webhook": "https://hooks.slack.com/services/T1/B2/very-secret"},
    )["spec"]  # fmt: skip
    assert "very-secret" not in json.dumps(spec)
    assert spec["secrets"] == {"API_KEY": {"secret": "mine", "key": "api"}}
    assert spec["env"] == {"MY_TOKEN": "[hidden: MY_TOKEN]", "RATE": "5"}


def test_figures_that_are_no_numbers_are_null_in_json() -> None:
    text = document.text(View(True, {"loss": float("nan")}, {}, eta=float("inf"), now=3.0), History())
    found = json.loads(text, parse_constant=lambda name: name)
    assert (found["version"], found["now"], found["eta"], found["status"]["loss"]) == (2, 3.0, None, None)
    assert found["history"]["marks"] == []
