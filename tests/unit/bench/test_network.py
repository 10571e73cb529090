"""What is made of the figures of networks; the networks themselves: tests/local/test_namespaces.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import marks, namespaces, network, run, section
from bench.marks import Mark
from bench.run import Process

BANDWIDTHS = [str(mbit) for mbit in namespaces.BURSTS]


def needs(monkeypatch: pytest.MonkeyPatch, folder: Path, examples: dict[str, list[int | None]]) -> None:
    path = folder / "examples.json"
    path.write_text(json.dumps(examples))
    monkeypatch.setattr(network, "NEEDED", path)


def test_seconds_are_the_examples_of_each_run_at_the_median_rate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs(monkeypatch, tmp_path, {"trainer": [200, 300, None], "torch DDP": [1000]})
    rates: network.Rates = {
        name: {key: [90.0, 100.0, 400.0] for key in BANDWIDTHS} for name in ("trainer", "torch DDP")
    }
    rates[network.PLAIN] = {key: [50.0] for key in BANDWIDTHS}
    found = network.figures(rates)
    assert found["trainer"]["100"]["seconds_to_accuracy"] == [2.0, 3.0, None]
    assert found["torch DDP"]["1000"]["seconds_to_accuracy"] == [10.0]
    assert found[network.PLAIN]["100"]["seconds_to_accuracy"] == [4.0, 6.0, None], "it computes what ours does"


def test_the_table_has_shares_of_the_same_turn_and_tells_of_runs_that_were_not_accurate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs(monkeypatch, tmp_path, {"trainer": [500, None, 1000]})
    rates: network.Rates = {
        network.IDEAL: {key: [100.0, 200.0, 400.0] for key in BANDWIDTHS},
        "trainer": {key: [50.0, 20.0, 360.0] for key in BANDWIDTHS},
    }
    *_, ideal, own = network.table(network.figures(rates))
    assert ideal.split(" | ")[1:4] == ["200", "", ""]
    assert own.split(" | ")[1:4] == ["50", "0.50 (0.10 to 0.90)", "20 (10 to longer)"]


def test_marks_are_read_from_output_and_from_the_curve_and_an_end_is_told_with_the_output(tmp_path: Path) -> None:
    lines = ["a warning", "step=30 time=5.5 accuracy=0.25", "step=60 time=7.0"]
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 7, "time": 9.0}) + "\n")
    script = "\n".join([*(f"echo '{line}'" for line in lines), "exec tail -f /dev/null"])
    with marks.started([Process(["bash", "-c", script], {})], tmp_path) as found:
        assert {found.next() for _ in range(3)} == {Mark(30, 5.5, 0.25), Mark(60, 7.0), Mark(7, 9.0)}
    ended = Process(["echo", "no module"], {})
    with pytest.raises(SystemExit, match="no module"), marks.started([ended], tmp_path / "none") as found:
        found.next()


def test_tables_are_written_between_their_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{section.begin('network')}\nold\n{section.end('network')}\nafter\n")
    monkeypatch.setattr(section, "PAGE", page)
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)  # where there are no pictures
    section.write("network", {"a": 3}, lambda figures: [f"| {figures['a']} |"])
    begin, *_, row, _, end, _ = page.read_text().partition("before\n")[2].split("\n")[:-1]
    assert (begin, row, end) == (section.begin("network"), "| 3 |", section.end("network"))
    assert "old" not in page.read_text()
    assert section.read("network") == {"a": 3}


@pytest.mark.parametrize("part", ["network", "accuracy"])
def test_the_page_has_the_marks(part: str) -> None:
    text = section.PAGE.read_text()
    assert text.count(section.begin(part)) == text.count(section.end(part)) == 1


def test_a_user_who_is_not_root_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/sbin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert namespaces.problem() == "needs root, to make network namespaces: sudo"
    monkeypatch.setattr("shutil.which", lambda name: None if name == "tc" else f"/sbin/{name}")
    assert namespaces.problem() == "tc: not found: needs Linux with iproute2 and util-linux"
