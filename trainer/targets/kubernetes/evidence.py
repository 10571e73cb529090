"""What a job on a cluster has left for `trainer debug`: objects, events, logs, and files of a chief that runs."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from trainer.debug import ends, files
from trainer.debug.archive import Archive
from trainer.debug.ends import Ends
from trainer.debug.evidence import Evidence, Moment, seconds
from trainer.job.errors import TrainerError
from trainer.model_dir.files import json_object
from trainer.protocol.facts import parse
from trainer.targets.container import WORKSPACE
from trainer.targets.evidence import take
from trainer.targets.kubernetes import lifecycle, lookup, pods, status
from trainer.targets.kubernetes.api_server import ApiServer, connect, problem
from trainer.targets.kubernetes.objects import ConfigMap, Manifest, Pod

T = TypeVar("T")
AT_ONCE = 8
"""How many questions to the server are open at a time."""
ANSWER_SECONDS = 15.0
"""How long each answer may take."""
LOGS_SECONDS = 120.0
"""How long all logs together may take."""
TAIL_LINES = 20_000
KINDS = (*lifecycle.KINDS, "PersistentVolumeClaim", "Workload")
# Answers are texts, of which each part must be UTF-8: base64 is. Links are left out, as in debug/files.py, and all but
# the ends of a long log. Where trainer's own files are: see layout.own.
_READ = """cd "$0" || exit
own=.trainer/
if [ -f .lock ] && [ ! -d .trainer ]; then own=; fi
for f in {files} "$own"logs/* checkpoints/*/meta.json; do
  if [ -f "$f" ] && [ ! -L "$f" ]; then
    case "$f" in *.json) half=4000000;; *) half=250000;; esac
    size=$(wc -c < "$f")
    echo "FILE $size ${f#"$own"}"
    head -c "$half" "$f" | base64
    rest=$((size - half))
    if [ "$rest" -gt "$half" ]; then rest=$half; fi
    if [ "$rest" -gt 0 ]; then echo TAIL; tail -c "$rest" "$f" | base64; fi
  fi
done"""
_READ = _READ.replace("{files}", " ".join((*(f'"$own"{name}' for name in files.OWN), *files.CURVES)))


async def collect(archive: Archive, name: str, namespace: str | None) -> Evidence:
    """Adds all that there is of a job to the archive.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster or no such job.
    """
    async with connect(namespace) as server:
        parts = await lookup.jobs(server, lookup.of(name))
        if (chief := pods.chief_of(parts)) is None:
            raise lookup.no_such_job(server, name)
        collection = _Collection(
            archive, server, name, Evidence(name, f"in namespace {server.namespace}", chief=chief[1])
        )
        await collection.run()
        return collection.evidence


@dataclass
class _Collection:
    """One collection. Questions are asked at once, up to AT_ONCE; what is added is added in order."""

    archive: Archive
    server: ApiServer
    name: str
    evidence: Evidence
    limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    silent: set[str] = field(default_factory=set)
    """Nodes that have not answered."""

    async def run(self) -> None:
        objects = await self._objects()
        its_pods: list[Pod] = []
        with self.archive.part("objects/Pod.txt"):
            its_pods = await self._soon(lookup.pods(self.server, self.name))
        for pod in its_pods:  # values of variables that have no place in the spec
            self.archive.redactor.document(pod)
        with self.archive.part("status.txt"):
            take(self.archive, self.evidence, await self._soon(status.of_job(self.server, self.name)))
        for kind, each in objects:
            self.archive.document(f"objects/{kind}-{each['metadata']['name']}.json", _plain(each))
        for pod in its_pods:
            self.archive.document(f"objects/Pod-{pod['metadata']['name']}.json", _plain(dict(pod)))
            self._note_end(pod)
        await self._events(objects, its_pods)
        await self._nodes(its_pods)
        with self.archive.part("cluster.json"):
            self.archive.document("cluster.json", await self._soon(self.server.version()))
        await self._logs(its_pods)
        await self._model_dir(its_pods)

    async def _soon(self, question: Awaitable[T]) -> T:
        async with self.limit:
            return await asyncio.wait_for(question, ANSWER_SECONDS)

    async def _objects(self) -> list[tuple[str, Manifest]]:
        """The job's objects by kind. What the spec in its ConfigMap hides is known afterwards."""
        objects: list[tuple[str, Manifest]] = []
        selected = {"labelSelector": lookup.of(self.name)}
        questions = [self.server.items(kind, **({} if kind == "Workload" else selected)) for kind in KINDS]
        answers = await asyncio.gather(*map(self._soon, questions), return_exceptions=True)
        for kind, answer in zip(KINDS, answers, strict=True):
            with self.archive.part(f"objects/{kind}.txt"):
                objects += [(kind, each) for each in _some(answer) if kind != "Workload" or _owned_by(each, self.name)]
        for config in (each for kind, each in objects if kind == "ConfigMap"):
            with self.archive.part("applied-spec.json"):
                self._spec(config)
        return objects

    def _spec(self, config: Manifest) -> None:
        data = ConfigMap(data=config.get("data") or {})["data"]
        if "job" in data:
            self.archive.document("applied-spec.json", json.loads(data["job"]))

    def _note_end(self, pod: Pod) -> None:
        task, name = pods.task_of(pod), pod["metadata"]["name"]
        state = pods.state_of(pod)
        begun = seconds(state.get("running", {}).get("startedAt"))
        if "terminated" in state:
            end = state["terminated"]
            begun, over = seconds(end.get("startedAt")), seconds(end.get("finishedAt"))
            if task == self.evidence.chief:
                self._take_facts(end.get("message", ""))
            why = f" ({end['reason']})" if end.get("reason") not in (None, "Error", "Completed") else ""
            self.evidence.moments.append(
                Moment(f"its container ended with exit code {end['exitCode']}{why}", task, over)
            )
            if over and task in self.evidence.tasks:
                self.evidence.end_task(task, over)
        if begun:
            self.evidence.moments.append(Moment(f"its container was started, in pod {name}", task, begun))

    def _take_facts(self, message: str) -> None:
        """The newest facts, from the termination message of a chief whose job has failed (chief/ending.py)."""
        kept = self.archive.redactor.document(json_object(message.partition("\n")[0]))
        documents = kept.get("facts") if isinstance(kept, dict) else None
        for document in documents if isinstance(documents, list) else []:
            if isinstance(document, dict) and (entry := parse(document)):
                self.evidence.journal.append(entry)

    async def _events(self, objects: Iterable[tuple[str, Manifest]], its_pods: Sequence[Pod]) -> None:
        tasks = {pod["metadata"]["name"]: pods.task_of(pod) for pod in its_pods}
        names = {*tasks, *(each["metadata"]["name"] for _, each in objects)}
        with self.archive.part("events.json"):
            events = await self._soon(self.server.items("Event"))
            mine = [each for each in events if each["involvedObject"].get("name") in names]
            self.archive.document("events.json", [_plain(each) for each in mine])
            for each in mine:
                when = seconds(each.get("lastTimestamp") or each.get("eventTime"))
                about = each["involvedObject"]["name"]
                said = " ".join(f"{each.get('reason')}: {each.get('message') or ''}".split())
                text = self.archive.clean(said)
                self.evidence.moments.append(Moment(text, tasks.get(about, ""), when, "events.json"))

    async def _nodes(self, its_pods: Sequence[Pod]) -> None:
        names = sorted({node for pod in its_pods if (node := pod["spec"].get("nodeName"))})
        questions = [self.server.read("Node", name) for name in names]
        answers = await asyncio.gather(*map(self._soon, questions), return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            with self.archive.part(f"nodes/{name}.json"):
                if (node := _some(answer)) is None:
                    raise problem(f"node {name} is gone")
                self.archive.document(f"nodes/{name}.json", _plain(node))
                ready = [each for each in node["status"].get("conditions", []) if each["type"] == "Ready"]
                if ready and ready[0]["status"] != "True":
                    since = seconds(ready[0].get("lastTransitionTime"))
                    text = f"node {name} is not ready: {self.archive.clean(str(ready[0].get('message')))}"
                    self.evidence.moments.append(Moment(text, "", since, f"nodes/{name}.json"))
                    self.evidence.remarks.append(text)

    async def _logs(self, its_pods: Sequence[Pod]) -> None:
        wanted = [(pod, *which) for pod in sorted(its_pods, key=_age) for which in _containers(pod)]
        most = ends.share(len(wanted))
        reading = [asyncio.create_task(self._log(pod, name, previous, most)) for pod, name, previous in wanted]
        if reading:
            await asyncio.wait(reading, timeout=LOGS_SECONDS)
        for (pod, name, previous), task in zip(wanted, reading, strict=True):
            path = _log_path(pod, name, previous)
            with self.archive.part(path):
                if not task.done():
                    task.cancel()
                    raise problem(f"the logs took longer than {LOGS_SECONDS:g} s; `kubectl logs` may have it")
                log = self.archive.log(path, task.result(), pods.task_of(pod))
                self.evidence.logs += [log] if name == pods.TASK else []

    async def _log(self, pod: Pod, container: str, previous: bool, most: int) -> Ends:
        node = pod["spec"].get("nodeName", "")
        more = {"previous": "true"} if previous else {}
        async with self.limit:
            if node in self.silent:
                raise problem(f"node {node} does not answer")
            try:
                reading = _read(self.server, pod["metadata"]["name"], container, most, more)
                return await asyncio.wait_for(reading, ANSWER_SECONDS)
            except (asyncio.TimeoutError, TrainerError) as error:
                if isinstance(error, asyncio.TimeoutError) or "Kubernetes refuses this (50" in str(error):
                    self.silent.add(node)
                raise problem(str(error) or f"node {node} does not answer") from None

    async def _model_dir(self, its_pods: Sequence[Pod]) -> None:
        """Files of the chief's volume, which can be read only in a pod that runs."""
        chief = pods.newest(its_pods, self.evidence.chief)
        with self.archive.part(f"{files.FOLDER}/files.txt"):
            if chief is None or "running" not in pods.state_of(chief):
                raise problem("the chief does not run, and its volume can be read only in a pod")
            folder = f"{WORKSPACE}/runs/{self.name}"
            answer = await self._soon(self.server.execute(chief["metadata"]["name"], "sh", "-c", _READ, folder))
            listed = []
            for path, content, size in _unpacked(answer):
                listed.append(f"{size:>14,}  {path}")
                with self.archive.part(f"{files.FOLDER}/{path}"):
                    files.add(self.archive, self.evidence, path, content)
            if not listed:
                raise problem("no files, or the chief's container does not answer, or has no sh")
            self.archive.text(f"{files.FOLDER}/files.txt", "\n".join([*listed, ""]))


async def _read(server: ApiServer, pod: str, container: str, most: int, more: dict[str, str]) -> Ends:
    head = b"".join([chunk async for chunk in server.raw_log(pod, container, limitBytes=str(most // 4), **more)])
    if len(head) < most // 4:
        return Ends(head)
    tail = ends.Tail(most - most // 4)
    async for chunk in server.raw_log(pod, container, tailLines=str(TAIL_LINES), **more):
        tail.add(chunk)
    return ends.joined(ends.whole_lines_before(head), tail.read())


def _some(answer: T | BaseException) -> T:
    """An answer of asyncio.gather."""
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _containers(pod: Pod) -> Iterator[tuple[str, bool]]:
    """The containers of a pod that have started, and whether the log of an earlier start is meant."""
    states = [*pod["status"].get("initContainerStatuses", []), *pod["status"].get("containerStatuses", [])]
    for each in states:
        state = each.get("state", {})
        if each.get("restartCount"):
            yield each.get("name", pods.TASK), True
        if "running" in state or "terminated" in state:
            yield each.get("name", pods.TASK), False


def _log_path(pod: Pod, container: str, previous: bool) -> str:
    own = f"-{container}" if container != pods.TASK else ""
    name = f"{pod['metadata']['name']}{own}{'-previous' if previous else ''}"
    return f"logs/{pods.task_of(pod).replace(':', '-')}/{name}.txt"


def _unpacked(answer: str) -> Iterator[tuple[str, Ends, int]]:
    """The files in the answer to _READ."""
    for part in re.split(r"^FILE ", answer, flags=re.MULTILINE)[1:]:
        first, _, rest = part.partition("\n")
        size, _, path = first.partition(" ")
        head, _, tail = rest.partition("\nTAIL\n")
        try:
            begin, end, total = base64.b64decode(head), base64.b64decode(tail), int(size)
        except (binascii.Error, ValueError):
            continue
        if total <= len(begin) + len(end):
            yield path, Ends(begin + end), total
        else:
            begin, end = ends.whole_lines_before(begin), ends.whole_lines_after(end)
            yield path, Ends(begin, end, f"{total - len(begin) - len(end):,} of {total:,} bytes"), total


def _plain(manifest: Manifest) -> Manifest:
    """An object without the managers of its fields, and without its data in bytes, which is the user's code."""
    metadata = {k: v for k, v in manifest.get("metadata", {}).items() if k != "managedFields"}
    annotations = metadata.get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if not k.endswith("last-applied-configuration")}
    data = {k: f"{len(v):,} bytes in base64" for k, v in (manifest.get("binaryData") or {}).items()}
    return {**manifest, "metadata": {**metadata, "annotations": kept}, **({"binaryData": data} if data else {})}


def _owned_by(workload: Manifest, name: str) -> bool:
    owners = workload["metadata"].get("ownerReferences", [])
    return any(each["name"] == name or each["name"].startswith(f"{name}-") for each in owners)


def _age(pod: Pod) -> str:
    return pod["metadata"]["creationTimestamp"]
