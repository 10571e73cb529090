"""The reason of a program's end, from what it wrote to stderr: texts of real programs (TensorFlow 2.15 and 2.21)."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from trainer.protocol.tracebacks import blames_peer, causes, reason

FOLDER = Path("/code")
VALUE_ERROR = """2026-11-23 10:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
Traceback (most recent call last):
  File "/code/train.py", line 41, in <module>
    main()
  File "/code/lib/data.py", line 7, in load
    return np.concatenate(parts)
  File "/usr/lib/python3.11/site-packages/numpy/core.py", line 200, in concatenate
    raise ValueError("need at least one array")
ValueError: need at least one array
"""
LOST = """Traceback (most recent call last):
  File "/code/fit.py", line 60, in <module>
    model.fit(dataset)
  File "/venv/tf_keras/src/engine/training.py", line 1380, in step_function
tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "/code/fit.py", line 60, in <module>

Collective ops is aborted by: recvmsg:Connection reset by peer
Additional GRPC error information from remote target /job:chief/replica:0/task:0 while calling /tensorflow.WorkerService
The error could be from a previous operation. Restart your program to reset.
\t [[{{node CollectiveReduceV2}}]] [Op:__inference_train_function_1632]
"""
IN_A_GRAPH = """Traceback (most recent call last):
  File "/code/fit.py", line 60, in <module>
    model.fit(dataset)
  File "/venv/tensorflow/python/eager/execute.py", line 53, in quick_execute
    tensors = pywrap_tfe.TFE_Py_Execute(ctx._handle, device_name, op_name,
  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node model/embedding/embedding_lookup defined at (most recent call last):
  File "/code/fit.py", line 60, in <module>

  File "/venv/tf_keras/src/layers/core/embedding.py", line 272, in call

indices[0,0] = 7 is not in [0, 5)
\t [[{{node model/embedding/embedding_lookup}}]] [Op:__inference_train_function_504]
"""
EAGER = """Traceback (most recent call last):
  File "/code/loop.py", line 90, in <module>
    for batch in dataset:
tensorflow.python.framework.errors_impl.UnavailableError: {{function_node __wrapped__CollectiveReduceV2_device_/job:\
worker/replica:0/task:1/device:CPU:0}} Collective ops is aborted by: Connection reset by peer
"""
NOISE = """E0000 00:00:1795460559.619433   29062 context.cc:873] failed to connect to all addresses;
last error: UNKNOWN: ipv4:127.0.0.1:41237: Failed to connect to remote host: Connection refused
This could happen if the remote target has been disconnected from the client.
"""
FATAL = """I0000 00:00:1795460559.6 1 a.cc:1] fine
F0000 00:00:1795460559.619433 29062 coordination_service_agent.cc:12] Terminating: UNAVAILABLE: heartbeat timed out
"""
ABORTED = """F0000 00:00:1 3383 tensor.cc:896] Check failed: dtype() == expected_dtype (1 vs. 3)
*** Check failure stack trace: ***
    @     0x7fa3382ce564  absl::lts_20250814::log_internal::LogMessage::SendToLog()
    @     0x7fa340ca71f5  (unknown)
"""
CHAINED = (
    LOST
    + """
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/code/fit.py", line 70, in <module>
    raise RuntimeError("training failed") from error
RuntimeError: training failed
"""
)


def run(program: str, **modules: str) -> str:
    """What Python writes to stderr when it runs a program in FOLDER with these modules."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"main": program, **modules}.items():
            Path(folder, f"{name}.py").write_text(text)
        done = subprocess.run([sys.executable, f"{folder}/main.py"], capture_output=True, text=True)
        return done.stderr.replace(folder, str(FOLDER))


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        ("", ""),
        ("a\n\n  the last line \n\n", "the last line"),
        (VALUE_ERROR, "ValueError: need at least one array (lib/data.py:7 in load)"),
        (VALUE_ERROR + NOISE, "ValueError: need at least one array (lib/data.py:7 in load)"),
        (CHAINED, "RuntimeError: training failed (fit.py:70 in <module>)"),
        (
            IN_A_GRAPH,
            "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error: "
            "indices[0,0] = 7 is not in [0, 5) (fit.py:60 in <module>)",
        ),
        (
            EAGER,
            "tensorflow.python.framework.errors_impl.UnavailableError: "
            "Collective ops is aborted by: Connection reset by peer (loop.py:90 in <module>)",
        ),
        (FATAL + "*** Check failure stack trace: ***\n    @     0x7f0  absl::Abort()\n", FATAL.splitlines()[-1]),
        (NOISE + ABORTED, "F0000 00:00:1 3383 tensor.cc:896] Check failed: dtype() == expected_dtype (1 vs. 3)"),
        (VALUE_ERROR + ABORTED, "F0000 00:00:1 3383 tensor.cc:896] Check failed: dtype() == expected_dtype (1 vs. 3)"),
        (FATAL + VALUE_ERROR, "ValueError: need at least one array (lib/data.py:7 in load)"),
        ("x" * 1000, "x" * 297 + "..."),
        ("ValueError: a\x1b[31m\0b\n", "ValueError: a?[31m?b"),
        (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
            '  File "p.py", line 3 in f\n\nExtension modules: numpy (total: 1)\n',
            "Fatal Python error: Segmentation fault (p.py:3 in f)",
        ),
        ('  File "a.py", line 1\n    x =\nSyntaxError: invalid syntax\n', "SyntaxError: invalid syntax (a.py:1)"),
        (run("import lib", lib="def f(:"), "SyntaxError: invalid syntax (lib.py:1)"),
        (
            run("def f():\n  x = 1\n y = 2"),
            "IndentationError: unindent does not match any outer indentation level (main.py:3)",
        ),
        (
            "  + Exception Group Traceback (most recent call last):\n"
            '  |   File "/code/p.py", line 5, in <module>\n'
            '  |     raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])\n'
            "  | ExceptionGroup: several (2 sub-exceptions)\n"
            "  +-+---------------- 1 ----------------\n"
            "    | ValueError: a\n"
            "    +---------------- 2 ----------------\n"
            "    | KeyError: 'b'\n"
            "    +------------------------------------\n",
            "ExceptionGroup: several (2 sub-exceptions) (p.py:5 in <module>)",
        ),
        (
            "  + Exception Group Traceback (most recent call last):\n"
            '  |   File "/code/p.py", line 11, in <module>\n'
            "  |     asyncio.run(main())\n"
            "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
            "  +-+---------------- 1 ----------------\n"
            "    | Traceback (most recent call last):\n"
            '    |   File "/code/p.py", line 4, in load\n'
            '    |     raise ValueError("3 columns, not 4")\n'
            "    | ValueError: 3 columns, not 4\n"
            "    +------------------------------------\n",
            "ValueError: 3 columns, not 4 (p.py:4 in load)",
        ),
    ],
)
def test_the_reason_is_the_last_exception_at_the_program_s_own_line(tail: str, text: str) -> None:
    assert reason(tail, FOLDER) == text


@pytest.mark.parametrize(
    ("program", "place"),
    [
        ("import os\ndef f():\n  os.environ['BUCKET_NAME']\nf()", "main.py:3 in f"),
        ("import os\nos.makedirs('/proc/none/ckpt')", "main.py:2 in <module>"),
        ("import importlib\nimportlib.import_module('none.at_all')", "main.py:2 in <module>"),
        ("import none_at_all", "main.py:1 in <module>"),
        ("\nexec('import os; os.environ[\\'NONE\\']')", "main.py:2 in <module>"),
        ("\nexec('def f(:')", "main.py:2 in <module>"),
        ("import ast\n\nast.literal_eval('1 +')", "main.py:3 in <module>"),
        ("import runpy\nrunpy.run_path('/code/none.py')", "main.py:2 in <module>"),
        ("import dataclasses\n@dataclasses.dataclass\nclass A: x: int\nA()", "main.py:4 in <module>"),
        ("import collections\ncollections.namedtuple('A', 'x')(1, 2)", "main.py:2 in <module>"),
        ("import lib", "lib.py:1 in <module>"),
    ],
)
def test_the_place_is_the_program_s_line_and_not_that_of_code_without_a_file(program: str, place: str) -> None:
    """Modules within Python itself and code of `exec` have names such as `<frozen os>` and `<string>`."""
    assert reason(run(program, lib="import os; os.environ['NONE']"), FOLDER).endswith(f" ({place})")


def test_the_place_in_a_program_without_a_file_is_its_own_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import os\nos.environ['NONE']"], capture_output=True, text=True, check=False
    )
    assert reason(done.stderr, FOLDER).endswith(" (<string>:2 in <module>)")


def test_a_package_in_the_program_s_folder_is_no_line_of_the_program() -> None:
    """A virtual environment may be there."""
    inside = VALUE_ERROR.replace("/usr/lib/python3.11", "/code/venv/lib/python3.11")
    assert reason(inside, FOLDER) == "ValueError: need at least one array (lib/data.py:7 in load)"


HANDLED = run("import traceback\ntry: int('a')\nexcept ValueError: traceback.print_exc()")


CRASH = """import faulthandler, os, sys, threading
faulthandler.enable()
def f():
    print("2026-11-23 10:00:00.123456: F tensorflow/core/x.cc:33] Check failed: a == b", file=sys.stderr)
    os.abort()
threading.Thread(target=threading.Event().wait, daemon=True).start()
f()
"""


def test_a_crash_in_native_code_has_the_line_that_called_it_and_its_own_message() -> None:
    """faulthandler writes the stacks of all threads after the message of the library that aborts."""
    for more in ("", "all_threads=False"):
        told = run(CRASH.replace("enable()", f"enable({more})"))
        assert "Fatal Python error: Aborted" in told
        assert reason(told, FOLDER).endswith("tensorflow/core/x.cc:33] Check failed: a == b (main.py:5 in f)")


def test_the_causes_in_a_log_are_those_that_no_peer_has_caused() -> None:
    stack = "Fatal Python error: Segmentation fault\n\nStack (most recent call first):\n"
    log = f'{NOISE}{stack}  File "a.py", line 3 in f\n\n{NOISE}{LOST}\n{VALUE_ERROR}'
    assert list(causes(log, Path("/-"))) == [
        "Fatal Python error: Segmentation fault (a.py:3 in f)",
        "ValueError: need at least one array (/code/lib/data.py:7 in load)",
    ]


def test_an_exception_that_the_program_handled_is_named_after_its_last_line() -> None:
    of_it = "ValueError: invalid literal for int() with base 10: 'a' (main.py:2 in <module>)"
    assert reason(f"{HANDLED}fatal: no quota\n", FOLDER, 2) == f"fatal: no quota; before it {of_it}"
    assert reason(HANDLED, FOLDER, 2) == of_it
    assert reason(HANDLED + FATAL.splitlines()[0], FOLDER, 2) == of_it, "TensorFlow's log is no last word"
    assert reason(f"{HANDLED}a second line of its message\n", FOLDER, 1) == of_it


@pytest.mark.parametrize(
    ("tail", "blames"),
    [
        ("", False),
        (VALUE_ERROR, False),
        (VALUE_ERROR + NOISE, False),  # its peers were stopped before it ended
        (NOISE + VALUE_ERROR, False),  # a peer was late
        (LOST, True),
        (EAGER, True),
        (IN_A_GRAPH, False),
        (CHAINED, True),
        (FATAL, True),
        (NOISE, False),
        ("F0000 00:00:1 1 tensor.cc:12] Check failed: 1 == 2\n", False),
        (VALUE_ERROR.replace("ValueError: need", "tensorflow.errors_impl.InternalError: Socket closed"), True),
        (VALUE_ERROR.replace("ValueError", "tensorflow.errors_impl.InvalidArgumentError"), False),
    ],
)
def test_errors_that_a_lost_peer_causes_are_recognised(tail: str, blames: bool) -> None:
    assert blames_peer(tail) is blames


def test_blank_lines_are_no_work_to_speak_of() -> None:
    began = time.process_time()
    reason(VALUE_ERROR + "\n" * 65_536, FOLDER)
    assert time.process_time() - began < 1, "a square of their number takes a minute"
