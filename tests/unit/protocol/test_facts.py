"""What happened to a job: the sentence of each loss, and the way of each fact through reports and the journal."""

import json
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.job.errors import Exit, UserError
from trainer.protocol import facts
from trainer.protocol.facts import (
    KINDS,
    LABELS,
    Back,
    Began,
    Cause,
    Checkpoint,
    Ended,
    Fact,
    Formed,
    Hung,
    Loss,
    Lost,
    Note,
    Scored,
    Slow,
    Stalled,
    entry,
    parse,
)
from trainer.protocol.reports import Report, question, read_question
from trainer.protocol.types import LONGEST_TEXT

LOSSES: list[tuple[Loss, str, str]] = [
    (
        Loss(Cause.OUT_OF_MEMORY, signal="SIGKILL", memory=5 << 20, setting="tasks.ps.memory"),
        "out of memory at its limit of 5 MiB, killed by the kernel; raise tasks.ps.memory",
        "out_of_memory",
    ),
    (Loss(Cause.KILLED, "epoch 3", signal="SIGABRT"), "killed by SIGABRT: epoch 3", "killed"),
    (Loss(Cause.HANG, "is in step 12", seconds=20), "no sign of life for 20 s; it is in step 12", "hang"),
    (Loss(Cause.SILENT, seconds=10), "silent for 10 s", "silent"),
    (Loss(Cause.NO_CONTACT, seconds=12.3), "no contact with the chief for 12 s", "silent"),
    (Loss(Cause.SUPERVISOR_RESTARTED), "its supervisor was restarted", "supervisor_restarted"),
    (Loss(Cause.EXITED, status=3), "exited by itself with code 3, without a Python error", "child_ended"),
    (
        Loss(Cause.PROGRAM_ENDED, "ValueError: x", signal="SIGKILL", status=137),
        "exited with code 137 (SIGKILL): ValueError: x",
        "child_ended",
    ),
    (Loss(Cause.ERROR, error="mine.py:3: x\nfix it", code=2), "mine.py:3: x; fix it", "child_ended"),
    (Loss(Cause.PEER_LOST, "Socket closed", blames_peer=True), "Socket closed", "child_ended"),
    (Loss(Cause.PEER_SILENT, "no heartbeats", blames_peer=True), "no heartbeats", "child_ended"),
    (Loss(Cause.NOT_STARTED, "program: x: not found"), "could not be started: program: x: not found", "child_ended"),
    (Loss(Cause.ASKED_TO_STOP), "was asked to stop", "asked_to_stop"),
    (
        Loss(Cause.NO_NEW_STEP, "worker:1 is at mine.py:3", seconds=600, setting="deadlines.progress"),
        "no new step for 600 s (deadlines.progress); worker:1 is at mine.py:3",
        "no_new_step",
    ),
    (
        Loss(Cause.OVERDUE, seconds=60, setting="deadlines.evaluation"),
        "it took longer than 60 s (deadlines.evaluation)",
        "hang",
    ),
]
LOSS = LOSSES[0][0]
FACTS: list[tuple[Fact, str]] = [
    (Began("20261126-1"), "the job began"),
    (Formed(2, 3), "generation 2 formed: 3 tasks"),
    (
        Lost("worker:1", Loss(Cause.SILENT, seconds=10), "others_continue"),
        "worker:1 lost (silent for 10 s); the others continue",
    ),
    (Lost("worker:1", Loss(Cause.ASKED_TO_STOP), "re_forming"), "worker:1 was asked to stop, re-forming"),
    (Stalled(Loss(Cause.NO_NEW_STEP, seconds=9, setting="a.b")), "no new step for 9 s (a.b)"),
    (Back("worker:1", 12.34), "worker:1 runs again after 12.3 s"),
    (Hung("worker:1 is in step 12"), "the job hangs: worker:1 is in step 12"),
    (Slow("worker:1", "worker:1 is slow"), "worker:1 is slow"),
    (Checkpoint(500, 1 << 20, 0.5), "checkpoint of step 500"),
    (Scored("evaluator:0", 500, {"loss": 0.5, "accuracy": 0.75}), "step 500: loss=0.5 accuracy=0.75"),
    (Note("anything", "worker:2"), "anything"),
    (Ended(0), "the job is done"),
    (Ended(13, "worker:1: nan", "worker:1", Loss(Cause.ERROR, error="nan", code=13)), "worker:1: nan"),
]


ANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def report(loss: Loss | None) -> Report:
    return Report("worker:1", "i", "c", "s", "w", {}, loss=loss, restarted_for=loss)


def through_a_report(loss: Loss) -> Loss | None:
    found = read_question(question(report(loss), 0)).report
    assert found.loss == found.restarted_for
    return found.loss


# Losses. ------------------------------------------------------------------------------------------


def test_each_cause_has_a_sentence_of_its_own_and_a_label_of_metrics() -> None:
    assert [loss.cause for loss, _, _ in LOSSES] == list(Cause)
    assert [str(loss) for loss, _, _ in LOSSES] == [text for _, text, _ in LOSSES]
    assert [loss.cause.label for loss, _, _ in LOSSES] == [label for _, _, label in LOSSES]
    assert {loss.cause.label for loss, _, _ in LOSSES} == set(LABELS)
    bare = [str(Loss(cause)) for cause in Cause]
    assert len(set(bare)) == len(Cause), "also of a report that says no more than the cause"


@pytest.mark.parametrize("loss", [loss for loss, _, _ in LOSSES], ids=lambda loss: loss.cause.value)
def test_a_loss_survives_the_trip_in_a_report(loss: Loss) -> None:
    assert through_a_report(loss) == loss


@ANY
@given(
    st.builds(
        Loss, st.sampled_from(Cause), st.text(), st.text(), st.integers(-1, 300) | st.sampled_from(Exit), st.booleans(),
        seconds=st.none() | st.floats(0, 1e6), memory=st.none() | st.integers(0, 2**62),
    )
)  # fmt: skip
def test_a_loss_of_any_text_and_code_arrives_and_ends_the_job_there_if_it_does_here(loss: Loss) -> None:
    found = through_a_report(loss)
    assert found is not None
    assert found == loss.sendable() == found.sendable()
    assert (found.cause, found.seconds, found.ends_the_job) == (loss.cause, loss.seconds, loss.ends_the_job)


def test_a_text_that_is_too_long_is_cut_and_a_code_that_is_none_is_that_of_a_defect() -> None:
    long = Loss(Cause.ERROR, "\x1b[2J", "x" * 10**6, 99)
    found = through_a_report(long)
    assert found == Loss(Cause.ERROR, " [2J", "x" * (LONGEST_TEXT - 3) + "...", int(Exit.BUG))
    assert through_a_report(Loss(Cause.ERROR, error="x", code=0)) == Loss(Cause.ERROR, error="x"), "0 ends no job"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cause": "eaten"}, "cause"), ({"text": "x" * (LONGEST_TEXT + 1)}, "text"), ({"error": "\0"}, "error"),
        ({"code": 99}, "code"), ({"code": True}, "code"), ({"seconds": -1}, "seconds"), ({"seconds": "3"}, "seconds"),
        ({"signal": ""}, "signal"), ({"memory": 2**64}, "memory"), ({"colour": "blue"}, "colour"),
        ({"status": 2**40}, "status"), ({"setting": "a\nb"}, "setting"), ({"blames_peer": 1}, "blames_peer"),
    ],
)  # fmt: skip
def test_a_loss_that_makes_no_sense_is_no_report(changes: dict[str, object], field: str) -> None:
    body = json.loads(question(report(LOSS), 0))
    body["report"]["loss"].update(changes)
    with pytest.raises(ValueError, match=field):
        read_question(json.dumps(body).encode())


def test_an_error_of_a_task_ends_the_job_unless_it_blames_a_peer() -> None:
    loss = facts.failure_of(UserError("model_dir: is a file"))
    assert (loss.cause, loss.code, str(loss)) == (Cause.ERROR, Exit.USER, "model_dir: is a file")
    assert loss.ends_the_job
    assert not replace(loss, blames_peer=True).ends_the_job
    assert not LOSS.ends_the_job


# Facts. -------------------------------------------------------------------------------------------


def through_the_journal(fact: Fact) -> facts.Entry | None:
    return parse(json.loads(json.dumps(entry(1.0004, fact, 2, 500).document())))


@pytest.mark.parametrize(("fact", "text"), FACTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_fact_survives_the_journal(fact: Fact, text: str) -> None:
    found = through_the_journal(fact)
    assert found == entry(1.0, fact, 2, 500)
    assert (found.text, found.kind) == (text, fact.kind)
    assert found.task == getattr(fact, "task", None)


def test_each_kind_is_among_these_facts_and_has_a_name_of_its_own() -> None:
    assert {type(fact) for fact, _ in FACTS} == {*KINDS.values(), Note}
    assert len(KINDS) == len(set(KINDS.values()))


def test_a_loss_of_the_chief_s_own_child_may_have_any_text() -> None:
    long = Loss(Cause.KILLED, "\x1b" + "x" * 10**5, signal="SIGABRT")
    found = through_the_journal(Lost("worker:0", long, "re_forming"))
    assert found is not None
    assert found.fact == Lost("worker:0", long.sendable(), "re_forming")


def test_a_line_has_of_a_loss_what_differs_from_nothing() -> None:
    document = entry(1.0, Lost("worker:1", Loss(Cause.SILENT, seconds=3), "re_forming"), 1, 7).document()
    assert document == {
        "time": 1.0, "kind": "lost", "generation": 1, "step": 7, "task": "worker:1", "then": "re_forming",
        "loss": {"cause": "silent", "seconds": 3}, "text": "worker:1 lost (silent for 3 s), re-forming",
    }  # fmt: skip


LOST = entry(5.0, Lost("worker:1", LOSS, "re_forming"), 3, 700).document()
NEWER: list[tuple[dict[str, object], str]] = [
    ({**LOST, "kind": "resized"}, "a kind"),
    ({**LOST, "loss": {"cause": "struck_by_lightning"}}, "a cause"),
    ({**LOST, "loss": {**asdict(LOSS), "colour": "blue"}}, "a field of a loss"),
    ({**LOST, "then": "shrinking"}, "a consequence"),
    ({name: value for name, value in LOST.items() if name != "loss"}, "without a field"),
]


@pytest.mark.parametrize(("line", "what"), NEWER, ids=[what for _, what in NEWER])
def test_what_only_a_newer_version_knows_is_a_note_with_its_text_kind_and_task(
    line: dict[str, object], what: str
) -> None:
    found = parse(line)
    assert found is not None, what
    assert found.fact == Note(str(LOST["text"]), "worker:1")
    assert (found.text, found.kind, found.task) == (LOST["text"], line["kind"], "worker:1")
    assert (found.time, found.generation, found.step) == (5.0, 3, 700)
    assert parse(found.document()) == found, "so it stays when it is written again"


def test_fields_that_a_newer_version_adds_to_a_fact_are_left_out() -> None:
    found = parse({**LOST, "colour": "blue"})
    assert found is not None
    assert found.fact == Lost("worker:1", LOSS, "re_forming")


@pytest.mark.parametrize(
    "changes",
    [
        *({"time": time} for time in (None, "now", True, -1, float("nan"), float("inf"), 10**400)),
        {"text": None},
        {"text": 7},
    ],
    ids=str,
)
def test_a_line_without_a_time_or_a_text_is_none(changes: dict[str, object]) -> None:
    assert parse({**LOST, **changes}) is None
    assert parse({name: value for name, value in LOST.items() if name not in changes}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = sorted(
    {"time", "kind", "generation", "step", "text"} | {each.name for k in KINDS.values() for each in fields(k)}
)


@ANY
@given(
    st.sampled_from([fact for fact, _ in FACTS]),
    st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from([*KINDS, 10**400, -1]), max_size=3),
)
def test_any_line_is_none_or_an_entry_that_can_be_shown_and_written_again(
    fact: Fact, changes: dict[str, object]
) -> None:
    """A user's program may write to the journal."""
    line = json.loads(json.dumps({**entry(1.0, fact, 2, 500).document(), **changes}))
    found = parse(line)
    if found is None:
        return
    assert isinstance(found.text, str)
    assert len(found.text) <= LONGEST_TEXT
    again = parse(json.loads(json.dumps(found.document())))
    assert again is not None
    assert (again.text, again.kind, again.generation, again.step) == (
        found.text, found.kind, found.generation, found.step,
    )  # fmt: skip
