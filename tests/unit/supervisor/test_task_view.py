"""A task's own state, as it is reported to the chief and shown by its /status."""

import os

from trainer.supervisor.chief import Chief
from trainer.supervisor.child import Child
from trainer.supervisor.task_view import report_of, status_of


def test_reports_are_numbered_in_the_order_in_which_they_were_made(chief: Chief) -> None:
    first, second = report_of(chief._agent), report_of(chief._agent)
    assert second.number == first.number + 1
    assert (second.incarnation, second.started) == (first.incarnation, first.started)


def test_a_report_has_the_figures_of_the_child_and_its_generation_while_it_lives(chief: Chief) -> None:
    agent = chief._agent
    assert (report_of(agent).generation, report_of(agent).status) == (0, {"pid": os.getpid()})
    agent.running = Child(agent.task, lambda *_: None)
    agent.running.generation, agent.running.status.step = 3, 40
    agent.running.status.workers = {"worker:1": {"step": 20}}
    found = report_of(agent)
    assert (found.generation, found.status["step"]) == (3, 40)
    assert found.status["workers"] == {"worker:1": {"step": 20}}
    agent.running.exit = -9
    assert (report_of(agent).generation, report_of(agent).finished) == (0, 0)
    assert status_of(agent).generation == 3


def test_what_a_task_copies_is_in_both_views(chief: Chief) -> None:
    chief._agent.copying = "data.train: 3 of 9 GB"
    assert report_of(chief._agent).status["copying"] == "data.train: 3 of 9 GB"
    assert status_of(chief._agent).document()["copying"] == "data.train: 3 of 9 GB"
