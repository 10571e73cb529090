from trainer.job.errors import Exit, TrainerError, UserError


def test_every_exit_code_has_a_meaning() -> None:
    assert all(code.meaning for code in Exit)


def test_exit_codes_never_change() -> None:
    assert {code.name: code.value for code in Exit} == {
        "OK": 0,
        "BUG": 1,
        "USER": 2,
        "MISSING": 10,
        "MISMATCH": 11,
        "DEVICES": 12,
        "DIVERGED": 13,
        "GAVE_UP": 14,
        "CHIEF_LOST": 15,
        "TARGET": 16,
        "EVALUATION": 17,
        "PROGRAM": 18,
        "OVERDUE": 19,
        "REPLACED": 20,
        "STOPPED": 143,
    }


def test_only_what_may_pass_by_itself_is_retryable() -> None:
    assert {code for code in Exit if code.retryable} == {Exit.CHIEF_LOST, Exit.REPLACED, Exit.STOPPED}


def test_an_error_without_a_code_is_a_bug() -> None:
    assert TrainerError("x").code is Exit.BUG
    assert TrainerError("x", Exit.DIVERGED).code is Exit.DIVERGED


def test_a_user_error_keeps_its_problems_separate_and_prints_one_per_line() -> None:
    error = UserError("a: 1: too small", "b: 2: too big")
    assert isinstance(error, TrainerError)
    assert error.code is Exit.USER
    assert error.problems == ("a: 1: too small", "b: 2: too big")
    assert str(error) == "a: 1: too small\nb: 2: too big"
