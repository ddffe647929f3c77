"""The documentation: links lead somewhere, code runs, specs parse, commands print what the pages say."""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.reference.pages import MODULE, OWN, blocks, own_module

import gossamer as gs
from gossamer.algorithms.table import ALGORITHMS
from gossamer.cli.main import parser
from gossamer.experiment.results import records, summary
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy import guarantees
from gossamer.privacy.accounting import accountants
from gossamer.section import Kind
from gossamer.sides import pool

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("docs", "examples", "experiments", "deploy", "release", "benchmarks")
PAGES = sorted(
    [
        *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md")),
        *ROOT.glob("*.md"),
        ROOT / "changelog.d/README.md",
    ]
)

# Pages whose blocks are tested here; the others need files of their own, or have tests of their own.
RUN = sorted({*(DOCS / "algorithms").glob("*.md")} - {OWN}) + [
    DOCS / name
    for name in (
        "index.md",
        "quickstart.md",
        "notation.md",
        "spec.md",
        "spec/run.md",
        "commands.md",
        "privacy/guarantees.md",
        "privacy/attacks.md",
        "privacy/claims.md",
        "privacy/increasing-planner.md",
        "privacy/secure-aggregation.md",
        "privacy/correlated-noise.md",
        "how-to/simulate.md",
        "how-to/your-csv.md",
        "how-to/results.md",
        "how-to/python.md",
        "how-to/fault-testing.md",
    )
]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def with_blocks(language: str) -> list[Any]:
    return [pytest.param(page, id=name_of(page)) for page in RUN if blocks(page, language)]


def tables(text: str) -> Iterator[list[list[str]]]:
    """The rows of each table, header first, without the line under the header."""
    for found in re.findall(r"^(?:\|.*\n)+", text, re.MULTILINE):
        lines = found.splitlines()
        yield [[cell.strip() for cell in line.strip("|").split(" | ")] for line in (lines[0], *lines[2:])]


def section(page: Path, heading: str) -> str:
    """What stands under a heading of the second level."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    assert rest, f"{name_of(page)} has no section {heading!r}"
    return rest.partition("\n## ")[0]


# Links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    return broken


def test_links_lead_somewhere() -> None:
    assert {name_of(page): broken for page in PAGES if (broken := broken_links(page))} == {}


def test_every_page_is_linked_from_the_index() -> None:
    index = DOCS / "index.md"
    linked = {
        (DOCS / target.partition("#")[0]).resolve()
        for target in re.findall(r"\]\(([^)\s]+)\)", index.read_text(encoding="utf-8"))
    }
    assert {name_of(page) for page in DOCS.rglob("*.md")} - {name_of(DOCS / "index.md")} - {
        name_of(page) for page in linked if page.is_relative_to(ROOT)
    } == set()


# Code and specs


def run_page(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, name_of(page), "exec"), namespace)


@pytest.mark.some(5)
@pytest.mark.parametrize("page", with_blocks("python"))
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run_page(page)


@pytest.mark.parametrize("page", with_blocks("yaml"))
def test_specs_parse(page: Path) -> None:
    for block in blocks(page, "yaml"):
        parse_spec(yaml.safe_load(block))


def own_algorithm() -> ModuleType:
    """The module that the page on algorithms builds, with the tests that it shows."""
    module = sys.modules[MODULE] = ModuleType(MODULE)
    exec(compile(own_module(), name_of(OWN), "exec"), module.__dict__)
    tests = ModuleType("tests_of_the_page")
    exec(compile(blocks(OWN, "python")[-1], name_of(OWN), "exec"), tests.__dict__)
    return tests


OWN_TESTS = own_algorithm()


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's algorithms, as if the table named them."""
    for algorithm in (sys.modules[MODULE].ALGORITHM, sys.modules[MODULE].TRAINING):
        monkeypatch.setitem(ALGORITHMS, algorithm.Settings().name, algorithm)


@pytest.mark.usefixtures("_registered")
class TestTheAlgorithmOfAddYourOwn(OWN_TESTS.TestMyFedAsync):  # type: ignore[misc,name-defined]
    """The page's algorithm keeps the contract."""


@pytest.mark.usefixtures("_registered")
class TestTheAlgorithmOfAddYourOwnForClients(OWN_TESTS.TestMyFedAsyncOfClients):  # type: ignore[misc,name-defined]
    """And so does that for whole clients."""


def test_the_page_allows_what_it_registers() -> None:
    """A policy has the distribution by its name and version; that it then runs is tested over a broker."""
    project = tomllib.loads(blocks(OWN, "toml")[0])["project"]
    assert yaml.safe_load(blocks(OWN, "yaml")[0]) == {"modules": [f"{project['name']}=={project['version']}"]}


# Commands


def loaded(name: str) -> ModuleType:
    """A program that stands beside the pages."""
    loader = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    return module


OUTPUTS = loaded("outputs")
LONG = {"docs/algorithms/fedavg.md", "docs/algorithms/increasing.md", "docs/how-to/compare.md"}
"""Pages whose commands take more than 5 seconds, or nearly."""


@pytest.mark.some(6)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] * (name_of(page) in LONG))
        for page in OUTPUTS.pages()
    ],
)
@pytest.mark.filterwarnings("ignore:fedbuff. with noise_by:gossamer.errors.RunWarning")
def test_commands_print_what_the_page_says(page: Path) -> None:
    """But for the last digits of what is no integer: 1 %."""
    with OUTPUTS.workplace(page):
        for command, output in OUTPUTS.conversations(page.read_text(encoding="utf-8")):
            said = OUTPUTS.said(command)
            assert OUTPUTS.matches(output, said), f"$ {command}\n{said}\nnumbers alone? python docs/outputs.py"


def test_every_page_with_commands_is_run_or_says_why_not() -> None:
    assert {*OUTPUTS.ELSEWHERE} <= {name_of(page) for page in PAGES}
    assert not {name_of(page) for page in OUTPUTS.pages()} & {*OUTPUTS.ELSEWHERE}
    assert {*LONG} <= {name_of(page) for page in OUTPUTS.pages()}


def test_the_demo_is_that_of_the_makefile() -> None:
    (command,) = OUTPUTS.DEMO.values()
    assert f"\t@$(BIN)/{command}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("real_secrets")
@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "quickstart.md"], ids=name_of)
def test_accuracies_of_other_secrets_are_about_where_the_page_says(page: Path) -> None:
    """Within 0.015 of the range of 20 runs, 3.6 standard deviations (0.008) from its middle: 1 run in 3,000 is not."""
    (lowest, highest) = re.findall(r"in 20 runs .*?(0\.\d+) to (0\.\d+)", page.read_text(encoding="utf-8"))[0]
    for _ in range(4):
        found = gs.run(ROOT / "examples" / "digits-gossip.yaml").summary["metrics"]["mean_model_test_accuracy"]
        assert float(lowest) - 0.015 <= found <= float(highest) + 0.015


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a 1.00 b\n...\nz", "a 1.009 b\nx\ny\nz"),
        ("in 3 ...", "in 3 seconds here"),
        ("epsilon 0.914", "epsilon 0.921"),
        ("11.32... true", "11.3267 true"),
        ("1e-04", "1e-04"),
    ],
)
def test_what_is_the_same(shown: str, printed: str) -> None:
    assert OUTPUTS.matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a 1.0 b", "a 2.0 b"),
        ("accuracy 0.930", "accuracy 0.904"),
        ("sent 4259", "sent 4260"),
        ("a 1.0 b", "a 1.0 c"),
        ("a 1.0 b", "a 1.0 b c"),
        ("a ...", "b a"),
        ("... b ... c", "b a"),
        ("11.32... true", "11.52 true"),
    ],
)
def test_what_is_not_the_same(shown: str, printed: str) -> None:
    assert not OUTPUTS.matches(shown, printed)


def test_pages_are_renewed_where_numbers_changed_and_nowhere_else() -> None:
    shown = "node  epsilon\na     1.25     x\n...\nsent 12 in 3 ...\nsum 11.3...\n"
    printed = "node epsilon\na 10.5 x\nb 2 y\nsent 13 in 3 s\nsum 12.4567"
    assert OUTPUTS.renewed(shown, printed) == "node  epsilon\na     10.5     x\n...\nsent 13 in 3 ...\nsum 12.4...\n"
    assert OUTPUTS.renewed("a     1.25  x\n", "a 100.25 x") == "a     100.25  x\n"
    assert OUTPUTS.renewed("a 1\n", "b 1") is None


@functools.cache
def commands() -> dict[str, argparse.ArgumentParser]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kind, "registered", lambda kind: [])  # what others install is on pages of theirs
        return dict(_commands(parser()))


def _commands(command: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    below = [action for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for word, choice in action.choices.items():
            yield from _commands(choice, f"{name} {word}".strip())
    if not below:
        yield name, command


@pytest.mark.parametrize("command", commands())
def test_every_option_is_described(command: str) -> None:
    (rows,) = tables(section(DOCS / "commands.md", f"`gossamer {command}`"))
    described = {re.findall(r"`([^` ]+)", row[0])[0] for row in rows[1:]}
    # What is hidden is there to be refused in words.
    actions = [action for action in commands()[command]._actions if action.help != argparse.SUPPRESS]
    spelled = [action.option_strings or [str(action.metavar)] for action in actions]
    assert described == {next((one for one in names if one in described), names[-1]) for names in spelled} - {"--help"}


# Tables


SPEC_TABLES = loaded("spec_tables")


@pytest.mark.parametrize("page", SPEC_TABLES.PAGES, ids=name_of)
def test_tables_of_settings_are_up_to_date(page: Path) -> None:
    assert SPEC_TABLES.written(page) == page.read_text(encoding="utf-8"), "run: python docs/spec_tables.py"


def test_every_section_of_a_spec_is_described() -> None:
    assert SPEC_TABLES.PLACES.keys() == set(SPEC_TABLES.SECTIONS)
    (overview,) = tables(section(DOCS / "spec.md", "Sections"))
    assert [re.findall(r"`(\w+)`", row[0])[0] for row in overview[1:]] == list(gs.Experiment.model_fields)


def algorithms_of(page: Path) -> list[str]:
    """The algorithms whose settings a page lists."""
    found = SPEC_TABLES.BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [match[2] for match in found if match[1] == "algorithm" and match[2]]


def test_every_algorithm_has_a_page_with_its_settings() -> None:
    described = [ALGORITHMS[name].Settings for page in SPEC_TABLES.PAGES for name in algorithms_of(page)]
    assert {*described} == {algorithm.Settings for algorithm in ALGORITHMS.values()}
    assert len({*described}) == len(described)


BOXES = [
    page for page in SPEC_TABLES.PAGES if re.search(r"^\| line \|", page.read_text(encoding="utf-8"), re.MULTILINE)
]


def imported(place: str) -> Any:
    """A module, or a class in one."""
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(module), name) if name[0].isupper() else importlib.import_module(place)


@pytest.mark.parametrize("page", BOXES, ids=name_of)
def test_lines_of_the_box_are_where_the_page_says(page: Path) -> None:
    (rows,) = (t for t in tables(page.read_text(encoding="utf-8")) if t[0][0] == "line")
    (algorithm,) = algorithms_of(page)
    module = sys.modules[ALGORITHMS[algorithm].build.__module__]
    places = [place for row in rows[1:] for place in re.findall(r"`([^`]+)`", row[1])]
    assert places
    for place in places:
        owner, _, name = place.rpartition(".")
        there = getattr(module, owner, None) or imported(f"gossamer.algorithms.{owner}")
        assert callable(getattr(there, name))


def test_the_accountants_are_those_of_the_page() -> None:
    (rows,) = tables(section(DOCS / "privacy" / "guarantees.md", "Mechanisms, samplings and relations"))
    described = {tuple(cell.strip("`") for cell in row) for row in rows[1:]}
    assert described == {
        (row.mechanism.__name__, row.sampling.__name__, row.relation.value, row.accountant, row.multiplier)
        for row in accountants.ROWS
    }


def test_every_assumption_is_explained() -> None:
    text = " ".join((DOCS / "privacy" / "guarantees.md").read_text(encoding="utf-8").split())
    for relation in gs.NeighboringRelation:
        guarantee = guarantees.planned(1.0, 1e-5, relation, "")
        assert [line for line in (*guarantee.assumptions, guarantee.observer) if line not in text] == []


WILD = {
    "finished": "<node>",
    "ended": "<reason>",
    "privacy.nodes": "<node>",
    "privacy.claims[].parameters": "<name>",
    "scores.figures": "<name>",
    "scores.by_class": "<class>",
    "scores.by_class.<class>": "<name>",
}


def keys(value: Any, path: str = "") -> Iterator[str]:
    """The keys of nested data; names of nodes and parameters are wildcards, and spreads are not gone into."""
    if isinstance(value, dict) and value and path != "privacy.spread":
        wild = WILD.get(path)
        for key, item in value.items():
            yield from keys(item, f"{path}.{wild or key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from keys(value[0], f"{path}[]")
    else:
        yield path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs") / "out"
    spec = {"algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 5}, "privacy": {"noise_multiplier": 2}}
    faults = {"faults": {"absences": [{"node": 1, "start": 2.5}]}, "links": {"silence": 3}}
    gs.run(parse_spec({**spec, **faults}), out)
    return out


@pytest.fixture(scope="module")
def very_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results as they are of more than 10,000 nodes."""
    out = tmp_path_factory.mktemp("docs") / "many"
    with pytest.MonkeyPatch.context() as patch:
        for module in (pool, records, summary):
            patch.setattr(module, "MOST_NAMED", 1)
        algorithm = {"name": "gossip", "nodes": 2, "updates_per_node": 2}
        gs.run(parse_spec({"algorithm": algorithm, "privacy": {"noise_multiplier": 2}}), out)
    return out


@pytest.mark.parametrize(
    "file", ["summary.json", "metrics.jsonl", "ledger.jsonl", "private.jsonl", "nodes.json", "timing.json"]
)
def test_every_key_of_the_results_is_described(folder: Path, very_many: Path, file: str) -> None:
    found = [json.loads(line) for line in _documents(folder / file)]
    if file == "summary.json":
        found.append(json.loads((very_many / file).read_text()))
    expected = {key for document in found for key in keys(document)}
    described = {
        re.findall(r"`([^`]+)`", row[0])[0]
        for table in tables(section(DOCS / "how-to" / "results.md", f"`{file}`"))
        for row in table[1:]
    }
    assert described == expected


def _documents(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def test_every_file_of_the_results_is_described(folder: Path, very_many: Path) -> None:
    overview = next(tables((DOCS / "how-to" / "results.md").read_text(encoding="utf-8")))
    assert {row[0].strip("`") for row in overview[1:]} == {
        path.name for where in (folder, very_many) for path in where.iterdir()
    }


# The changelog


def test_fragments_of_the_changelog_are_named_by_their_kind() -> None:
    kinds = re.compile(r"[a-z0-9-]+\.(added|changed|deprecated|removed|fixed|security)\.md|README\.md")
    assert [path.name for path in (ROOT / "changelog.d").iterdir() if not kinds.fullmatch(path.name)] == []
