"""What the chief's supervisor does besides its own task: the meeting point, and the end of the job."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer import host
from trainer.job.errors import Exit, TrainerError
from trainer.job.messages import digits
from trainer.job.names import task_name
from trainer.model_dir import checkpoint, compatibility
from trainer.model_dir import state as job_state
from trainer.protocol.log_lines import SAY_SECONDS, say, say_error
from trainer.protocol.reports import Reply, Report
from trainer.supervisor import control, preflight, status_view
from trainer.supervisor.progress import Progress
from trainer.supervisor.rendezvous import Rendezvous

if TYPE_CHECKING:
    from trainer.supervisor.agent import Agent
    from trainer.supervisor.child import Child

BEAT_SECONDS = 0.5
SAVE_STATE_SECONDS = 5.0
"""How often the highest step is written, for a chief that is killed again and again."""
SAY_LINGER_SECONDS = 2.0
"""After the end, before it is said which tasks have not heard of it yet."""
LAST_ANSWERS_SECONDS = 0.3
REFUSALS_TOLD = 50
_TOLD_CHARACTERS = 1000


class Chief:
    """Answers everybody's reports, forms generations, and writes result.json."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._spec, self._task = agent.spec, agent.task
        self._directory = self._spec.directory
        self._clock = agent.clock
        age = host.process_age()
        self._refusal: TrainerError | None = None
        try:
            self._lock = job_state.lock(self._directory)
            self._state = job_state.load(self._directory, time.time() - age)
        except TrainerError as error:
            # The others wait for their chief: they have to be told, as of any other end.
            self._refusal, self._state = error, job_state.State(started=time.time() - age)
        boot, up = host.boot_id(), host.uptime()
        same = boot and boot == self._state.boot
        # The wall clock, which may step, counts only from machine to machine.
        before = max(age, up - self._state.up if same else time.time() - self._state.started)
        self._started = time.monotonic() - before
        self._state.boot, self._state.up = boot, up - before
        begun = self._clock()
        self._rendezvous = Rendezvous(
            self._spec,
            self._task,
            self._state.generation,
            begun,
            lambda: self._newest_step() or 0,
            Progress(self._state.step, self._state.fruitless),
        )
        self._state_saved = begun
        self._news = asyncio.Event()
        self._announced = self._rendezvous.version
        self._events_said = 0
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._asked_to_stop = 0
        self._fits: dict[str, Any] = {}
        self._warnings: list[str] = []
        self._leads = False
        """Whether this start was not refused: otherwise state.json stays that of the job that may be resumed."""
        self._refused: set[tuple[str, str]] = set()
        self._unsigned: dict[str, str] = {}
        """By the task that it claims to come from, what was refused last."""
        # Before anybody else can: the others are compared with it.
        self._rendezvous.report(agent.report(), begun)

    async def run(self, session: Any) -> Exit:
        """Until the job is over."""
        try:
            if self._refusal is not None:
                raise self._refusal
            # In a thread: of a big dataset it takes seconds.
            digest = self._agent.workload_digest
            self._fits = await asyncio.to_thread(compatibility.key, self._spec, self._task.counts, digest)
            if result := await asyncio.to_thread(self._already_complete):
                self._rendezvous.end(Exit.OK, "", result.get("steps"))
            else:
                self._refuse_what_does_not_fit()
                self._state.control_port = preflight.control_address(self._task)[1]
                job_state.save(self._directory, self._state)
                self._leads = True
                await self._lead(session)
        except TrainerError as error:
            self._rendezvous.end(error.code, str(error))
        return await self._finish()

    async def answer(self, report: Report, known: int) -> Reply:
        """A supervisor's report; held back while there is nothing new for it."""
        if report.task == self._task.name:
            return Reply("failed", 0, 0, self._rendezvous.version, Exit.MISMATCH, f"{report.task} is the chief itself")
        self._rendezvous.stopping = self._agent.leaving_since is not None
        reply = self._rendezvous.report(report, self._clock())
        self._announce()
        if reply.version == known:
            news = self._news
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), control.POLL_SECONDS)
            reply = self._rendezvous.reply()
        if reply.phase in ("done", "failed") and report.task in self._rendezvous.members:
            self._rendezvous.members[report.task].notified = True
        return reply

    def refuse(self, peer: str, task: str, why: str) -> None:
        """What came as a report, and is none of this job's: one line for each peer and reason. Anybody may send it, so
        it decides nothing."""
        if task in self._addresses():
            self._unsigned[task] = f"what {peer} sent as {task} {why}"
        if (peer, why) not in self._refused and len(self._refused) < REFUSALS_TOLD:
            self._refused.add((peer, why))
            say(f"refused what {peer} sent to /report{f' as {task}' if task else ''}: it {why}")

    def status(self) -> dict[str, Any]:
        """The whole job's view, for /status."""
        rendezvous, now = self._rendezvous, self._clock()
        tasks = status_view.tasks(rendezvous, now)
        own = self._agent.status()
        for name, row in own.pop("workers", {}).items():
            if name in tasks:
                tasks[name] = {**row, **tasks[name]}
        ended = rendezvous.phase in ("done", "failed")
        return {
            **own,
            "phase": rendezvous.phase,
            "generation": rendezvous.generation,
            "last_checkpoint": self._newest_step(),
            "waiting_for": rendezvous.waiting_for(now) or None if rendezvous.phase == "forming" else None,
            "seconds": self._seconds(),
            "events": rendezvous.events,
            "tasks": tasks,
            "end": {"code": int(rendezvous.code), "message": rendezvous.message} if ended else None,
        }

    def _seconds(self) -> float:
        """Since the job's start, those before a restart of the chief included."""
        return time.monotonic() - self._started

    async def _lead(self, session: Any) -> None:
        agent, rendezvous, said = self._agent, self._rendezvous, self._clock()
        while rendezvous.phase not in ("done", "failed"):
            now = self._clock()
            self._dial(session)
            rendezvous.stopping = agent.leaving_since is not None
            rendezvous.report(agent.report(), now)
            rendezvous.tick(now)
            self._announce()
            reply = rendezvous.reply()
            if reply.phase in ("done", "failed"):
                return
            await agent.act(reply)
            await self._look_at_child(agent.running)
            self._save_progress(now)
            if rendezvous.phase != "forming":
                said = now
            elif now - said > SAY_SECONDS:
                say(f"waiting for {rendezvous.waiting_for(now)}")
                said = now
            if agent.leaving_since is not None and self._may_leave():
                rendezvous.end(Exit.STOPPED, self._stopped())
            self._announce()
            await agent.wait_for_change(BEAT_SECONDS)

    async def _look_at_child(self, child: Child | None) -> None:
        """What the chief's own child did since: a first step, the end, or a stop that was asked for."""
        if child is None:
            return
        child.count_out(self._rendezvous.silent())
        if self._state.seconds_to_first_step is None and self._agent.first_step_at is not None:
            self._state.phases = _phases(self._started, child.times)
            self._state.seconds_to_first_step = round(sum(self._state.phases.values()), 3)
            job_state.save(self._directory, self._state)
        self._state.examples_per_second = child.status.get("examples_per_second", self._state.examples_per_second)
        if child.result is not None:
            if not self._is_result(child.result):
                self._rendezvous.end(Exit.BUG, f"{self._task.name}: its child ended with what is no result")
                return
            value, told = self._result(child, child.result)
            # In a thread: a graph's result may take seconds to write.
            await asyncio.to_thread(job_state.write_json, job_state.result_path(self._directory), value)
            say(f"done: {told[:_TOLD_CHARACTERS]} generations={self._rendezvous.generation}")
            self._rendezvous.end(Exit.OK, "", child.result.get("step"))
        elif not child.alive and child.status.get("stopped_well"):
            self._rendezvous.generation_over(self._clock())
        elif child.alive and self._asked_to_stop != child.generation and self._a_ps_is_leaving():
            child.stop()
            self._asked_to_stop = child.generation

    def _a_ps_is_leaving(self) -> bool:
        return any(m.report.leaving and m.report.task.startswith("ps:") for m in self._rendezvous.members.values())

    def _may_leave(self) -> bool:
        child = self._agent.running
        return child is None or not child.alive or self._agent.stop_deadline_passed

    def _stopped(self) -> str:
        step = self._newest_step()
        child = self._agent.running
        if step is None:
            kept = "no checkpoint was written yet"
        elif child is not None and "step" in child.status:
            kept = f"the checkpoint of step {step} is kept"
        else:  # no child has verified it
            kept = f"the newest checkpoint is that of step {step}"
        return f"stopped by a signal; {kept}; the same command resumes"

    async def _finish(self) -> Exit:
        """Tells everybody, those too who are just being started again, then goes."""
        rendezvous = self._rendezvous
        self._announce()
        await self._agent.end_children()
        if rendezvous.code is Exit.STOPPED:
            rendezvous.progress.generations_without_progress = 0
            with contextlib.suppress(TrainerError):  # the checkpoint is there; a state would only be of use
                self._save_state()
            say(rendezvous.message)
        else:
            if self._leads or rendezvous.code is Exit.OK:
                job_state.forget(self._directory)
            if rendezvous.code is not Exit.OK:
                say_error(rendezvous.message)
        await self._until_all_are_told()
        return rendezvous.code

    async def _until_all_are_told(self) -> None:
        agent, rendezvous, begun, said = self._agent, self._rendezvous, self._clock(), False
        own = rendezvous.members.get(agent.task.name)
        if own is not None:
            own.notified = True
        while unnotified := rendezvous.unnotified(now := self._clock(), leaving=agent.leaving_since is not None):
            if now - begun > SAY_LINGER_SECONDS and not said:
                seconds = self._spec.deadlines.chief_lost
                say(f"the job is over; waits for {', '.join(unnotified)} to hear of it, at most {seconds:g} s")
                said = True
            await agent.wait_for_change(0.1)
        await asyncio.sleep(LAST_ANSWERS_SECONDS)

    def _announce(self) -> None:
        """Wakes everybody whose report is held, and says new events."""
        rendezvous = self._rendezvous
        new, self._events_said = rendezvous.event_count - self._events_said, rendezvous.event_count
        for event in rendezvous.events[max(0, len(rendezvous.events) - new) :]:
            say(event["text"])
        if rendezvous.version != self._announced:
            if rendezvous.generation != self._state.generation:
                try:
                    self._save_state()
                except TrainerError as error:  # as of a full disk; it may be the report of another task that gets here
                    rendezvous.end(error.code, str(error))
            self._announced = rendezvous.version
            self._news.set()
            self._news = asyncio.Event()
            self._agent.changed.set()

    def _dial(self, session: Any) -> None:
        """Dials back every task whose address is not proven yet."""
        for name, member_address in self._addresses().items():
            member = self._rendezvous.members.get(name)
            known = member is not None and member.problem is None
            if not known and (name not in self._dialling or self._dialling[name].done()):
                self._dialling[name] = asyncio.create_task(self._dial_back(session, name, member_address))

    async def _dial_back(self, session: Any, name: str, address: tuple[str, int]) -> None:
        member = self._rendezvous.members.get(name)
        try:
            identity = await control.who_is_there(session, address)
        except ConnectionError as error:
            problem: str | None = str(error)
        else:
            there = f"{identity.job} {identity.task}"
            wanted = f"{self._spec.name} {name}"
            problem = None if there == wanted else f"at {address[0]}:{address[1]} is {there}, not {wanted}"
            if problem is None and member and identity.incarnation != member.report.incarnation:
                problem = f"at {address[0]}:{address[1]} another process calls itself {name}"
        now = self._clock()
        if member is None:
            why = problem or "its supervisor is there, but did not report yet"
            self._rendezvous.unreachable[name] = "; ".join(filter(None, (why, self._unsigned.get(name))))
        else:
            self._rendezvous.reachable(name, member.report.incarnation, problem, now)
        self._announce()

    def _addresses(self) -> dict[str, tuple[str, int]]:
        return {task_name(*m): self._task.control_address(*m) for m in self._task.members()}

    # Files. ---------------------------------------------------------------------------------------

    def _save_progress(self, now: float) -> None:
        """For a chief that is killed: at once if this generation is fruitless no more, then now and then."""
        progress, state = self._rendezvous.progress, self._state
        due = progress.step != state.step and now - self._state_saved > SAVE_STATE_SECONDS
        if due or progress.generations_without_progress < state.fruitless:
            self._save_state()

    def _save_state(self) -> None:
        rendezvous, state = self._rendezvous, self._state
        state.generation, self._state_saved = rendezvous.generation, self._clock()
        state.step, state.fruitless = rendezvous.progress.step, rendezvous.progress.generations_without_progress
        job_state.save(self._directory, state)

    def _newest_step(self) -> int | None:
        steps = checkpoint.steps(self._directory)
        return steps[-1] if steps else None

    def _refuse_what_does_not_fit(self) -> None:
        # Its SHA-256 is the child's to verify: of 8 GB it takes 40 s, in which a supervisor would not answer.
        found = checkpoint.newest(self._directory)
        if found is None:
            return
        if different := checkpoint.differences(found.meta, self._spec, self._fits):
            raise checkpoint.refusal(found.meta, self._directory, different)
        for step in checkpoint.workload_changes(self._directory, self._fits):
            self._warnings.append(f"{self._spec.workload} was changed after step {step}")
            say(f"{self._warnings[-1]}, and the training goes on with it")

    def _already_complete(self) -> dict[str, Any]:
        result = job_state.finished(self._directory)
        if not result:
            return {}
        if self._spec.traits.trains:  # whose result is all that there is: it is computed anew
            job_state.refuse_another_jobs(result, self._spec, self._fits)
        elif compatibility.differences(result["fits"], self._fits, "result"):
            return {}
        if not job_state.has_all_steps(result, self._spec):
            return {}
        say(f"already complete: {job_state.result_path(self._directory)}; choose another model_dir to train anew")
        return result

    def _is_result(self, result: dict[str, Any]) -> bool:
        if not self._spec.traits.trains:
            return "result" in result
        figures = [*result.get("test", {"": None}).values(), result.get("examples_per_second") or 0]
        # A figure of the user's may be NaN; an integer may be too large to print as a float.
        numbers = all(isinstance(f, float) or (isinstance(f, int) and abs(f) < 2**63) for f in figures)
        return "step" in result and numbers

    def _result(self, child: Child, result: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """What result.json holds, and its figures as a line."""
        rendezvous = self._rendezvous
        if not self._spec.traits.trains:
            figures = {"result": result["result"]}
            own = result["result"].items()
            told = " ".join(
                f"{name}={digits(value) if isinstance(value, float) else value}"
                for name, value in own
                if not isinstance(value, (dict, list))
            )
        else:
            test = {f"test_{name}": figure for name, figure in result["test"].items()}
            figures = {
                "steps": result["step"],
                **test,
                "examples_per_second": result.get("examples_per_second") or self._state.examples_per_second,
                "seconds_to_first_step": self._state.seconds_to_first_step,
                "seconds_by_phase": self._state.phases,
                "seconds_saving": child.status.get("seconds_saving"),
            }
            told = f"steps={result['step']} " + " ".join(f"{name}={digits(figure)}" for name, figure in test.items())
        value = {
            "status": "succeeded",
            "job": self._spec.name,
            "strategy": self._spec.strategy,
            **figures,
            "seconds": round(self._seconds(), 3),
            "generations": rendezvous.generation,
            # Until the evaluator has scored the last checkpoint: it takes this away, or gives the reason.
            "warnings": [
                *self._warnings,
                *(f"{name}: the last checkpoint is not scored yet" for name in rendezvous.evaluators),
            ],
            "tasks": dict(sorted(rendezvous.start_lines.items())),
            "events": rendezvous.events,
            "versions": self._agent.versions,
            "fits": {**self._fits, **job_state.steps_asked(self._spec)},
            "spec": self._spec.model_dump(mode="json"),
        }
        return value, told


def _phases(started: float, times: Mapping[str, float]) -> dict[str, float]:
    """Seconds until the first step was done, by what they went into; `times` as in Child."""
    ends = {
        "import": times["warm"],
        "rendezvous": max(times["go"], times["warm"]),
        "build": times.get("start"),
        "trace": times.get("traced"),
        "first_step": times["step"],
    }
    phases, last = {}, started
    for name, end in ends.items():
        if end is not None:
            phases[name], last = round(end - last, 3), end
    return phases
