"""`trainer task`: the program that a container runs.

It reads TF_CONFIG and the job, joins its peers through the chief's supervisor, runs TensorFlow in a child, and exits
when the chief replies that the job is over. It has one loop: report the state, execute the reply.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING

from trainer import connections, host
from trainer.job import environment, load, program, secret, tf_config
from trainer.job.errors import Exit, TrainerError
from trainer.job.messages import nearest
from trainer.protocol import log_lines
from trainer.protocol.log_lines import first_line, log_error, log_line
from trainer.supervisor import preflight, restart_guard
from trainer.supervisor.children import child_environ, interpreter, orphans
from trainer.supervisor.metrics.usage import Meter
from trainer.supervisor.task import data_copies
from trainer.supervisor.task.agent import Agent
from trainer.workloads.check import check_workload

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.job.cluster import Task
    from trainer.job.spec import JobSpec
    from trainer.page.listen import Port
    from trainer.protocol.status import TaskStatus
    from trainer.supervisor.chief.chief import Chief
    from trainer.supervisor.views.live_page import LivePage

OBJECTS_OF_A_TASK = 10
"""New objects for each task of the job before Python's garbage collector runs."""
CERTIFICATES = "SSL_CERT_FILE"
"""Where OpenSSL finds the certificates that it trusts."""


def main() -> int:
    """Runs one task to its end; returns the exit code."""
    try:
        host.die_with_parent(signal.SIGTERM)
        spec = load.load_environment()
        job_secret = secret.take()
        host.wipe_variable(environment.SECRET)
        host.dump_no_memory()
        task = tf_config.from_environment(spec)
        log = preflight.log_file(spec, task)
    except TrainerError as error:
        log_error(str(error))
        return int(error.code)
    if (code := restart_guard.repeat_failure(log)) is not None:
        return int(code)
    try:
        preflight.check_secrets(spec)
        preflight.unpack_code()
        agent = _agent_of_program(spec, task, log, job_secret) if spec.program else _agent(spec, task, log, job_secret)
        code = asyncio.run(_run(agent))
    except TrainerError as error:
        log_error(str(error))
        code = _tell_end(spec, task, error) if task.is_chief else _tell_chief(spec, task, job_secret, error)
    restart_guard.remember(log, code)
    return int(code)


def _tell_chief(spec: JobSpec, task: Task, job_secret: bytes, error: TrainerError) -> Exit:
    _import_rest()
    from trainer.supervisor.task.follower import report_failure

    return asyncio.run(report_failure(spec, task, job_secret, error))


def _tell_end(spec: JobSpec, task: Task, error: TrainerError) -> Exit:
    """The chief cannot lead the job: that is how it ends."""
    _import_rest()
    from trainer.supervisor.outside import webhook

    asyncio.run(webhook.tell(spec, task, webhook.Ending(error.code, str(error)), spec.deadlines.notify))
    return error.code


def _agent(spec: JobSpec, task: Task, log: Path, job_secret: bytes) -> Agent:
    preflight.check_tensorflow()
    check_workload(spec)
    return Agent(spec, task, log, job_secret)


def _agent_of_program(spec: JobSpec, task: Task, log: Path, job_secret: bytes) -> Agent:
    """Checks that the program can be started, and finds the packages of its interpreter."""
    environ = child_environ.of_program(spec, task)
    program.command(spec, spec.program_of(task.type), environ)
    versions, has_trainer = interpreter.probe(spec, task.type, environ, _import_rest)
    agent = Agent(spec, task, log, job_secret, versions)
    if not has_trainer:
        agent.importable = interpreter.python_path(environ)
    return agent


async def _run(agent: Agent) -> Exit:
    spec, task = agent.spec, agent.task
    if spec.page != "none":
        log_lines.readers.append(agent.logs.add)
    log_line(first_line(spec, task, agent.versions))
    for warning in _unknown_variables(spec, task) if spec.program else []:
        log_line(warning)
    await orphans.end_left_over()
    beside: list[asyncio.Task[None]] = []
    if folders := data_copies.wanted(spec, task.type):
        agent.copying = "its copies of the data have not begun"
        beside.append(asyncio.create_task(data_copies.keep(agent, folders)))
    elif task.type != "evaluator":
        # The child's import takes longest: it starts first, and the imports below run at the same time.
        await agent.prepare_child()
    _import_rest()
    from trainer.supervisor.chief.chief import Chief
    from trainer.supervisor.control_port import peers
    from trainer.supervisor.outside import webhook
    from trainer.supervisor.task.follower import follow

    if task.is_chief:
        webhook.check(spec, task)
    loop = asyncio.get_running_loop()
    connections.quiet_about_descriptors(loop, log_line)
    beside.append(asyncio.create_task(agent.clock.run()))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.leave)
    await preflight.until_port_is_free(task)
    chief = Chief(agent) if task.is_chief else None
    if chief:
        # By default after 700 new objects, which of thousands of tasks takes a quarter of the chief's time.
        gc.set_threshold(max(gc.get_threshold()[0], OBJECTS_OF_A_TASK * len(task.members())))
    page = chief.live_page() if chief and spec.page != "none" else None
    meter = Meter(agent)
    ports = await _serve(agent, chief, page, meter)
    beside += [asyncio.create_task(each) for each in (meter.run(), *_beside(agent, chief))]
    try:
        async with peers.client() as session:
            code = await (chief.run(session) if chief else follow(agent, session))
    finally:
        for each in beside:
            each.cancel()
        await agent.end_children()
        if page:
            await page.close()
        for port in ports:
            await port.close()
    return code


def _unknown_variables(spec: JobSpec, task: Task) -> list[str]:
    environ = {**child_environ.of_program(spec, task), environment.GENERATION: ""}
    ours = [name for name in environ if name.startswith("TRAINER_")]
    return [
        f"warning: program: $({name}): there is no such variable, so the text stays as it is"
        f"{nearest(f'TRAINER_{name}', ours)}"
        for name in program.unknown(spec.program_of(task.type), environ)
    ]


def _import_rest() -> None:
    """Imports what a task needs only once its child or the probe of its program's interpreter runs.

    aiohttp reads the machine's certificates twice when it is imported: 50 ms, and no supervisor uses TLS.
    """
    before = os.environ.get(CERTIFICATES)
    os.environ[CERTIFICATES] = os.devnull
    try:
        import aiohttp  # noqa: F401
    finally:
        del os.environ[CERTIFICATES]
        if before is not None:
            os.environ[CERTIFICATES] = before
    from trainer.supervisor.chief import chief  # noqa: F401
    from trainer.supervisor.control_port import server  # noqa: F401
    from trainer.supervisor.task import follower  # noqa: F401
    from trainer.supervisor.views import live_page  # noqa: F401


async def _check_isolation(chief: Chief) -> None:
    from trainer.supervisor.chief import network_policy

    if text := await network_policy.warning():
        chief.warn(text)


def _beside(agent: Agent, chief: Chief | None) -> Iterator[Coroutine[None, None, None]]:
    """What runs until the task ends, beside its own loop."""
    if chief:
        yield _check_isolation(chief)
    if agent.spec.page != "none":
        yield agent.logs.follow()


async def _serve(agent: Agent, chief: Chief | None, page: LivePage | None, meter: Meter) -> list[Port]:
    """Listens on the control port, and where it is wanted on a port for /metrics alone."""
    from trainer.page.routes import routes
    from trainer.protocol.reports import Identity
    from trainer.supervisor.control_port import server
    from trainer.supervisor.task import task_report

    interface, port = preflight.control_address(agent.task)
    identity = Identity(agent.spec.name, agent.task.name, agent.incarnation)
    view = chief.status if chief else functools.partial(task_report.task_status, agent)
    scrape = functools.partial(metrics_text, agent, meter, view)
    hosts = {agent.task.control_address(*each)[0] for each in agent.task.members()}

    def status() -> dict[str, object]:
        return view().document()

    more = [server.metrics_route(scrape)]
    if chief:
        more += [server.stacks_route(chief.stacks), server.report_route(chief.answer, chief.refuse, agent.secret)]
    if page:
        more += routes(page, _names(agent))
    ports = [await server.serve(port, interface, identity, status, more, hosts, len(agent.task.members()))]
    if metrics_port := preflight.metrics_port():
        ports.append(await server.serve_metrics(metrics_port, interface, identity, scrape))
    if chief and interface is None and not agent.secret:
        chief.warn(
            f"the job has no secret: any program that reaches port {port} can end it; `trainer submit` makes one, with "
            f"kubectl make it first (the manifest's first lines), elsewhere set {environment.SECRET}"
        )
    if chief and interface is None and agent.spec.page == "network":
        chief.warn(f"page: network: all that reach port {port} can read the job's logs and its spec")
    return ports


def metrics_text(agent: Agent, meter: Meter, status: Callable[[], TaskStatus]) -> bytes:
    """The text of /metrics."""
    from trainer.supervisor.metrics import prometheus  # its client takes 30 ms to import

    workers = agent.running.current_workers() if agent.running else {}
    return prometheus.text(status(), workers, agent.versions, meter.usage, meter.gpus)


def _names(agent: Agent) -> set[str] | None:
    """The names by which other machines may ask for the page; None if they may not."""
    if agent.spec.page != "network":
        return None
    return {socket.gethostname(), agent.task.control_address(*agent.task.chief)[0]}
