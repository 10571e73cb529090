"""Contents of the images: what they must and must not contain."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from docker.errors import ImageNotFound

from tests.compose.project import CLIENT, ROOT
from trainer import __version__
from trainer.job.cluster import Task
from trainer.job.load import build

VARIANTS = ["cpu", "cuda"]
LIMIT_BYTES = {"cpu": 1.0e9, "cuda": 5.5e9, "tensorboard": 0.3e9, "track": 0.3e9, "supervisor": 0.1e9}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    try:
        image = CLIENT.images.get(f"trainer:{name}")
    except ImageNotFound:
        assert name == "cuda", "make image-cpu"
        pytest.skip("trainer:cuda is not built: it is built by `make images`, and in CI when images/ changes")
    # `make test-compose` builds the others.
    revision = str(image.labels.get("org.opencontainers.image.revision"))
    if (
        name == "cuda"
        and subprocess.run(["git", "diff", "--quiet", revision, "HEAD", "--", "images"], cwd=ROOT).returncode
    ):
        pytest.skip(f"trainer:cuda was built at {revision[:7]}, and images/ has changed since: make image-cuda")
    return name


def run(variant: str, *command: str, code: int = 0, **options: Any) -> str:
    """What a container prints that ends with that code; locked down as the compose file does it."""
    locked: dict[str, Any] = {"read_only": True, "tmpfs": {"/tmp": ""}, "cap_drop": ["ALL"], "network_mode": "none"}
    container = CLIENT.containers.run(f"trainer:{variant}", list(command), detach=True, **{**locked, **options})
    try:
        ended = container.wait(timeout=120)["StatusCode"]
        output = container.logs().decode()
        assert ended == code, output
        return str(output)
    finally:
        container.remove(v=True, force=True)


def python(variant: str, program: str) -> str:
    return run(variant, "-c", program, entrypoint="python3")


def alone(spec: dict[str, Any]) -> dict[str, str]:
    """The environment of a job of one task."""
    job = build(spec)
    task = Task("worker", 0, {"worker": ["localhost:2222"]})
    return {"TRAINER_JOB": job.model_dump_json(exclude_defaults=True), "TF_CONFIG": task.tf_config()}


def job(**more: Any) -> dict[str, Any]:
    train = {"steps": 20, "batch_size": 32}
    return {"name": "alone", "strategy": "multi_worker_mirrored", "train": train, "warm_standby": False, **more}


@pytest.mark.parametrize("name", LIMIT_BYTES)
def test_size(name: str) -> None:
    try:
        image = CLIENT.images.get(f"trainer:{name}")
    except ImageNotFound:
        pytest.skip(f"trainer:{name} is not built")
    assert image.attrs["Size"] <= LIMIT_BYTES[name]


def test_it_runs_as_an_unprivileged_user_and_declares_stop_signal_and_health_check(variant: str) -> None:
    config = CLIENT.images.get(f"trainer:{variant}").attrs["Config"]
    assert config["User"] == "1000:1000"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"][0] == "CMD", "no shell is needed"
    assert config["Entrypoint"][0] == "tini"
    assert config["Labels"]["org.opencontainers.image.title"] == "trainer"
    assert re.fullmatch(r"[0-9a-f]{40}", config["Labels"]["org.opencontainers.image.revision"])


def test_only_runs_and_tmp_are_writable(variant: str) -> None:
    folders = ("/", "/opt/trainer", "/opt/venv", "/data", "/workspace")
    assert python(variant, f"import os; print([p for p in {folders} if os.access(p, os.W_OK)])") == "[]\n"
    program = "open('/workspace/runs/x', 'w'); open('/tmp/x', 'w')"
    assert run(variant, "-c", program, entrypoint="python3", volumes=["/workspace/runs"]) == ""


def test_no_layer_holds_a_secret(variant: str) -> None:
    history = CLIENT.images.get(f"trainer:{variant}").history()
    created = "\n".join(layer["CreatedBy"] for layer in history)
    assert not re.search(r"(?i)password|token|api_key|index-url|BEGIN CERTIFICATE", created)
    places = ("/run/secrets/*", "/root/.config/*", "/etc/pip.conf")
    program = f"import glob; print([found for place in {places} for found in glob.glob(place)])"
    assert python(variant, program) == "[]\n"


def test_versions_are_those_of_the_lock(variant: str) -> None:
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / f"images/requirements-{variant}.lock").read_text(), re.M))
    program = (
        "import json, re, importlib.metadata as m;"
        "print(json.dumps({re.sub('[_.]', '-', d.name.lower()): d.version for d in m.distributions()}))"
    )
    installed = json.loads(python(variant, program))
    assert installed.items() <= locked.items()
    assert "keras" in installed
    assert len(installed.keys() & {"tensorflow", "tensorflow-cpu"}) == 1  # which of them follows from the platform


def test_the_command_trainer_is_on_the_path(variant: str) -> None:
    assert run(variant, "trainer", "--version", entrypoint="") == f"trainer {__version__}\n"


def test_check_describes_a_job(variant: str) -> None:
    spec = (ROOT / "examples/digits-ps.yaml").as_posix()
    output = run(variant, "check", "/job.yaml", volumes={spec: {"bind": "/job.yaml", "mode": "ro"}})
    assert '"worker": ["digits-ps-worker-0.digits-ps:2222"' in output


def test_it_trains_on_the_cpu_without_a_network(variant: str) -> None:
    # A new anonymous volume belongs to whom the folder in the image belongs to.
    output = run(variant, environment=alone(job(workload="mnist")), volumes=["/workspace/runs"])
    assert "task=worker:0 strategy=multi_worker_mirrored workers=1" in output
    assert "done: steps=20" in output


def test_a_task_without_its_gpu_ends_at_once(variant: str) -> None:
    asking = alone(job(tasks={"worker": {"gpus": 1}}))
    output = run(variant, environment=asking, volumes=["/workspace/runs"], code=12)
    assert "worker:0: asked for 1 GPU(s), sees 0 (its devices: CPU:0); check driver" in output


# What TensorFlow looks up with dlopen (xla/tsl/platform/default/dso_loader.cc), with what those need in turn.
NVIDIA = """
import ctypes, glob, os
import tensorflow
site = glob.glob('/opt/venv/lib/python3.*/site-packages')[0]
names = 'cudart.so.12 cublas.so.12 cublasLt.so.12 cufft.so.11 cusolver.so.11 cusparse.so.12 cudnn.so.9 nccl.so.2'
for name in [*names.split(), 'cupti.so.12', 'nvrtc.so.12', 'nvJitLink.so.12', 'cudnn_engines_precompiled.so.9']:
    (path,) = glob.glob(f'{site}/nvidia/*/lib/lib{name}')
    try:
        ctypes.CDLL(path)
    except OSError as error:
        print('broken:', path, error)
ptxas, libdevice = site + '/nvidia/cuda_nvcc/bin/ptxas', site + '/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc'
print('ptxas and libdevice:', os.access(ptxas, os.X_OK), os.path.exists(libdevice))
print('GPUs:', tensorflow.config.list_physical_devices('GPU'))
"""


def test_every_nvidia_library_that_tensorflow_loads_is_there(variant: str) -> None:
    if variant != "cuda":
        pytest.skip("only trainer:cuda has them")
    output = python(variant, NVIDIA)
    assert "broken:" not in output
    assert "Cannot dlopen" not in output, "TensorFlow's own words for a library that it does not find"
    assert "ptxas and libdevice: True True" in output
