from pathlib import Path
from typing import Any

import pytest

from tests.unit.workloads.files import MODEL, file, spec_of
from trainer.job.errors import UserError
from trainer.workloads import workload
from trainer.workloads.load import load_workload
from trainer.workloads.locate import original, where_it_failed


def raised(call: Any) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (any)
        call()
    return caught.value


def test_an_error_in_a_users_function_is_reported_with_the_innermost_line_of_user_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        MODEL
        + "DATASET = 'digits'\ndef loss(y, p):\n    return inner(y)\ndef inner(y):\n    raise OSError('x' * 400)\n"
    )
    monkeypatch.chdir(tmp_path)
    file(tmp_path, text)
    loss: Any = load_workload(spec_of("mine.py")).loss
    error = raised(lambda: loss(0, 0))
    reported = where_it_failed(error, "mine.py")
    assert reported is not None
    assert reported.startswith("workload: mine.py:6: OSError: xxx")
    assert len(reported) < 400
    assert where_it_failed(error, str(tmp_path / "another.py")) is None


def test_an_error_in_a_module_beside_the_file_is_attributed_to_user_code_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, "\ndef data(shard):\n    return 1 / 0\n", "deep_within.py")
    data: Any = load_workload(spec_of(file(tmp_path, MODEL + "from deep_within import data").name)).data
    error = raised(lambda: data(workload.Shard("train")))
    reported = "workload: deep_within.py:3: ZeroDivisionError: division by zero"
    assert where_it_failed(error, "mine.py") == reported


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nrate = float(sys.argv[99])",
        "from absl import flags\nflags.DEFINE_string('x', '', '')\nflags.FLAGS.x",
    ],
)
def test_a_file_that_reads_words_of_a_command_line_is_told_where_its_settings_are(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"Error: .*; a workload is imported and has no command line; read SETTINGS, "):
        load_workload(spec_of(str(file(tmp_path, f"{MODEL}DATASET = 'digits'\n{text}"))))


def test_an_error_outside_user_code_is_not_attributed_to_it(tmp_path: Path) -> None:
    error = raised(lambda: int("x"))
    assert where_it_failed(error, str(tmp_path / "mine.py")) is None
    assert where_it_failed(error, "digits") is None
    assert where_it_failed(error, __file__) is not None


def test_an_error_that_no_translation_made_is_its_own_original() -> None:
    def fail() -> None:
        try:
            int("x")
        except ValueError:
            raise KeyError from None

    error = raised(fail)
    assert original(error) is error
