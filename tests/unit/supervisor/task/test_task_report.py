"""A task's own state, as it is reported to the chief and shown by its /status."""

import os

from trainer.protocol.child import ChildStatus
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children.child import Child
from trainer.supervisor.task.task_report import make_report, task_status


def test_reports_are_numbered_in_the_order_in_which_they_were_made(chief: Chief) -> None:
    first, second = make_report(chief._agent), make_report(chief._agent)
    assert second.number == first.number + 1
    assert (second.incarnation, second.started) == (first.incarnation, first.started)


def test_a_report_has_the_figures_of_the_child_and_its_generation_while_it_lives(chief: Chief) -> None:
    agent = chief._agent
    assert (make_report(agent).generation, make_report(agent).status) == (0, ChildStatus(pid=os.getpid()))
    agent.running = Child(agent.task, lambda *_: None)
    agent.running.generation, agent.running.status.step = 3, 40
    found = make_report(agent)
    assert (found.generation, found.status.step) == (3, 40)
    agent.running.exit = -9
    assert (make_report(agent).generation, make_report(agent).finished) == (0, 0)
    assert task_status(agent).generation == 3


def test_what_a_task_copies_is_in_both_views(chief: Chief) -> None:
    chief._agent.copying = "data.train: 3 of 9 GB"
    assert make_report(chief._agent).status.copying == "data.train: 3 of 9 GB"
    assert task_status(chief._agent).document()["copying"] == "data.train: 3 of 9 GB"
