"""Names, numbers and answers of MLflow's API. tests/local/test_mlflow.py has the real server."""

import asyncio
import json
from typing import Any

import pytest

from tests.tools.receiver import receiver
from trainer.job.tracking_rules import MLFLOW_LOGIN
from trainer.supervisor.outside import outbound
from trainer.supervisor.outside.mlflow import MLflow, Names, Point, Refused, Run, Unavailable

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


def call(method: str, *args: Any, environ: dict[str, str] | None = None, address: str, **more: Any) -> Any:
    async def run() -> Any:
        async with outbound.connect(address, {}) as server:
            return await getattr(MLflow(server, environ or {}), method)(*args, **more)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("environ", "header"),
    [
        ({}, None),
        ({USER: "me", PASSWORD: "ü:x"}, "Basic bWU6w7w6eA=="),
        ({TOKEN: "abc"}, "Bearer abc"),
        ({USER: "me", PASSWORD: "x", TOKEN: "abc"}, "Basic bWU6eA=="),
    ],
)
def test_the_login_is_that_of_the_variables(environ: dict[str, str], header: str | None) -> None:
    with receiver() as server:
        call("set_status", Run("1", "r"), "FAILED", 1.5, address=f"{server.address}/base", environ=environ)
    (request,) = server.requests
    assert request.headers.get("Authorization") == header
    assert request.path == "/base/api/2.0/mlflow/runs/update"
    assert request.document == {"run_id": "r", "status": "FAILED", "end_time": 1500}


def test_values_are_json_without_nan_and_of_limited_length() -> None:
    points = [Point("a", float("nan"), 1, 1.0), Point("b", float("-inf"), 1, 1.0), Point("c", 0.5, 2, 1.2345)]
    with receiver() as server:
        call("log", Run("1", "r"), points, {"p": "x" * 9000}, {"t": "\ud800" * 9000}, address=server.address)
    found = server.requests[0].document
    assert [(each["value"], each["timestamp"]) for each in found["metrics"]] == [
        ("NaN", 1000),
        ("-Infinity", 1000),
        (0.5, 1234),
    ]
    assert (len(found["params"][0]["value"]), len(found["tags"][0]["value"])) == (500, 5000)


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (401, b"No.", Unavailable, f"401: No.; its login is {USER} and {PASSWORD}"),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "no"}', Unavailable, f"or {TOKEN}, under secrets"),
        (404, b"<html>not here</html>", Unavailable, "tracking.mlflow is the server's address"),
        (302, b"", Unavailable, "its answer is none of MLflow's"),
        (200, b"<html>a page</html>", Unavailable, "its answer is none of MLflow's"),
        (503, b"", Unavailable, "answers 503"),
        (429, b'{"error_code": "X", "message": "slow"}', Unavailable, "answers 429: slow"),
        (400, b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "a\\nb"}', Refused, "answers 400: a b"),
    ],
)
def test_what_goes_wrong_is_one_line(status: int, body: bytes, error: type[Exception], words: str) -> None:
    with receiver(status) as server:
        server.body = body
        with pytest.raises(error) as found:
            call("log", Run("1", "r"), address=server.address)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("body", [b"{}", b'{"runs": 3}', b'{"runs": []}'])
def test_no_run_is_found_in_an_answer_without_one(body: bytes) -> None:
    with receiver() as server:
        server.body = body
        assert call("find", "1", "trainer.id", "ab", address=server.address) is None
    assert server.requests[0].document["filter"] == "tags.`trainer.id` = 'ab'"


@pytest.mark.parametrize("runs", [[1], [{}], [{"info": {"run_id": 3}}]])
def test_an_answer_of_another_kind_of_server_is_named(runs: list[object]) -> None:
    with receiver() as server:
        server.body = json.dumps({"runs": runs}).encode()
        with pytest.raises(Unavailable):
            call("find", "1", "trainer.id", "ab", address=server.address)


def test_a_run_is_read_whatever_it_lacks() -> None:
    run = {
        "info": {"run_id": "r", "status": "KILLED"},
        "data": {"metrics": [{"key": "loss", "step": "7"}, {"key": "acc"}], "params": [{"key": "p", "value": "1"}]},
    }
    with receiver() as server:
        server.body = json.dumps({"runs": [run]}).encode()
        found = call("find", "1", "trainer.id", "ab", address=server.address)
    assert found == Run("1", "r", "KILLED", {"loss": 7, "acc": 0}, {"p": "1"}, {})
