"""Names, and answers that are not as they should be. tests/local/test_mlflow.py has the real server."""

from typing import Any

import pytest

from tests.tools.receiver import receiver
from trainer.job.tracker import MLFLOW_LOGIN
from trainer.track.server import MLflow, Names, Point, Refused, Run, Unavailable

USER, PASSWORD, TOKEN = MLFLOW_LOGIN


@pytest.mark.parametrize(
    ("name", "fit"),
    [
        ("val_loss", "val_loss"),
        ("top-5 acc.", "top-5 acc."),
        ("Genauigkeit/für 数", "Genauigkeit/für 数"),
        ("auc@1:2%", "auc_1_2_"),
        ("/a//./../b/", "a/b"),
        ("..", "_"),
        ("", "_"),
        ("\ud800\n", "__"),
        ("x" * 300, "x" * 250),
    ],
)
def test_names_become_those_that_mlflow_takes(name: str, fit: str) -> None:
    assert Names().of(name) == fit


def test_two_names_never_become_one() -> None:
    names, given = Names(), ["a@b", "a:b", "a_b", "x" * 300, "x" * 301, "/", ".."]
    found = [names.of(name) for name in given]
    assert len(set(found)) == len(given)
    assert all(len(name) <= 250 for name in found)
    assert [names.of(name) for name in given] == found


def call(method: str, *args: Any, address: str) -> Any:
    return getattr(MLflow(address, 5), method)(*args)


def test_the_login_and_the_path_of_the_server_are_those_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER, "me")
    monkeypatch.setenv(PASSWORD, "ü:x")
    with receiver() as server:
        call("log", Run("1", "r"), [], {"p": "x" * 9000}, {"t": "é" * 9000}, address=f"{server.address}/base")
    (request,) = server.requests
    assert request.headers.get("Authorization") == "Basic bWU6w7w6eA=="
    assert request.path == "/base/api/2.0/mlflow/runs/log-batch"
    found = request.document
    assert (len(found["params"][0]["value"]), len(found["tags"][0]["value"])) == (500, 5000)


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (401, b"No.", Unavailable, f"answers 401; its login is {USER} and {PASSWORD}"),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "no"}', Unavailable, f"or {TOKEN}, under secrets"),
        (404, b"<html>not here</html>", Unavailable, "answers 404; its answer is none of MLflow's"),
        (200, b"<html>a page</html>", Unavailable, "its answer is none of MLflow's"),
        (503, b"", Unavailable, "answers 503"),
        (429, b'{"error_code": "X", "message": "slow"}', Unavailable, "answers 429"),
        (
            400,
            b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "a\\nb"}',
            Refused,
            "INVALID_PARAMETER_VALUE: a b",
        ),
    ],
)
def test_what_goes_wrong_is_one_line(status: int, body: bytes, error: type[Exception], words: str) -> None:
    with receiver(status) as server:
        server.body = body
        with pytest.raises(error) as found:
            call("log", Run("1", "r"), [], {}, {"t": "x"}, address=server.address)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_a_server_that_cannot_be_reached_is_named_without_its_path(free: int, taken: int) -> None:
    for port, why in {free: "refused the connection", taken: "does not answer"}.items():
        with pytest.raises(Unavailable) as found:
            MLflow(f"http://127.0.0.1:{port}/team", 1).log(Run("1", "r"), tags={"t": "x"})
        assert str(found.value) == f"127.0.0.1:{port} {why}"


def test_a_value_of_a_metric_has_its_step_and_its_time_in_milliseconds() -> None:
    with receiver() as server:
        call("log", Run("1", "r"), [Point("c", 0.5, 2, 1.2345)], address=server.address)
    (metric,) = server.requests[0].document["metrics"]
    assert (metric["key"], metric["value"], int(metric["step"]), int(metric["timestamp"])) == ("c", 0.5, 2, 1234)
