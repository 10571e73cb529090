"""Environment variables of tasks and of the command line, by their names."""

RESERVED = ("TF_CONFIG", "TASK_INDEX")
"""Besides those below, the names that no spec may set."""

# What a task is given.
JOB = "TRAINER_JOB"
"""The job spec, as JSON."""
SET = "TRAINER_SET"
"""Overrides as on the command line: 'train.steps=600 train.seed=1'."""
CLUSTER = "TRAINER_CLUSTER"
"""On Kubernetes: the cluster part of TF_CONFIG, of which kubelet makes the whole."""
CONTROL_PORT = "TRAINER_CONTROL_PORT"
"""An evaluator's control port: TF_CONFIG names no address for it."""
SECRET = "TRAINER_SECRET"  # noqa: S105 (a name)
"""The job's secret, with which reports are signed."""
SECRET_FILE = "TRAINER_SECRET_FILE"  # noqa: S105
"""The same, as the path of a file that holds it."""
CPUS = "TRAINER_CPUS"
"""Cores that the launcher shared out to this task."""
DATA = "TRAINER_DATA_DIR"
"""A folder that holds datasets."""
LOGS = "TRAINER_LOG_DIR"
"""A folder for the children's logs, in place of model_dir/logs."""
HOST_PATH = "TRAINER_HOST_PATH"
"""On Kubernetes, of a volume that is a folder of the node: "/DIR` on the node NAME"; the kubelet makes it as root's."""
RESTARTS = "TRAINER_RESTARTS"
"""How often the container's engine restarts it."""
PARENT = "TRAINER_PARENT"
"""PID of the parent that this process must not outlive: it may be gone before the process can ask for it."""

# What a supervisor gives its child.
EVENTS = "TRAINER_EVENTS_FD"
"""The file descriptor for events."""
CHILD = "TRAINER_CHILD"
"""A mark that a child and all that it starts have in common."""
WORKLOAD = "TRAINER_WORKLOAD_SHA256"
"""Digests of the workload's files with which the job began, as JSON."""

DEBUG = "TRAINER_DEBUG"
"""Set: an unexpected error of a command comes with its traceback."""
