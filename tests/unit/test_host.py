import ast
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trainer import host


def test_versions_are_read_without_importing_what_they_are_of() -> None:
    program = "import sys; from trainer import host; print(host.versions()); print(*sys.modules)"
    versions, modules = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    assert versions == str(host.versions())
    assert not {"tensorflow", "keras"} & set(modules.split())


def test_versions_name_everything_that_tasks_must_share() -> None:
    versions = host.versions()
    assert set(versions) == {"tensorflow", "keras", "trainer", "python"}
    assert "absent" not in versions.values()
    assert versions["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize(("limit", "threads"), [(0.2, 1), (1, 1), (1.4, 1), (1.6, 2), (48, 48)])
def test_the_limit_of_the_spec_comes_first(monkeypatch: pytest.MonkeyPatch, limit: float, threads: int) -> None:
    monkeypatch.setenv("TRAINER_CPUS", "7")
    assert host.cpus(limit) == threads


def test_then_what_the_launcher_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_CPUS", "7")
    assert host.cpus(None) == 7
    monkeypatch.setenv("TRAINER_CPUS", "0")
    assert host.cpus(None) == 1


# Each: files of the cgroup, and its quota; cgroup v2 in cpu.max, v1 in two files.
QUOTAS: list[tuple[dict[str, str], float | None]] = [
    ({}, None),
    ({"cpu.max": "max 100000\n"}, None),
    ({"cpu.max": "150000 100000\n"}, 1.5),
    ({"cpu.max": "50000 100000\n"}, 0.5),
    ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ({"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.5),
]


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /sys/fs/cgroup."""
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    monkeypatch.delenv("TRAINER_CPUS", raising=False)
    return tmp_path


@pytest.mark.parametrize(("files", "quota"), QUOTAS)
def test_then_the_quota_of_the_cgroup_within_the_affinity(
    cgroup: Path, files: dict[str, str], quota: float | None
) -> None:
    for name, text in files.items():
        (cgroup / name).parent.mkdir(exist_ok=True)
        (cgroup / name).write_text(text)
    available = len(os.sched_getaffinity(0))
    assert host.cpus(None) == (available if quota is None else max(1, min(available, round(quota))))
    assert host._cgroup_quota() == quota


# Each: files of the cgroup, processes killed, and the limit; version 2, 1, 1 without a limit, none.
MEMORY: list[tuple[dict[str, str], int, int | None]] = [
    ({"memory.events": "low 0\noom 3\noom_kill 2\n", "memory.max": "1048576\n"}, 2, 1048576),
    ({"memory.events": "oom_kill 0\n", "memory.max": "max\n"}, 0, None),
    (
        {
            "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            "memory/memory.limit_in_bytes": "1048576\n",
        },
        1,
        1048576,
    ),
    ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0, None),
    ({}, 0, None),
]


@pytest.mark.parametrize(("files", "kills", "limit"), MEMORY)
def test_memory_figures_of_the_cgroup_are_read(
    cgroup: Path, files: dict[str, str], kills: int, limit: int | None
) -> None:
    for name, text in files.items():
        (cgroup / name).parent.mkdir(exist_ok=True)
        (cgroup / name).write_text(text)
    assert (host.oom_kills(), host.memory_limit()) == (kills, limit)


def test_free_memory_is_the_limit_less_what_is_in_use_and_cannot_be_given_away(cgroup: Path) -> None:
    for name, text in {
        "memory.max": "1000",
        "memory.current": "900",
        "memory.stat": "anon 1\ninactive_file 300\n",
    }.items():
        (cgroup / name).write_text(text)
    assert host.free_memory() == 400
    (cgroup / "memory.max").write_text("max")
    machine = host.free_memory()
    assert machine is None or machine > 10**6


@pytest.mark.parametrize("linux", [True, False])
def test_the_age_of_a_process_begins_with_its_start(linux: bool) -> None:
    begun = time.monotonic()
    program = f"from trainer import host; host.LINUX = {linux}; print(host.process_age())"
    age = float(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout)
    assert 0 <= age <= time.monotonic() - begun + 0.1


DIES_WITH_PARENT = """
import signal, sys, time
from trainer import host
signal.signal(signal.SIGTERM, lambda *_: (print("SIGTERM", flush=True), sys.exit(0)))
host.die_with_parent(signal.SIGTERM)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("linux", [True, False])
def test_a_process_is_signalled_when_its_parent_dies(linux: bool) -> None:
    """The grandchild writes to our pipe: end of file means that it is gone too."""
    program = DIES_WITH_PARENT.replace("host.die", f"host.LINUX = {linux}; host.die")
    parent = (
        "import os, subprocess, sys; os.environ['TRAINER_PARENT'] = str(os.getpid()); "
        "subprocess.run([sys.executable, '-c', sys.argv[1]])"
    )
    with subprocess.Popen([sys.executable, "-c", parent, program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
        assert process.stdout.read() == "SIGTERM\n"


# Starts a process in a thread, which ends when a line comes in; the kernel has forgotten it when "ended" is printed.
STARTS_IN_A_THREAD = """
import os, subprocess, sys, threading, time
os.environ["TRAINER_PARENT"] = str(os.getpid())
def start():
    subprocess.Popen([sys.executable, "-c", sys.argv[1]])
    sys.stdin.readline()
thread = threading.Thread(target=start)
thread.start()
thread.join()
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.01)
print("ended", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not host.LINUX, reason="prctl(2) is Linux'")
def test_a_process_outlives_the_thread_that_started_it_and_not_its_parent() -> None:
    """The kernel's own signal, PR_SET_PDEATHSIG, would come at the thread's end."""
    program = DIES_WITH_PARENT.replace("die_with_parent", "end_with_parent").replace(
        'print("ready"',
        'signal.signal(signal.SIGUSR1, lambda *_: print("still here", flush=True)); import os; print(os.getpid()',
    )
    words = [sys.executable, "-c", STARTS_IN_A_THREAD, program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = int(process.stdout.readline())
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "ended\n"
        os.kill(child, signal.SIGUSR1)
        assert process.stdout.readline() == "still here\n"
        process.send_signal(signal.SIGKILL)
        assert process.stdout.read() == "SIGTERM\n"


# Without what Linux alone has. ------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["Linux", "elsewhere"])
def linux(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """As on Linux, and as on macOS: by ps(1) and what POSIX has."""
    monkeypatch.setattr(host, "LINUX", request.param)
    return bool(request.param)


def test_there_is_a_cpu(linux: bool) -> None:
    assert 1 <= host.available_cpus() <= (os.cpu_count() or 1)


def test_the_time_that_nothing_sets_goes_on(linux: bool) -> None:
    before = host.uptime()
    assert before <= host.uptime() <= before + 60


def test_processes_are_found_with_their_group_until_they_are_gone(linux: bool) -> None:
    command, pipe = ["sh", "-c", "echo begun; read line"], subprocess.PIPE
    environ = {**os.environ, "MARK": "7"}
    with subprocess.Popen(command, start_new_session=True, env=environ, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()  # Popen returns before /proc has the environment of what it started
        try:
            (found,) = [each for each in host.processes("MARK") if each.pid == process.pid]
            assert (found.group, found.mark) == (process.pid, "7" if linux else "")
            assert found.started == host.started(process.pid) != ""
            assert not host.is_stopped(process.pid)
            process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 10
            while not host.is_stopped(process.pid):
                assert time.monotonic() < deadline
        finally:
            process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process.pid not in {each.pid for each in host.processes("MARK")}, "a zombie"
        assert host.started(process.pid) == ""
        assert not host.is_stopped(process.pid)


def test_a_descriptor_is_listed() -> None:
    for folder in (host.DESCRIPTORS, Path("/dev/fd")):
        assert "0" in {entry.name for entry in folder.iterdir()}


# Not reached without Linux, or no figures there.
ELSEWHERE = {"loopback.py": {"SO_BINDTODEVICE"}, "usage.py": {"/proc", "/sys/"}}
ONLY_LINUX = re.compile(
    r"/proc\b|/sys/|\b(?:sched_getaffinity|sched_setaffinity|prctl|SO_BINDTODEVICE|CLOCK_BOOTTIME)\b"
)


def test_what_only_linux_has_is_in_two_modules() -> None:
    """In code, not in text that explains it."""
    root = Path(host.__file__).parent
    for path in root.rglob("*.py"):
        if path not in (root / "host.py", root / "sockets.py"):
            tree = ast.parse(path.read_text())
            strings = {
                node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
            names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            short = {text for text in strings if "\n" not in text and " " not in text}
            found = {word for text in short | names for word in ONLY_LINUX.findall(text)}
            assert found <= ELSEWHERE.get(path.name, set()), path


@pytest.mark.skipif(not host.LINUX, reason="elsewhere a thread has no priority of its own")
def test_a_function_has_the_lowest_priority_and_its_caller_keeps_its_own() -> None:
    seen = []
    before = os.getpriority(os.PRIO_PROCESS, 0)
    host.at_lowest_priority(lambda: seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    assert (seen, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())) == ([19], before)


def test_what_a_function_at_the_lowest_priority_raises_reaches_its_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        host.at_lowest_priority(lambda: print(1 // 0))


@pytest.mark.skipif(not host.LINUX, reason="only Linux shows it")
def test_what_a_process_began_with_does_not_show_a_variable_that_was_wiped() -> None:
    program = (
        "import os, sys; from trainer import host\n"
        "os.environ.pop('TRAINER_SECRET'); host.wipe_variable('TRAINER_SECRET'); host.wipe_variable('NONE')\n"
        "print(os.environ['BESIDE'], flush=True); sys.stdin.read()"
    )
    environ = {**os.environ, "TRAINER_SECRET": "hunter2", "BESIDE": "TRAINER_SECRET=x"}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"TRAINER_SECRET=x\n"
        shown = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        process.kill()
    assert b"TRAINER_SECRET=*******" in shown
    assert b"BESIDE=TRAINER_SECRET=x" in shown
    assert b"hunter2" not in b"".join(shown)


@pytest.mark.skipif(not host.LINUX, reason="only Linux sets the limits of another process")
def test_a_child_may_leave_a_core_file_though_its_supervisor_may_not() -> None:
    program = (
        "import resource, subprocess, sys; from trainer import host\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (4096, 8192)); host.dump_no_memory()\n"
        "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE); host.may_dump(child.pid)\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE), resource.prlimit(child.pid, resource.RLIMIT_CORE))\n"
        "child.kill(); child.wait()"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert out == "(0, 8192) (4096, 8192)\n"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux with scheduling statistics")
def test_a_process_that_others_keep_from_the_cpu_waits_for_it_and_one_that_sleeps_does_not() -> None:
    cpu = min(os.sched_getaffinity(0))
    busy, idle = "while True: pass", "import time; time.sleep(60)"

    def start(program: str, nice: int) -> subprocess.Popen[bytes]:
        def prepare() -> None:
            os.sched_setaffinity(0, {cpu})
            os.nice(nice)

        return subprocess.Popen([sys.executable, "-c", program], preexec_fn=prepare)

    started = [start(busy, 0), start(busy, 0), start(busy, 19), start(idle, 0)]
    try:
        deadline = time.monotonic() + 60
        while sum(host.waits_for_cpu(started[2].pid).values()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert sum(host.waits_for_cpu(started[3].pid).values()) < sum(host.waits_for_cpu(started[2].pid).values())
        assert host.waits_for_cpu(2**22 + 1) == {}
    finally:
        for each in started:
            each.kill()
            each.wait()
