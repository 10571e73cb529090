"""README and docs: their commands run, their YAML is valid, their tables agree with the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.tools.documents import PAGES, ROOT, blocks, commands, in_tables
from trainer.cli import main as cli
from trainer.debug import symptoms
from trainer.job import load
from trainer.job.errors import Exit
from trainer.supervisor.metrics import prometheus
from trainer.targets.kubernetes import render as kubernetes

CONTAINERS, KUBERNETES = "docs/containers.md", "docs/kubernetes.md"
QUICK = [w for w in commands("trainer") if w[1] in ("check", "schema", "import")]


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].encode()) <= 8000


@pytest.mark.parametrize("words", QUICK, ids=shlex.join)
def test_quick_commands_succeed(words: list[str]) -> None:
    words = words[: words.index(">")] if ">" in words else words
    ended = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


def test_every_command_is_run_by_a_test() -> None:
    """`trainer local`, `trainer track` and what asks its jobs by tests/local, those on containers by tests/compose, on
    Kubernetes by tests/kind."""
    pages = (CONTAINERS, KUBERNETES, "docs/operating.md", "docs/debugging.md")
    elsewhere = [words for page in pages for words in commands("trainer", page)]
    rest = [
        words for words in commands("trainer") if words not in QUICK + elsewhere and words[1] not in ("local", "track")
    ]
    assert rest == []


@pytest.mark.parametrize("words", in_tables(), ids=shlex.join)
def test_commands_in_tables_are_of_valid_jobs(words: list[str]) -> None:
    assert cli.main(["check", *words[2:]]) == Exit.OK


def test_make_targets_exist_and_are_described() -> None:
    described = re.findall(r"^([a-z-]+)\b[^:=]*:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {words[1] for words in commands("make")} <= {*described}


@pytest.mark.parametrize("block", blocks("yaml"))
def test_specs_are_valid_and_those_of_the_files_they_show(block: str) -> None:
    shown = yaml.safe_load(block)
    spec, files = load.build(shown), list((ROOT / "examples").rglob(f"{shown['name']}.yaml"))
    for file in files:
        assert spec == load.build(yaml.safe_load(file.read_text()))
    if not files:
        kubernetes.render(spec, "trainer render")


EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".yaml", ".py"))


def test_every_example_begins_with_a_line_on_what_it_shows() -> None:
    rules = {".yaml": r"# [A-Z].*[.:?]$", ".py": r'"""[A-Z].*[.:]'}
    first = {path: path.read_text().splitlines()[0] for path in EXAMPLES}
    assert {path.name: line for path, line in first.items() if not re.match(rules[path.suffix], line)} == {}


def test_every_example_is_valid() -> None:
    for path in [*(ROOT / "examples").glob("*.yaml"), *(ROOT / "examples" / "programs").glob("*.yaml")]:
        assert load.load_file(path).name == path.stem


def test_exit_codes_are_those_of_the_code() -> None:
    shown = dict(re.findall(r"^\| (\d+) \| (.*) \|$", PAGES["docs/operating.md"], re.MULTILINE))
    assert shown == {str(int(code)): code.meaning for code in Exit}


def test_troubleshooting_has_the_rows_of_the_code() -> None:
    section = PAGES["docs/operating.md"].partition("\n## Troubleshooting\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:] == symptoms.table()


def test_metrics_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `trainer_(\w+)(?:\{(.*)\})?` \| (.*) \|$", PAGES["docs/clusters.md"], re.MULTILINE)
    shown = {name: (help_text, tuple(labels.split(", ")) if labels else ()) for name, labels, help_text in rows}
    assert shown == {name: (family.help, family.labels) for name, family in prometheus.METRICS.items()}


def test_figures_in_the_readme_are_those_of_the_benchmarks() -> None:
    shown = re.findall(r"[\d.]+ times as\s+fast", PAGES["README.md"])
    assert shown
    medians = re.sub(r" \([\d.]+ to [\d.]+\)", "", PAGES["docs/benchmarks.md"])  # without their intervals
    for figure in shown:
        assert " ".join(figure.split()) in medians


LINK = r"\]\((?!https?:)([^)\s]*)\)"


def sources() -> list[Path]:
    return [ROOT / name for name in PAGES] + sorted((ROOT / "docs" / "decisions").glob("*.md"))


def test_links_lead_to_files_and_headings() -> None:
    links = [(path, target) for path in sources() for target in re.findall(LINK, path.read_text())]
    assert links
    assert [f"{path.relative_to(ROOT)}: {target}" for path, target in links if not leads_somewhere(path, target)] == []


def leads_somewhere(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (path.parent / name).resolve() if name else path
    if not file.exists() or (file.is_file() and not file.stat().st_size):
        return False
    return not anchor or anchor in anchors(file)


def anchors(page: Path) -> set[str]:
    """Of the headings, as both GitHub and mkdocs name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_files_that_the_pages_name_exist() -> None:
    for page, text in PAGES.items():
        for name in re.findall(r"`((?:trainer|tests|examples|k8s|images|scripts|docs)/[\w/.-]*)`", text):
            assert (ROOT / name).exists(), f"{page}: {name}"
