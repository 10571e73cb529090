"""What goes wrong with jobs, by symptom: the likely cause, and what to do. The table "Troubleshooting" in
docs/operating.md has these rows, and a verdict takes its advice from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.job.errors import Exit
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.known_errors import KERAS_3_HAS_NO_FIT


@dataclass(frozen=True)
class Symptom:
    """A row. Cells are Markdown; links are relative to docs/."""

    shown: str
    """What one sees."""
    cause: str
    advice: str
    pattern: str = ""
    """Found in the cause of a failure, in what a task waits for, or in a remark on a job that succeeded."""
    code: Exit | None = None
    """An exit code that is a symptom by itself, where no pattern is found."""
    causes: Sequence[Cause] = ()
    """Causes of a loss that this is the symptom of."""
    signals: Sequence[str] = ()
    """Signals that ended the process, if it is the symptom of these alone."""
    healthy: bool = False
    """Whether a healthy job can have it. The page shows its advice, and `trainer debug` does not print it."""

    def found_in(self, text: str) -> bool:
        return bool(self.pattern and re.search(self.pattern, text))

    def is_of(self, loss: Loss) -> bool:
        return loss.cause in self.causes and (not self.signals or loss.signal in self.signals)


_DEVICE = r"\S+/\S+"
"""A resource of a device plugin, as nvidia.com/gpu."""
_TAINT = r"untolerated taint(?:\(s\)|s)? \{(?!node(?:-role)?\.kubernetes\.io/)"
"""But those of control planes, and of nodes that are not ready, which no job should tolerate."""
SYMPTOMS = (
    Symptom(
        "`waiting: 1 of 2 tasks are ready; worker:0: ...`, then exit code 10",
        "the task was not started",
        "the message names the task and the reason; on Kubernetes `trainer status NAME` shows the reason of the pod",
        code=Exit.MISSING,
    ),
    Symptom(
        "exit code 11",
        "a task runs with another spec, workload file, secret or version; or its address in TF_CONFIG is wrong, or a "
        "firewall blocks it or [the port for gradients](#ports)",
        "start all tasks with the same image, spec and files; the message names both values, or the address",
        code=Exit.MISMATCH,
    ),
    Symptom(
        "exit code 12",
        "fewer GPUs or TPU cores than the spec asks for",
        "change `tasks.TYPE.gpus`, or run where the devices are",
        code=Exit.DEVICES,
    ),
    Symptom(
        "exit code 13 with a row of the data",
        "a value there is NaN or infinite, and so became the loss",
        "correct that row, or leave it out",
        r"in the data is not finite",
    ),
    Symptom(
        "exit code 13 with a step",
        "the loss became NaN or infinite",
        "lower the learning rate: `train.learning_rate`, or the one in `compile()` or `optimizer()`; look for such "
        "values in the data; with float16 try bfloat16",
        code=Exit.DIVERGED,
    ),
    Symptom(
        "`how far the job has come is not seen`",
        "a program whose checkpoints are elsewhere, as in a bucket, and that prints and reports no step: each loss "
        "counts against `max_restarts`, unless it comes ten minutes after the last one",
        "call `trainer.report(step=...)`, or keep checkpoints below `TRAINER_MODEL_DIR`, or raise `max_restarts`",
        r"how far the job has come is not seen",
    ),
    Symptom(
        "`its program ended with exit code 0, 19 s before those of the others`",
        "a worker has fewer batches than the others (tensorflow/tensorflow#58434), or left its loop earlier",
        "give all workers the same number of steps: `repeat()` the data and count steps, or leave the rest of it out",
        r"its program (has )?ended with exit code 0",
    ),
    Symptom(
        "`had not ended within 8 s (deadlines.stop), and was killed`",
        "the program, or the workload, was still saving, or does not end at SIGTERM",
        "raise `deadlines.stop`; the grace period of pods and containers follows it",
        r"had not ended within .* \(deadlines\.stop\)",
    ),
    Symptom(
        "exit code 14",
        "the same crash at the same step, or a worker that cannot complete a step; a [hang](#a-job-that-hangs)",
        "the task's log in `model_dir/.trainer/logs` has the first error",
        code=Exit.GAVE_UP,
    ),
    Symptom(
        "`killed by SIGKILL`",
        "the machine's memory was exhausted, or a person or program killed the task",
        "the kernel's log (`dmesg`) names a process that it killed for its memory; with `max_restarts: 0` a "
        "loss before the first new step ends a job",
        r"killed by (signal 9 \()?SIGKILL",
        causes=(Cause.KILLED,),
        signals=("SIGKILL",),
    ),
    Symptom(
        "`exited by itself with code N, without a Python error`",
        "the workload, or a library that it uses, ended the process, as `os._exit` does",
        "look for that call in the workload; the task's log may have the library's last words",
        causes=(Cause.EXITED,),
    ),
    Symptom(
        "`killed by SIGSEGV`, SIGABRT, SIGFPE or SIGILL",
        "a library in native code crashed, or was built for another processor",
        "the task's log has its last words; import the libraries of the workload one by one, or use other versions",
        r"killed by (signal \d+ \()?SIG(SEGV|ABRT|FPE|ILL|BUS)",
        causes=(Cause.KILLED,),
        signals=("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGBUS"),
    ),
    Symptom(
        "`killed by` any other signal",
        "a person or program ended the task's process",
        "look for what sends signals on that machine: a scheduler, a terminal that was closed, a limit of time",
        causes=(Cause.KILLED,),
    ),
    Symptom(
        "`no sign of life for ... s`, or `no new step for ... s`",
        "a task [hangs](#a-job-that-hangs): it waits for data, a lock, a file system or another task",
        "`trainer stacks` shows where each task stands; if it is only slow, raise `deadlines.hang` or "
        "`deadlines.progress`",
        causes=(Cause.HANG, Cause.NO_NEW_STEP, Cause.OVERDUE),
    ),
    Symptom(
        "`silent for ... s`, `no contact with the chief`, `its supervisor was restarted`",
        "the task's machine, container or pod was stopped, started again, or could not be reached",
        "look at that machine or pod; `deadlines.task_lost` is how long the chief waits for a report",
        causes=(Cause.SILENT, Cause.NO_CONTACT, Cause.SUPERVISOR_RESTARTED),
    ),
    Symptom(
        "an error of TensorFlow such as `Connection reset by peer`, or `stopped sending heartbeats`",
        "another task was lost, or the network between the tasks failed",
        "look for the task that was lost first: the page and `model_dir/.trainer/journal.jsonl` have all losses in "
        "order",
        causes=(Cause.PEER_LOST, Cause.PEER_SILENT),
    ),
    Symptom(
        "`could not be started`",
        "the program of the evaluator does not exist, or cannot be executed",
        "the message names the file and the reason; correct `program`, or the image",
        causes=(Cause.NOT_STARTED,),
    ),
    Symptom(
        "exit code 18 with a line of your program",
        "an error in the [program](programs.md) itself; trainer does not restart the job after one",
        "correct the line that the message names, or look where the program ends with that code; "
        "`model_dir/.trainer/logs` has all that each task wrote to stderr",
        code=Exit.PROGRAM,
        causes=(Cause.PROGRAM_ENDED,),
    ),
    Symptom(
        f"`{KERAS_3_HAS_NO_FIT} MultiWorkerMirroredStrategy`, or ParameterServerStrategy",
        "TensorFlow 2.16 and later come with Keras 3, whose `fit` supports only strategies within one process "
        "(keras#20585, keras#18624)",
        "install tf_keras and set `TF_USE_LEGACY_KERAS: '1'` in `env`, write the loop yourself, or make it a workload "
        "with `api: keras_fit`; see [programs](programs.md#limits)",
        re.escape(KERAS_3_HAS_NO_FIT),
    ),
    Symptom(
        "exit code 17",
        "the last checkpoint could not be scored in time, or the evaluator failed",
        "the trained checkpoint is kept: correct or shorten `data('test')`, or raise `deadlines.evaluation`; the same "
        "command continues",
        code=Exit.EVALUATION,
    ),
    Symptom(
        "exit code 19",
        "the job was not done within `deadlines.job`",
        "raise it, or start the job again: its time starts again",
        code=Exit.OVERDUE,
    ),
    Symptom(
        "exit code 15",
        "the chief, or the network to it, is down",
        "look at the chief's log first",
        r"has had no reply from its chief",
        Exit.CHIEF_LOST,
    ),
    Symptom(
        "exit code 20",
        "a task came back, from a node or network that was lost, after another process had taken its place",
        "nothing: the job continues without it; look at the node if it happens again",
        r"taken this one's place",
        Exit.REPLACED,
    ),
    Symptom(
        "exit code 143",
        "someone stopped the job: Ctrl-C, `kill`, a drained node or a preemption",
        "the same command resumes it",
        code=Exit.STOPPED,
        causes=(Cause.ASKED_TO_STOP,),
    ),
    Symptom(
        "`port 2222 ... cannot be used`",
        "another process holds it",
        "the message names the process; stop it, or change the port",
        r"\bport \d+ .*(cannot be used|in use)",
    ),
    Symptom(
        "exit code 2 with `model_dir` and differences",
        "the folder holds another job's checkpoints or result",
        "use another `model_dir`, or restore the previous settings; see [When a job resumes](#when-a-job-resumes)",
        r"undo the change, or choose another model_dir",
    ),
    Symptom(
        "exit code 2 with `model_dir: ...: cannot be written`",
        "the folder belongs to another user, is read-only, or is a file",
        "use another `model_dir`, or make it writable for the user that the tasks run as",
        r"model_dir: \S+: cannot be written",
    ),
    Symptom(
        "a task is killed, with an out-of-memory message; `MemoryError`",
        "the memory of the machine, or that which the container may use, is exhausted",
        "raise `tasks.TYPE.memory`, use a smaller batch, or read the data piece by piece with a `tf.data.Dataset`",
        r"(?i)out of memory|OOMKilled|MemoryError",
        causes=(Cause.OUT_OF_MEMORY,),
    ),
    Symptom(
        "`FileNotFoundError`",
        "the path is wrong, or the machine or container of the task does not have the file",
        "correct the path, or give the tasks the folder with [`data`](spec.md#data-and-code)",
        r"FileNotFoundError",
    ),
    Symptom(
        "exit code 2 with a call, such as `model(x)`",
        "the shapes, types or labels of the data do not fit the model or the loss",
        "compare those in the message with what `model()` and `data()` return",
        r"workload: \S+?: (model\(x\)|model\.train_step|data\(\)|loss\(|a step)",
    ),
    Symptom(
        "exit code 2 with a file and a line",
        "the workload raised an exception, or returned what cannot be trained",
        "correct that line; the same command continues from the last checkpoint, if there is one",
        r"workload: (\S+: )?\S+?:\d+:",
    ),
    Symptom(
        "`No space left on device`, `File too large`",
        "the disk of `model_dir` is full",
        "make room, or lower `train.keep_checkpoints`; the same command continues from the last checkpoint",
        r"No space left on device|File too large|Disk quota exceeded",
    ),
    Symptom(
        "exit code 1",
        "a defect in trainer",
        "please report it, with the archive of `trainer debug`",
        code=Exit.BUG,
    ),
    Symptom(
        "`already complete`",
        "the folder holds the result of this job",
        "raise `train.steps`, or use another `model_dir`",
        r"already complete",
    ),
    Symptom(
        "on Kubernetes `ErrImagePull`, `ImagePullBackOff`; exit code 16 with `image`",
        "the nodes, or this machine, do not have the image, and cannot pull it",
        "push it to a registry that they reach, correct `image`, or add the registry's Secret to `kubernetes`",
        r"ErrImage|ImagePull|InvalidImageName|image: '.*': is not on this machine",
    ),
    Symptom(
        "on Kubernetes `Unschedulable`, with `Insufficient` GPUs",
        "no node has that many GPUs free, or none that its device plugin has reported",
        "lower `tasks.TYPE.gpus`, or add a GPU node; `kubectl describe nodes` shows the GPUs of each, by the name in "
        "`kubernetes.gpu_resource`",
        rf"Insufficient {_DEVICE}",
    ),
    Symptom(
        "on Kubernetes `Unschedulable`, with an `untolerated taint`",
        "the nodes are kept for pods that tolerate their taint",
        "add it to `kubernetes.tolerations`, of all tasks or of a type, if the job may use these nodes",
        _TAINT,
    ),
    Symptom(
        "on Kubernetes `Unschedulable`, with `node affinity/selector`",
        "no node has the labels that the pod asks for, or its volume is of another node or zone",
        "compare `kubernetes.node_selector` and `affinity` with `kubectl get nodes --show-labels`",
        r"didn't match Pod's node affinity|volume node affinity conflict",
    ),
    Symptom(
        "on Kubernetes `Unschedulable`",
        "no node has the CPUs or the memory that the pod asks for, or is free",
        "the reason counts the nodes; lower `tasks.TYPE.cpu` or `memory`, or add a node",
        r"(?m)Insufficient (?:cpu|memory|ephemeral-storage|pods)|Too many pods|"
        rf"^(?!.*(?:Insufficient|unbound|affinity|persistentvolumeclaim|{_TAINT})).*nodes are available",
    ),
    Symptom(
        "on Kubernetes `exceeded quota`",
        "the namespace may not have that much",
        "lower what the tasks ask for, end other jobs, or have the ResourceQuota raised",
        r"exceeded quota",
    ),
    Symptom(
        "on Kubernetes a claim that is not bound",
        "the StorageClass does not exist, or has no room",
        "correct `kubernetes.volume`; `kubectl get storageclass` lists what there is",
        r"claim \S+ is not bound|storageclass\S* \"\S+\" not found|unbound immediate PersistentVolumeClaims|"
        r"didn't find available persistent volumes|persistentvolumeclaim \"\S+\" not found",
    ),
    Symptom(
        "on Kubernetes a pod is `lost`, on a node that does not answer",
        "the node, or the network to it, is down",
        "start the node, or `kubectl delete node` it if it is gone",
        r"its node \S+ does not answer|NodeLost|DeletionByTaintManager",
    ),
    Symptom(
        "exit code 16",
        "Docker or Kubernetes is missing, too old, or refuses the job",
        "follow the message; `docker info` or `kubectl cluster-info` must work first",
        code=Exit.TARGET,
    ),
    Symptom(
        "exit code 2",
        "a mistake in the spec, the workload, the data or the environment",
        "the message names value, rule and fix",
        code=Exit.USER,
        causes=(Cause.ERROR,),
    ),
    Symptom(
        "a slow start",
        "the import of TensorFlow, 2 to 4 s of one core for each task that computes",
        "`seconds_to_first_step` and its parts in `result.json` show where the time goes",
        r"seconds to the first step",
        healthy=True,
    ),
    Symptom(
        "fewer examples/s with more workers",
        "more workers than cores, or a slow network",
        "fewer bytes: see [Communication](communication.md)",
        r"more workers than cores|waits for the network",
    ),
)
MOST = 3
"""Rows that a verdict takes."""


def matching(texts: Sequence[str], code: int | None, loss: Loss | None = None) -> list[Symptom]:
    """The rows that fit: that of the loss, those whose pattern is found, in the order of the texts, then that of the
    exit code. That a program has ended with an error comes after what is known of the error. A row that only says
    that there is a mistake counts if no other does."""
    by_loss = [each for each in SYMPTOMS if loss is not None and each.is_of(loss)][:1]
    by_text = [each for text in texts for each in SYMPTOMS if each.found_in(text)]
    specific = [each for each in by_loss if each.code != Exit.PROGRAM]
    found = list(dict.fromkeys([*specific, *by_text, *by_loss]))
    by_code = [each for each in SYMPTOMS if code is not None and each.code == code]
    rows = list(dict.fromkeys([*found, *by_code]))
    return ([each for each in rows if each.code != Exit.USER] or rows)[:MOST]


def table() -> list[str]:
    """The rows of the documentation's table."""
    return [f"| {each.shown} | {each.cause} | {each.advice} |" for each in SYMPTOMS]


def plain(markdown: str) -> str:
    """A cell without links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
