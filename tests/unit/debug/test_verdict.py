"""The verdict on facts as each place has them; those of real jobs are in tests/local, tests/compose and tests/kind."""

from __future__ import annotations

import pytest

from trainer.debug.evidence import Evidence, Log, Moment, TaskEvidence
from trainer.debug.verdict import Verdict, verdict
from trainer.job.errors import Exit
from trainer.model_dir.stacks import Frame, Group, Stacks
from trainer.protocol.facts import Began, Cause, Ended, Entry, Fact, Formed, Hung, Loss, Lost, Stalled, entry


def failed(code: int, message: str, **more: object) -> Verdict:
    return verdict(Evidence("j", "here", "failed", code, f"trainer: {message}", **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "message", "task", "place", "advice"),
    [
        (1, "worker:1: unexpected KeyError: 'x'", "worker:1", "", "please report it"),
        (2, "worker:0: workload: mine.py:4: ZeroDivisionError: x", "worker:0", "mine.py:4", "correct that line"),
        (2, "model_dir: r: its checkpoint of step 1 does not fit this spec: x; undo the change, or choose another "
            "model_dir", "chief:0", "", "use another"),
        (2, "worker:1: workload: mine.py:5: MemoryError", "worker:1", "mine.py:5", "piece by piece"),
        (2, "worker:0: workload: mine.py:5: FileNotFoundError: [Errno 2] No such file: 'x'", "worker:0", "mine.py:5",
         "correct the path"),
        (2, "worker:1: workload: mine.py: model(x): ValueError: expected axis -1 to have value 5", "worker:1", "",
         "compare those in the message"),
        (2, "worker:0: workload: mine.py: /x/rows.py:7: KeyError: 'a'", "worker:0", "/x/rows.py:7", "that line"),
        (2, "model_dir: run: cannot be written: File exists; choose another one", "chief:0", "", "make it writable"),
        (2, "worker:0: port 2222 on this machine is in use", "worker:0", "", "stop it"),
        (10, "1 of 2 tasks are ready; worker:1: has not reported (refused)", "worker:1", "", "names the task"),
        (11, "the cluster cannot form: worker:1: x", "worker:1", "", "same image"),
        (12, "worker:1: asked for 1 GPU(s), sees 0", "worker:1", "", "`tasks.TYPE.gpus`"),
        (14, "2 generations without a new step (max_restarts); last: worker:0 lost (killed by SIGSEGV)", "worker:0", "",
         "its last words"),
        (14, "worker:2 was lost 3 times in a row without a step (max_restarts); last: out of memory at its limit",
         "worker:2", "", "tasks.TYPE.memory"),
        (15, "worker:1 has had no reply from its chief (127.0.0.1:1) for 4 s", "chief:0", "", "chief's log"),
        (18, "worker:1: ended with exit code 1: ValueError: x (train.py:7 in main)", "worker:1", "train.py:7",
         "correct the line"),
        (19, "the job has taken longer than 9 s (deadlines.job)", "chief:0", "", "raise it"),
    ],
)  # fmt: skip
def test_the_chief_s_message_has_the_task_and_the_line(
    code: int, message: str, task: str, place: str, advice: str
) -> None:
    found = failed(code, message)
    assert (found.outcome, found.code, found.place) == ("failed", code, place)
    assert found.cause
    assert (found.cause.task, found.cause.text) == (task, message)
    assert found.headline.startswith(f"j failed with exit code {code}: ")
    assert advice in found.advice[0].advice
    assert found.meaning == Exit(code).meaning


def test_the_first_failure_has_its_time_and_what_followed_comes_later() -> None:
    logs = [
        Log("logs/w0", "1970-01-01T00:00:05Z re-forming\n1970-01-01T00:00:09.5Z trainer: worker:1: x\n", "worker:0"),
        Log("logs/w1", "1970-01-01T00:00:09.25Z trainer: x\n", "worker:1"),
    ]  # fmt: skip
    tasks = {"worker:0": TaskEvidence("exited", 2, ended=11.0), "worker:1": TaskEvidence("exited", 2, ended=10.0)}
    found = failed(2, "worker:1: x", logs=logs, tasks=tasks)
    assert found.cause == Moment("worker:1: x", "worker:1", 9.25, "logs/w1")
    assert found.followed == [Moment("ended with exit code 2", "worker:0", 11.0)]


ABORTED = Loss(Cause.KILLED, signal="SIGABRT")


def journal(*facts: Fact) -> list[Entry]:
    """Evidence of consecutive seconds, from the third on."""
    return [entry(float(second), fact, 1) for second, fact in enumerate(facts, 3)]


def test_a_loss_that_repeats_is_dated_by_the_first_and_explained_by_the_log_of_its_task() -> None:
    own = "2026-01-01 10:00:00.1: I ok\n2026-01-01 10:00:01.1: F tensorflow/core/x.cc:33] Check failed: a == b\n"
    message = "2 generations without a new step (max_restarts); last: worker:1 lost (killed by SIGABRT)"
    recorded = journal(
        Lost("worker:1", ABORTED, "re_forming"),
        Formed(2, 2),
        Lost("worker:1", ABORTED, "re_forming"),
        Ended(14, message, "worker:1", ABORTED),
    )
    logs = [Log("w0", "F0000 11: other", "worker:0"), Log("w1", own, "worker:1")]
    found = failed(14, message, logs=logs, journal=recorded, journal_path="journal.jsonl")
    assert found.cause == Moment("worker:1 lost (killed by SIGABRT), re-forming", "worker:1", 3.0, "journal.jsonl")
    assert found.followed[0].text == "generation 2 formed: 2 tasks"
    (detail,) = found.details
    assert detail.startswith("the log of worker:1: ")
    assert "Check failed: a == b" in detail
    assert found.advice[0].shown.startswith("`killed by SIGSEGV`, SIGABRT")


def test_a_loss_of_an_earlier_start_is_not_the_first_of_this_one() -> None:
    again = Lost("worker:1", ABORTED, "re_forming")
    recorded = journal(
        Began(), again, Ended(14, "x", "worker:1", ABORTED), Began(), Lost("worker:0", ABORTED, "re_forming")
    )
    ended = journal(*[each.fact for each in recorded], Ended(14, "worker:0 again", "worker:0", ABORTED))
    found = failed(14, "worker:0 again", journal=ended)
    assert found.cause
    assert (found.cause.task, found.cause.time) == ("worker:0", 7.0)


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_advice(cause: Cause) -> None:
    loss = Loss(cause, "x", signal="SIGUSR1", status=3, seconds=9.0, setting="deadlines.hang")
    code = Exit.USER if cause is Cause.ERROR else Exit.GAVE_UP
    found = failed(code, "x", journal=journal(Ended(code, "x", "worker:1", loss)))
    assert found.advice
    assert cause in found.advice[0].causes


def test_a_hang_is_explained_by_the_line_about_where_the_tasks_were() -> None:
    stalled = Loss(Cause.NO_NEW_STEP, seconds=9.0, setting="deadlines.progress")
    message = f"1 generation without a new step (max_restarts); last: {stalled}"
    recorded = journal(
        Hung("worker:2 waits in data(): mine.py:41 read()"), Stalled(stalled), Ended(14, message, None, stalled)
    )
    found = failed(14, message, journal=recorded)
    assert found.details == ["the job hangs: worker:2 waits in data(): mine.py:41 read()"]
    assert found.place == "mine.py:41"
    assert "trainer stacks" in found.advice[0].advice


TEXT = "2 tasks wait for the batch of step 94 (slow.py:15)"
CALLS = "worker:0 and 1 more at slow.py:15 rows(), slow.py:9 data()"


def hang(time: float) -> Stacks:
    frames = [
        Frame("socket.py", 7, "read", False),
        Frame("slow.py", 15, "rows", True),
        Frame("slow.py", 9, "data", True),
    ]
    return Stacks(time, TEXT, [Group(["worker:0", "worker:1"], "", "waiting for the batch of step 94", [frames])])


def test_a_job_that_ended_while_it_hung_has_the_lines_of_its_stacks() -> None:
    recorded = journal(Began(), Formed(1, 2))
    late = failed(19, "the job has taken longer than 9 s (deadlines.job)", journal=recorded, hangs=[hang(1e9)])
    assert (late.details, late.place) == ([TEXT, CALLS], "slow.py:15")
    known = f"the job has taken longer than 9 s (deadlines.job); no new step for 50 s: {TEXT}"
    assert failed(19, known, journal=recorded, hangs=[hang(1e9)]).details == [CALLS]
    message = "stopped by a signal; x"
    stopped = verdict(Evidence("j", "here", "stopped", 143, message, journal=recorded, hangs=[hang(1e9)]))
    assert (stopped.outcome, stopped.details, stopped.place) == ("stopped", [TEXT, CALLS], "slow.py:15")


def test_a_hang_that_was_over_is_not_how_a_job_ended() -> None:
    assert failed(2, "worker:0: x", journal=journal(Began(), Formed(2, 2)), hangs=[hang(0.0)]).details == []


def test_without_a_message_the_place_s_reason_is_the_cause() -> None:
    tasks = {"chief:0": TaskEvidence("failed", 137, "OOMKilled", ended=5.0), "worker:0": TaskEvidence("failed", 15)}
    found = verdict(Evidence("j", "here", "failed", 137, tasks=tasks))
    assert found.cause == Moment("chief:0: OOMKilled", "chief:0", 5.0)
    assert "tasks.TYPE.memory" in found.advice[0].advice
    assert found.meaning == "killed by signal 9"
    assert [each.task for each in found.followed] == ["worker:0"]


@pytest.mark.parametrize(
    ("code", "task", "state", "reason", "advice", "message"),
    [
        (10, "worker:0", "missing", "FailedCreate: exceeded quota: memory, requested: 9Gi", "ResourceQuota",
         "the cluster did not form after 45 s (deadlines.start): worker:0: has not reported (j-worker-0.j does not "
         "resolve (DNS))"),
        (15, "chief:0", "pending", "ErrImagePull: failed to pull image \"mine:1\"", "image",
         "worker:1 has had no reply from its chief (chief:0) for 45 s (deadlines.start): j-chief-0.j does not resolve "
         "(DNS); is it running, and is its address in TF_CONFIG right?"),
    ],
)  # fmt: skip
def test_of_a_task_that_never_ran_the_place_s_reason_is_named_too(
    code: int, task: str, state: str, reason: str, advice: str, message: str
) -> None:
    log = Log("w", f"1970-01-01T00:00:09Z trainer: {message}\n", "worker:1")
    found = verdict(
        Evidence("j", "here", "failed", code, message, tasks={task: TaskEvidence(state, reason=reason)}, logs=[log])
    )
    assert found.cause
    assert (found.cause.task, found.cause.time) == (task, 9.0)
    assert found.headline.endswith(f"; {task}: {reason}")
    assert advice in found.advice[0].advice


def test_without_any_word_the_first_error_of_the_logs_is_the_cause() -> None:
    logs = [
        Log("b", "1970-01-01T00:00:09Z trainer: it follows\n", "worker:1"),
        Log("a", "1970-01-01T00:00:08Z trainer: warning: x\n1970-01-01T00:00:08Z trainer: it began\n", "worker:0"),
    ]
    found = verdict(Evidence("j", "here", "failed", 2, logs=logs))
    assert found.cause
    assert found.cause.text == "it began"


def test_problems_on_several_lines_are_one_cause_and_details() -> None:
    found = failed(2, "train.steps: x\ntrainer: tasks: y")
    assert found.cause
    assert (found.cause.text, found.details) == ("train.steps: x", ["tasks: y"])


def test_a_stop_is_no_failure() -> None:
    message = "stopped by a signal; the checkpoint of step 5 is kept; the same command resumes"
    found = verdict(Evidence("j", "here", "failed", 143, message))
    assert (found.outcome, found.headline) == ("stopped", f"j was stopped: {message}")
    assert "resumes" in found.advice[0].advice


def test_a_job_that_waits_names_for_what() -> None:
    tasks = {
        "chief:0": TaskEvidence("running"),
        "worker:0": TaskEvidence("pending", reason="Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."),
    }
    found = verdict(Evidence("j", "here", "forming", tasks=tasks))
    assert found.outcome == "waiting"
    assert found.headline.startswith("j waits for worker:0: Unschedulable: 0/3 nodes are available")
    assert found.cause
    assert found.cause.task == "worker:0"
    assert "add a node" in found.advice[0].advice


def test_a_job_that_runs_has_no_failure_and_its_last_loss_is_named() -> None:
    assert verdict(Evidence("j", "here", "running")).headline == "j runs (running), and nothing has failed"
    lost = Evidence(
        "j", "here", "running", journal=journal(Lost("worker:1", Loss(Cause.KILLED, signal="SIGKILL"), "re_forming"))
    )
    found = verdict(lost)
    assert (found.outcome, found.code) == ("running", None)
    assert found.headline == "j runs (running); before that worker:1 lost (killed by SIGKILL), re-forming"


def test_a_job_that_never_started_names_why() -> None:
    found = verdict(Evidence("j", "here", code=2, problems=["job.yaml: train.stepss: 1: unknown key", "another"]))
    assert (found.outcome, found.details) == ("never started", ["another"])
    assert found.headline == "j never started: job.yaml: train.stepss: 1: unknown key"


def test_a_job_whose_end_is_unknown_is_reported_as_such() -> None:
    killed = Moment("worker:1 was killed by signal 9 (SIGKILL), restarting it", "local")
    found = verdict(Evidence("j", "here", "vanished", moments=[killed]))
    assert found.outcome == "vanished"
    assert "do not show how" in found.headline
    assert found.details == ["the last known event: worker:1 was killed by signal 9 (SIGKILL), restarting it"]


def test_success_is_named_with_what_is_worth_a_look() -> None:
    found = verdict(Evidence("j", "here", "done", 0, remarks=["9.1 seconds to the first step: import 6.0"]))
    assert (found.outcome, found.headline) == ("succeeded", "j succeeded")
    assert found.advice[0].shown == "a slow start"
