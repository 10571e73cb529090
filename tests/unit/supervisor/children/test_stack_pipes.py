"""Stacks of real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.protocol.stacks import MOST_FRAMES, MOST_THREADS
from trainer.stack_dump import SIGNAL
from trainer.supervisor.children.stack_pipes import StackPipes, threads

KEEPS = 'ctypes.PyDLL(None).system(b"echo begun; read line")'
"""A call of C that prints a line and keeps the GIL until it has read one: no other thread runs between the two."""


@contextlib.contextmanager
def running(pipe: StackPipes, folder: Path, text: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program, once it has printed a line."""
    (folder / "mine.py").write_text(textwrap.dedent(text))
    process = subprocess.Popen(
        [sys.executable, str(folder / "mine.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **pipe.environ},
        pass_fds=[pipe.theirs],
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()
        pipe.close()


def test_the_threads_of_a_process_and_it_goes_on(tmp_path: Path) -> None:
    program = """
        import os, threading
        from trainer import stack_dump
        stack_dump.register()
        started, waits = threading.Event(), threading.Condition()

        def sleeps():
            with waits:
                started.set(); waits.wait()

        def reads():
            print("begun", flush=True); os.read(0, 1)

        threading.Thread(target=sleeps, daemon=True).start()
        started.wait()
        waits.acquire()  # it has released it, so it waits
        reads()
        print("ended", flush=True)
        """
    pipe = StackPipes()
    with running(pipe, tmp_path, program) as process:
        for _ in range(3):
            state, text = asyncio.run(pipe.take())
            assert state == ""
        other, main = threads(text, tmp_path)
        assert [str(frame) for frame in main if frame.theirs] == ["mine.py:12 reads()", "mine.py:17 <module>"]
        assert [str(frame) for frame in other if frame.theirs] == ["mine.py:9 sleeps()"]
        assert other[0].file == "threading.py"
        assert not other[0].theirs
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.close()
        assert process.stdout is not None
        assert process.stdout.readline() == b"ended\n"


def test_two_that_ask_at_the_same_time_have_all_threads_each(tmp_path: Path) -> None:
    program = """
        import threading
        from trainer import stack_dump
        stack_dump.register()
        for _ in range(20):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        print("begun", flush=True)
        input()
        """

    async def both() -> list[tuple[str, str]]:
        return [each for _ in range(10) for each in await asyncio.gather(pipe.take(), pipe.take())]

    pipe = StackPipes()
    with running(pipe, tmp_path, program):
        found = asyncio.run(both())
    written = {(state, text.count("most recent call first")) for state, text in found}
    assert written == {("", 22)}, "20 of the program, its main thread, and the one that writes"


@pytest.mark.slow
def test_a_busy_process_is_not_harmed(tmp_path: Path) -> None:
    program = """
        import threading
        from trainer import stack_dump
        stack_dump.register()

        def deep(n):
            return n if n < 2 else deep(n - 1) + deep(n - 2)

        def works():
            while True:
                names = {}
                exec("def fresh(n): return [i for i in range(n)]", names)
                [names["fresh"](n) for n in range(30)]
                deep(8)

        for _ in range(4):
            threading.Thread(target=works, daemon=True).start()
        print("begun", flush=True)
        works()
        """

    async def often() -> set[int]:
        return {(await pipe.take())[1].count("most recent call first") for _ in range(200)}

    pipe = StackPipes()
    with running(pipe, tmp_path, program) as process:
        assert asyncio.run(often()) == {6}
        assert process.poll() is None


def test_a_process_that_keeps_the_gil_answers_to_the_signal(tmp_path: Path) -> None:
    program = f"""
        import ctypes
        from trainer import stack_dump
        stack_dump.register()

        def keeps():
            {KEEPS}

        keeps()
        """
    pipe = StackPipes()
    with running(pipe, tmp_path, program):
        for _ in range(2):
            state, text = asyncio.run(pipe.take())
            assert state == ""
            assert threads(text, tmp_path)[-1][0].function == "keeps"


def test_an_answer_that_comes_too_late_is_not_the_next_ones(tmp_path: Path) -> None:
    program = f"""
        import ctypes
        from trainer import stack_dump
        stack_dump.register()

        def first():
            {KEEPS}

        def second():
            print("again", flush=True)
            input()

        first()
        second()
        """
    pipe = StackPipes()
    with running(pipe, tmp_path, program) as process:
        assert threads(asyncio.run(pipe.take())[1], tmp_path)[-1][0].function == "first"
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"again\n"
        text = asyncio.run(pipe.take())[1]
        assert "in second" in text
        assert "in first" not in text


def test_more_processes_than_are_asked_cost_no_descriptor(tmp_path: Path) -> None:
    program = """
        import os, subprocess, sys
        from trainer.job.environment import STACKS
        inherited = [int(os.environ[STACKS].partition(":")[0])]
        each = "from trainer import stack_dump; stack_dump.register(); print(flush=True); input()"
        others = [
            subprocess.Popen([sys.executable, "-c", each], pass_fds=inherited, stdin=-1, stdout=-1) for _ in range(70)
        ]
        [other.stdout.readline() for other in others]
        print("begun", flush=True)
        input()
        """
    pipe, before = StackPipes(), len(list(Path("/proc/self/fd").iterdir()))
    with running(pipe, tmp_path, program):
        text = asyncio.run(pipe.take())[1]
        assert text.count("<string>") == 64
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2 * 64 + 2


def test_a_process_that_has_not_registered_is_not_signalled(tmp_path: Path) -> None:
    pipe = StackPipes()
    with running(pipe, tmp_path, "import time; print('begun', flush=True); time.sleep(60)") as process:
        assert asyncio.run(pipe.take()) == ("not asked", "")
        assert process.poll() is None


def test_a_program_with_its_own_action_keeps_it(tmp_path: Path) -> None:
    program = """
        import signal, time
        from trainer import stack_dump
        signal.signal(stack_dump.SIGNAL, lambda *_: None)
        stack_dump.register()
        print("begun", flush=True); time.sleep(60)
        """
    pipe = StackPipes()
    with running(pipe, tmp_path, program):
        assert asyncio.run(pipe.take())[0] == "not asked"


def test_a_process_of_the_program_with_another_file_of_that_number_writes_nothing_there(tmp_path: Path) -> None:
    pipe = StackPipes()
    pipe.environ["TRAINER_STACKS"] = f"{pipe.theirs}:1"
    program = "from trainer import stack_dump; stack_dump.register(); print('begun', flush=True); input()"
    with running(pipe, tmp_path, program):
        assert asyncio.run(pipe.take())[0] == "not asked"


def test_a_stopped_process_is_known(tmp_path: Path) -> None:
    pipe = StackPipes()
    program = "from trainer import stack_dump; stack_dump.register(); print('begun', flush=True); input()"
    with running(pipe, tmp_path, program) as process:
        assert asyncio.run(pipe.take())[0] == ""
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert asyncio.run(pipe.take())[0] == "stopped"


def test_a_process_that_has_ended_is_not_asked_again(tmp_path: Path) -> None:
    pipe = StackPipes()
    program = "from trainer import stack_dump; stack_dump.register(); print('begun', flush=True)"
    with running(pipe, tmp_path, program) as process:
        process.wait(10)
        assert asyncio.run(pipe.take())[0] == "not asked"


def test_a_process_that_a_shell_started_is_asked(tmp_path: Path) -> None:
    inner = tmp_path / "inner.py"
    inner.write_text("from trainer import stack_dump; stack_dump.register(); print('begun', flush=True); input()")
    pipe = StackPipes()
    program = f"import os; os.execvp('sh', ['sh', '-c', '{sys.executable} {inner}; true'])"
    with running(pipe, tmp_path, program):
        (main,) = threads(asyncio.run(pipe.take())[1], tmp_path)
        assert str(main[-1]) == "inner.py:1 <module>"


def test_the_signal_is_nobodys() -> None:
    assert SIGNAL not in (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM)
    assert signal.getsignal(SIGNAL) is signal.SIG_DFL


FAULTHANDLER = """Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/queue.py", line 171 in get
  File "/app/code/mine.py", line 9 in prefetch

Current thread 0x00007f02 (most recent call first):
  <no Python frame>

Thread 0x00007f03 [main] (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/keras/src/fit.py", line 3 in fit
  File "<frozen runpy>", line 88 in _run_code
  File "/app/code/deep/other.py", line 12 in <module>
  File "/elsewhere/tool.py", line 4 in main
"""


def test_files_are_named_as_their_reader_knows_them() -> None:
    first, last = threads(FAULTHANDLER, Path("/app/code"))
    assert [(frame.file, frame.theirs) for frame in first] == [("queue.py", False), ("mine.py", True)]
    assert [(frame.file, frame.theirs) for frame in last] == [
        ("keras/src/fit.py", False),
        ("<frozen runpy>", False),
        ("deep/other.py", True),
        ("tool.py", True),
    ]


@pytest.mark.parametrize("depth", [10, MOST_FRAMES + 500])
def test_a_text_of_any_length_fits_into_a_report(depth: int) -> None:
    block = "Thread 0x1 (most recent call first):\n" + '  File "/code/a.py", line 7 in \x1b[31mred\n' * depth
    found = threads(block * 500, Path("/code"))
    assert len(found) == MOST_THREADS
    assert {len(each) for each in found} == {min(depth, MOST_FRAMES)}
    assert found[0][0].function == "?[31mred"
