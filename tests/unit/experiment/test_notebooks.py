"""Results, guarantees and experiments as notebooks show them, and metrics as tables."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import gossamer as gs
from gossamer.files import to_csv
from gossamer.privacy.guarantees import planned, reproducible
from gossamer.privacy.mechanisms import NeighboringRelation

ROOT = Path(__file__).resolve().parents[3]
EVIL = '<script>alert("1")</script>'


class Page(HTMLParser):
    """Text of a page, its tags, and whatever refers to something else."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.said, self.tags, self.open, self.fetched = "", set[str](), list[str](), list[str]()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        self.fetched += [name for name, value in attrs if name in ("src", "href") or "url(" in (value or "")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += f"{data}\n"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> gs.Result:
    spec = {"algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 4}, "privacy": {"noise_multiplier": 2}}
    return gs.run(spec, tmp_path_factory.mktemp("notebook") / "out")


def guarantees() -> Iterator[gs.Guarantee]:
    good = planned(1.0, 1e-5, NeighboringRelation.REPLACE_ONE, f"by {EVIL}", f"that {EVIL}")
    yield replace(good, unit=f"row of {EVIL}", observer=f"all but {EVIL}", remarks=("one", f"two {EVIL}"))
    yield reproducible(good)
    yield replace(good, epsilon=math.inf, assumptions=(), proof=f"nothing: {EVIL}")


@pytest.mark.parametrize("shown", [*guarantees(), gs.Experiment(privacy="none", dataset=EVIL)], ids=range(4))
def test_names_are_escaped_and_nothing_is_fetched(shown: Any) -> None:
    page = Page(shown._repr_html_())
    assert page.open == []
    assert page.fetched == []
    assert "script" not in page.tags
    assert "color:" not in shown._repr_html_()  # it has those of the notebook


def test_a_guarantee_says_what_it_says_in_words() -> None:
    good = next(guarantees())
    said = Page(good._repr_html_()).said
    for part in ("(1, 1e-05)-differential privacy", good.unit, good.observer, good.proof, *good.assumptions):
        assert part in said
    assert all(f"{remark}." in said for remark in good.remarks)


def test_a_guarantee_that_is_none_says_so() -> None:
    would_be, none = list(guarantees())[1:]
    assert "No privacy guarantee" in Page(none._repr_html_()).said
    said = Page(would_be._repr_html_()).said
    assert "No privacy guarantee" in said
    assert said.index("With a noise secret") < said.index("(1, 1e-05)-differential privacy")


def test_a_result_has_its_figures_and_its_guarantee(result: gs.Result) -> None:
    said = Page(result._repr_html_()).said
    assert f"{result.metrics[-1]['mean_model_test_accuracy']:.4g} (private)" in said
    assert str(result.folder) in said
    assert result._repr_html_().count(result.guarantee._repr_html_()) == 1


def test_a_result_that_is_no_better_than_a_constant_says_so_first(result: gs.Result) -> None:
    figures = {"r2": {"value": 0.01, "interval": [-0.02, 0.04], "constant": 0.0, "gain": [-0.02, 0.04]}}
    scores = {"rows": 90, "persons": None, "level": 0.95, "figures": figures, "better": False}
    said = Page(replace(result, summary={**result.summary, "scores": scores})._repr_html_()).said
    assert "No better than saying the same of every row, as far as 90 rows tell: R2 0.010 (-0.020 to 0.040)" in said
    assert "where that has 0.000. (private)" in said  # as every figure on test examples is marked


def test_an_experiment_shows_what_is_not_as_by_default() -> None:
    said = Page(gs.Experiment(algorithm=gs.Gossip(nodes=3), budget=gs.Budget(epsilon=2), seed=4)._repr_html_()).said
    above, spec = said.split("The whole spec")
    assert above.split("\n")[:1] == ["Experiment, seed 4"]
    assert "name: gossip, nodes: 3" in above
    assert "epsilon: 2.0" in above
    assert "partition" not in above
    assert "partition:" in spec


def test_metrics_by_column(result: gs.Result) -> None:
    frame = result.frame()
    assert list(frame) == list(result.metrics[0])
    assert {len(column) for column in frame.values()} == {len(result.metrics)}
    assert [dict(zip(frame, row)) for row in zip(*frame.values())] == result.metrics


def test_a_chart_has_the_figures_of_the_run(result: gs.Result) -> None:
    pytest.importorskip("altair", reason="needs the extra report")
    spec = result.plot("most_releases", across="updates").to_dict()
    rows = [(row["at"], row["value"]) for row in spec["data"]["values"]]
    assert rows == list({row["updates"]: (row["updates"], row["most_releases"]) for row in result.metrics}.values())


def test_a_chart_saved_as_the_page_says_loads_nothing_from_a_network(result: gs.Result, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="needs the extra report")
    assert 'chart.save("run.html", inline=True)' in (ROOT / "docs" / "how-to" / "python.md").read_text("utf-8")
    loads = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)\s*=\s*[\"']?http")
    result.plot().save(tmp_path / "run.html", inline=True)
    assert not loads.search((tmp_path / "run.html").read_text("utf-8"))
    result.plot().save(tmp_path / "else.html")
    assert loads.search((tmp_path / "else.html").read_text("utf-8"))  # what is looked for is what Altair writes


# metrics.csv


def test_the_table_says_what_the_lines_say(result: gs.Result) -> None:
    assert result.folder is not None
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    with open(result.folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [{name: None if cell == "" else json.loads(cell) for name, cell in row.items()} for row in rows] == lines


def test_figures_that_come_later_get_a_column() -> None:
    rows = [{"updates": 0, "a": 1.5}, {"updates": 1, "a": None}, {"updates": 2, "b,c": 1e-7}, {"updates": 3}]
    assert to_csv(rows) == 'updates,a,"b,c"\n0,1.5,\n1,,\n2,,1e-07\n3,,\n'
