"""A job on a Docker Engine.

Compose itself starts and ends containers, and reports that to the user; this module first checks on the engine for
errors that compose would notice only half-way.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import tarfile
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container

from trainer.job.cluster import chief_of, tasks_of
from trainer.job.errors import Exit, TrainerError, outcome
from trainer.job.names import host_name
from trainer.job.spec import OUR_IMAGES, JobSpec
from trainer.model_dir import layout, result
from trainer.model_dir.files import json_object
from trainer.model_dir.result import Result
from trainer.model_dir.stacks import Stacks
from trainer.protocol.status import JobStatus
from trainer.targets import machine
from trainer.targets import tasks as of_job
from trainer.targets.answers import read_stacks, read_status
from trainer.targets.base import ContainerState, Deleted, JobOverview, LogLine, Submitted
from trainer.targets.compose import render as compose
from trainer.targets.compose import taken
from trainer.targets.compose.taken import PROJECT, SERVICE, VOLUME
from trainer.targets.container import TRACK_IMAGE, model_dir, probe
from trainer.targets.outage import NoAnswer
from trainer.targets.tunnel import Dial, ProcessStream, Stream, Tunnel

OLDEST_ENGINE = (24, 0)
"""The oldest tested version; it supports everything that the compose file uses."""
OLDEST_COMPOSE = (2, 24)
ENGINE_SECONDS = 20
CLEAR_LINE = "\x1b[K"
CONTAINERS_POLL_SECONDS = 0.5
LAST_LINES_SECONDS = 2.0
"""Time for compose to print the last lines after the end of all containers."""
_INSTALL = "see https://docs.docker.com/engine/install"


def submit(spec: JobSpec, command: str) -> Submitted:
    """Starts the job's containers and returns.

    Raises:
        TrainerError: Exit.TARGET, if this engine cannot run it; nothing was started then.
        UserError: one of the spec's secrets is missing, or the name is taken.
    """
    values = machine.secret_values(spec)
    client = connect()
    require(client, spec)
    text = compose.render({"": spec}, command)
    taken.require_own(client, spec)
    taken.require_same(client, spec, text, values, _chief(spec))
    services = [*_hosts(spec), *_track_services(spec)]
    _compose(spec, ["--file", "-", "up", "--detach", "--no-build", *services], text, values)
    return Submitted(spec.name)


def status(spec: JobSpec) -> JobOverview:
    """The status of a job: from the chief while it runs, then from its result.

    Raises:
        TrainerError: Exit.TARGET, if there is no engine or no such job.
    """
    by_service = containers(connect(), spec)
    tasks: dict[str, ContainerState] = {}
    job: JobStatus | Result | None = None
    unreadable, last_line = None, ""
    chief = ContainerState("missing")
    for task in tasks_of(spec):
        container = by_service.get(host_name(spec.name, task.type, task.index))
        tasks[task.name] = row = _row(container)
        if task.is_chief and container:
            chief = row
            running = row.state == "running"
            job, unreadable = read_status(_ask(container, spec, "status")) if running else _result(container, spec)
            if row.state == "exited" and row.code not in (Exit.OK, Exit.STOPPED):
                last_line = _verdict(container)
    if chief.state == "exited":
        return JobOverview(
            spec.name, outcome(chief.code), chief.code, last_line=last_line, tasks=tasks, job=job, unreadable=unreadable
        )
    phase = job.phase if isinstance(job, JobStatus) else chief.state
    if phase in ("done", "failed"):  # its chief still notifies the other tasks: its exit code comes with its end
        phase = "ending"
    return JobOverview(spec.name, phase, tasks=tasks, job=job, unreadable=unreadable)


def stacks(spec: JobSpec) -> Stacks:
    """The stacks of all tasks, from the chief.

    Raises:
        TrainerError: as `status`, and if the chief does not run.
    """
    by_service = containers(connect(), spec)
    container = by_service.get(_chief(spec))
    return read_stacks(_ask(container, spec, "stacks") if container else "", spec.name)


def tunnel(spec: JobSpec) -> Tunnel:
    """A tunnel to the chief's control port: each connection is a process in its container."""
    service = _chief(spec)
    relay = (*probe(of_program=bool(spec.program)), "relay")

    async def dial() -> Stream:
        return await ProcessStream.start(*_command(spec, ["exec", "--no-TTY", service, *relay]))

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Dial]:
        yield dial

    return opened


def copy(spec: JobSpec) -> str:
    """The command that copies model_dir out of the chief's container, which may have ended."""
    return f"docker cp {spec.name}-{_chief(spec)}-1:{model_dir(spec)} {spec.name}"


def _chief(spec: JobSpec) -> str:
    """The chief's service."""
    chief = chief_of(spec)
    return host_name(spec.name, chief.type, chief.index)


def logs(spec: JobSpec, task: str | None, follow: bool) -> Generator[LogLine]:
    """The output of the job's containers, or of one task's; with `follow` until all have ended.

    Raises:
        UserError: there is no such task.
        TrainerError: as `status`.
    """
    client = connect()
    follow = not _all_ended(client, spec) and follow
    hosts = {host_name(spec.name, each.type, each.index): each.name for each in tasks_of(spec)}
    hosts |= dict.fromkeys(_track_services(spec), "track")
    if task is not None:
        of_job.require(task, spec.name, [*hosts.values()])
    services = [host for host, name in hosts.items() if task in (None, name)]
    command = _command(spec, ["logs", "--no-color", *(["--follow"] if follow else []), *services])
    names = {f"{host}-1": name for host, name in hosts.items()}  # compose gives each service one container, number 1
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run,
        ThreadPoolExecutor(1) as pool,
    ):
        watching: Future[bool] | None = pool.submit(_stop_with_the_job, run, client, spec) if follow else None
        try:
            # A task's progress bar may have carriage returns, at which a text stream would cut its line.
            for line in run.stdout or ():
                if (found := _log_line(line.decode(errors="replace"), names)) is not None:
                    yield found
            stopped = watching is not None and watching.result()
        finally:
            run.terminate()
    if run.returncode and not stopped:
        raise _problem(f"`docker compose logs` ended with exit code {run.returncode}")


def delete(spec: JobSpec, volumes: bool) -> Deleted:
    """Stops and removes the job's containers and network, and with `volumes` its volume, which holds the model.

    Raises:
        TrainerError: Exit.TARGET, if there is no engine.
        UserError: its compose project has what trainer did not create, which would be removed too.
    """
    client = connect()
    taken.require_deletable(client, spec)
    _compose(spec, ["down", "--remove-orphans", *(["--volumes"] if volumes else [])])
    left = client.volumes.list(filters={"label": [f"{PROJECT}={spec.name}", f"{VOLUME}={spec.name}"]})
    return Deleted(spec.name, volume_stays=bool(left))


def _row(container: Container | None) -> ContainerState:
    if container is None:
        return ContainerState("missing", reason="it has no container; submit the job again to create it")
    state = container.attrs["State"]
    return ContainerState(
        state["Status"], state["ExitCode"], restarts=container.attrs["RestartCount"], reason=_reason(state)
    )


def _verdict(container: Container) -> str:
    """The last line of stderr. The engine may store lines of stdout and stderr in another order, and `tail` counts
    both."""
    lines = container.logs(stdout=False, tail=50).decode(errors="replace").splitlines()
    return lines[-1].strip() if lines else ""


def _reason(state: Mapping[str, object]) -> str | None:
    """Why a container does not run, where the engine knows more than its exit code."""
    if state.get("OOMKilled"):
        return "out of memory, killed by the kernel"
    return str(state["Error"]) if state.get("Error") else None


def _stop_with_the_job(following: subprocess.Popen[bytes], client: docker.DockerClient, spec: JobSpec) -> bool:
    """Ends `docker compose logs --follow` after the job's end; returns whether it was still running.

    Compose itself follows for ever where a container had ended before (pkg/compose/monitor.go, 2.40).
    """
    try:
        while following.poll() is None and not _all_ended(client, spec):
            with contextlib.suppress(subprocess.TimeoutExpired):
                following.wait(CONTAINERS_POLL_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            following.wait(LAST_LINES_SECONDS)
        return following.poll() is None
    finally:
        following.terminate()


def _log_line(line: str, names: Mapping[str, str]) -> LogLine | None:
    """Parses a line of `docker compose logs`, `CONTAINER | TEXT`; compose's own messages have no container, and some
    begin with the code that clears a terminal's line."""
    container, bar, text = line.rstrip("\n").partition(" | ")
    if bar and (task := names.get(container.strip())):
        return LogLine(task, text)
    message = line.replace(CLEAR_LINE, "").strip()
    return LogLine("compose", message) if message else None


def _track_services(spec: JobSpec) -> list[str]:
    return [compose.track_service(spec.name)] if spec.tracking else []


def _hosts(spec: JobSpec) -> list[str]:
    """The services of the tasks, without those that create the secret and wait for the job's end."""
    return [host_name(spec.name, task.type, task.index) for task in tasks_of(spec)]


def _all_ended(client: docker.DockerClient, spec: JobSpec) -> bool:
    """
    Raises:
        TrainerError: Exit.TARGET, if there is no such job.
    """
    by_service, hosts = containers(client, spec), _hosts(spec)
    return all(by_service[host].status in ("exited", "dead") for host in hosts if host in by_service)


def connect() -> docker.DockerClient:
    try:
        client = docker.from_env(timeout=ENGINE_SECONDS)
        version = client.version()["Version"]
    except (DockerException, OSError) as error:
        text = " ".join(str(error).split())
        if "Permission denied" in text:
            raise _problem("this user may not use the Docker Engine; join the group docker") from None
        raise NoAnswer(f"no Docker Engine answers ({text[:150]}); start it, or {_INSTALL}") from None
    _require(f"Docker Engine {version}", version, OLDEST_ENGINE)
    return client


def require(client: docker.DockerClient, spec: JobSpec) -> None:
    """Checks that this engine can run a job.

    Raises:
        TrainerError: Exit.TARGET, if it cannot.
    """
    _require_compose()
    _require_image(client, spec)
    _require_gpus(client, spec)


def _require_compose() -> None:
    try:
        answer = subprocess.run(
            ["docker", "compose", "version", "--short"], capture_output=True, text=True, timeout=ENGINE_SECONDS
        )
    except FileNotFoundError:
        raise _problem(f"the command docker is missing; {_INSTALL}") from None
    if answer.returncode:
        raise _problem("docker has no compose; install the package docker-compose-plugin")
    _require(f"docker compose {answer.stdout.strip()}", answer.stdout, OLDEST_COMPOSE)


def _require(what: str, version: str, oldest: tuple[int, int]) -> None:
    numbers = re.search(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < oldest:
        raise _problem(f"{what} is too old; {'.'.join(map(str, oldest))} or newer is needed")


def _require_image(client: docker.DockerClient, spec: JobSpec) -> None:
    ours = {**OUR_IMAGES, TRACK_IMAGE: "track"}
    images = [*map(spec.image_of, spec.tasks.counts()), *([TRACK_IMAGE] if spec.tracking else [])]
    for image in dict.fromkeys(images):
        try:
            client.images.get(image)
        except ImageNotFound:
            way_out = f"make image-{ours[image]}" if image in ours else f"docker pull {image}"
            raise _problem(f"image: {image!r}: is not on this machine; run `{way_out}`") from None


def _require_gpus(client: docker.DockerClient, spec: JobSpec) -> None:
    asking = [t for t in spec.tasks.counts() if (group := spec.tasks.group(t)) and group.gpus]
    if asking and "nvidia" not in client.info().get("Runtimes", {}):
        raise _problem(
            f"tasks.{asking[0]}.gpus: this Docker Engine has no NVIDIA runtime; install nvidia-container-toolkit and "
            "run `nvidia-ctk runtime configure --runtime=docker`, or set gpus: 0"
        )


def _compose(
    spec: JobSpec, words: Sequence[str], text: str | None = None, variables: Mapping[str, str] | None = None
) -> None:
    """Runs compose for the job's project; its output goes to ours.

    Args:
        text: the compose file, for `--file -`.
        given: values of variables that the file names without a value.
    """
    command = _command(spec, words)
    if code := subprocess.run(command, input=text, text=True, env={**os.environ, **(variables or {})}).returncode:
        raise _problem(f"`docker compose {words[0] if words[0] != '--file' else 'up'}` ended with exit code {code}")


def _command(spec: JobSpec, words: Sequence[str]) -> list[str]:
    return ["docker", "compose", "--project-name", spec.name, *words]


def containers(client: docker.DockerClient, spec: JobSpec) -> dict[str, Container]:
    listed = client.containers.list(all=True, filters={"label": f"{PROJECT}={spec.name}"})
    if not listed:
        raise _problem(f"{spec.name}: no such job on this Docker Engine; `trainer submit --target compose` starts it")
    return {container.labels[SERVICE]: container for container in listed}


def _ask(chief: Container, spec: JobSpec, path: str) -> bytes:
    """What the chief's control port answers; nothing if it does not."""
    try:
        code, output = chief.exec_run([*probe(of_program=bool(spec.program)), path])
    except APIError:
        return b""
    return output if code == 0 and isinstance(output, bytes) else b""


def _result(chief: Container, spec: JobSpec) -> tuple[Result | None, str | None]:
    """result.json, out of the volume of a container that has ended, or why it cannot be read; neither where it is
    not."""
    try:
        chunks, _ = chief.get_archive(f"{own(chief, model_dir(spec))}/{layout.RESULT}")
    except NotFound:
        return None, None
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        file = archive.extractfile(layout.RESULT)
        document = json_object(file.read()) if file else {}
    try:
        return (result.parse(document) if document else None), None
    except ValueError as error:
        return None, f"{layout.RESULT} cannot be read: {error}; use the version of trainer in its image"


def own(chief: Container, folder: str) -> str:
    """The folder of trainer's own files in a container, also one that has ended: see layout.own."""
    before = _exists(chief, f"{folder}/{layout.LOCK}") and not _exists(chief, f"{folder}/{layout.OWN}/{layout.LOCK}")
    return folder if before else f"{folder}/{layout.OWN}"


def _exists(container: Container, path: str) -> bool:
    """Whether there is a file, which is small."""
    try:
        chunks, _ = container.get_archive(path)
    except NotFound:
        return False
    return bool(b"".join(chunks))


def _problem(text: str) -> TrainerError:
    return TrainerError(text, Exit.TARGET)
