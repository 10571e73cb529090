"""Made-up results beside made-up committed ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import compare, run
from bench.throughput import IDEAL

MACHINE = {"cpu": "Made Up", "cores": 4, "instructions": ["avx2", "avx512f"], "python": "3.13.1", "date": "2026-01-02"}
TURNS = [1.0, 0.99, 1.01, 1.005, 0.995, 1.0]
OURS, PEER = "MWMS, trainer", "torch DDP"


def rates(share: float, *, speed: float = 1.0, noise: float = 1.0) -> list[float]:
    """Of a contender that reaches this share; noise makes the turns differ by so many times as much."""
    return [2000 * speed * share * (1 + noise * (turn - 1)) for turn in TURNS]


def result(shares: dict[str, float], *, speed: float = 1.0, noise: float = 1.0) -> dict[str, Any]:
    ideal = [2000 * speed] * len(TURNS)
    return {IDEAL: ideal, **{name: rates(share, speed=speed, noise=noise) for name, share in shares.items()}}


def verdicts(now: dict[str, Any], before: dict[str, Any]) -> dict[str, str]:
    rows = compare.compare("throughput", {"throughput": now}, {"throughput": before})
    return {row.name: row.verdict for row in rows}


def test_what_lost_its_share_is_slower_and_the_rest_is_the_same() -> None:
    before = result({OURS: 0.8, "PS, trainer": 0.6, PEER: 0.7})
    now = result({OURS: 0.72, "PS, trainer": 0.6, PEER: 0.7})
    assert verdicts(now, before) == {OURS: "slower", "PS, trainer": "same", PEER: "same"}
    assert verdicts(before, now)[OURS] == "faster"


def test_a_slower_machine_is_no_slower_program() -> None:
    shares = {OURS: 0.8, PEER: 0.7}
    assert set(verdicts(result(shares, speed=0.5), result(shares)).values()) == {"same"}


def test_a_small_change_is_the_machine_although_it_is_certain() -> None:
    assert verdicts(result({OURS: 0.78}, noise=0.1), result({OURS: 0.8}, noise=0.1)) == {OURS: "same"}


def test_noise_in_which_a_change_may_hide_is_no_verdict() -> None:
    now, before = result({OURS: 0.74}, noise=30), result({OURS: 0.8}, noise=30)
    assert verdicts(now, before) == {OURS: "unclear"}


def test_rows_of_one_side_are_named_and_fail_nothing() -> None:
    rows = compare.compare(
        "throughput", {"throughput": result({"PS, trainer": 0.6})}, {"throughput": result({OURS: 0.8})}
    )
    assert {row.name: row.verdict for row in rows} == {OURS: "not measured now", "PS, trainer": "new"}
    assert compare.exit_code(rows) == 0


def test_two_turns_are_too_few() -> None:
    now, before = ({name: values[:2] for name, values in result({OURS: share}).items()} for share in (0.4, 0.8))
    assert verdicts(now, before) == {OURS: "too few"}


def test_only_rows_of_trainer_fail() -> None:
    before = result({OURS: 0.8, PEER: 0.7})
    for name, code in ((OURS, 1), (PEER, 0)):
        now = {**before, name: [0.8 * rate for rate in before[name]]}
        assert compare.exit_code(compare.compare("throughput", {"throughput": now}, {"throughput": before})) == code


def costs(seconds: float, **more: Any) -> dict[str, Any]:
    values = [seconds * turn for turn in TURNS]
    return {
        "first_step": {"cold": [{"import": value / 2, "trace": value / 2} for value in values]},
        "recovery": {"a ps": values},
        "end": values,
        "commands": {"trainer --help": values},
        "render": {"check, 7 workers": values},
        "rendezvous": {"7 tasks": values},
        **more,
    }


def test_seconds_are_compared_by_what_the_ideal_pair_trains_meanwhile() -> None:
    """Twice the seconds on a machine of half the speed: nothing changed. More seconds at the same speed: slower."""
    now, before = costs(4.0, ideal=[500.0, 510.0, 490.0]), costs(2.0)
    sides = {"costs": now}, {"costs": before, "throughput": {IDEAL: [1000.0, 990.0, 1010.0]}}
    assert {row.verdict for row in compare.compare("costs", *sides)} == {"same"}
    now["ideal"] = [1000.0]
    rows = compare.compare("costs", *sides)
    assert {row.verdict for row in rows} == {"slower"}
    assert [row.change.median if row.change else None for row in rows] == pytest.approx([0.5] * len(rows))
    assert compare.exit_code(rows) == 1


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    write(tmp_path / "throughput-avx512f.json", result({OURS: 0.8}))
    return tmp_path


def write(path: Path, figures: dict[str, Any], **machine: Any) -> Path:
    path.write_text(json.dumps({"machine": {**MACHINE, **machine}, "figures": figures}))
    return path


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["compare", *words])
    return compare.main()


@pytest.mark.parametrize(("share", "code"), [(0.8, 0), (0.5, 1), (0.9, 0)])
def test_the_command_reads_files(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], share: float, code: int
) -> None:
    now = write(kept / "throughput-now.json", result({OURS: share}))
    assert command(monkeypatch, "--from", str(now)) == code
    printed = capsys.readouterr().out
    assert f"{share / 0.8:.2f} (" in printed
    assert ("slower" in printed) == (code == 1)


@pytest.mark.parametrize("other", [{"instructions": ["avx2"]}, {"cores": 64}, {"instructions": []}])
def test_another_kind_of_cpu_has_nothing_to_compare_with(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], other: dict[str, Any]
) -> None:
    now = write(kept / "throughput-now.json", result({OURS: 0.1}), **other)
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, "--from", str(now))
    assert ended.value.code == 2
    assert "nothing to compare with" in capsys.readouterr().out


def test_another_part_is_refused_by_its_name(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = write(kept / "speed.json", result({OURS: 0.8}))
    with pytest.raises(SystemExit, match=r"speed\.json: files are named PART-\*\.json, of throughput or costs"):
        command(monkeypatch, "--from", str(now))


@pytest.mark.parametrize("kind", ["avx2", "avx512_bf16"])
def test_the_committed_results_are_the_same_as_themselves(kind: str) -> None:
    now = {part: json.loads((run.RESULTS / f"{part}-{kind}.json").read_text())["figures"] for part in compare.MARGINS}
    for part in compare.MARGINS:
        rows = compare.compare(part, now, now)
        assert rows
        assert {row.verdict for row in rows} <= {"same", "unclear", "too few"}
        assert all(row.change is not None and row.change.median == 1 for row in rows)
