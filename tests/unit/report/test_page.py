"""The page as text: nothing leaves it, and nothing from data gets into its code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.unit.report.test_records import folder

import gossamer as gs
from gossamer.errors import DataError
from gossamer.report.drawing import Figure
from gossamer.report.page import html, page_of_runs, write_paper, write_report
from gossamer.report.records import RunRecord, read_records

EVIL = "<script>alert(1)</script><b>"
ROWS = [
    {"updates": n, "virtual_seconds": 1.0 * n, "bytes": 10 * n, "messages": n, "mean_model_test_accuracy": n / 9}
    | {"epsilon_so_far": n / 3}
    for n in range(5)
]


class Tags(HTMLParser):
    """Tags of a page, and what they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    there = folder(tmp_path_factory.mktemp("runs") / "r-seed0", ROWS, status=EVIL, algorithm=EVIL)
    return read_records([there])


@pytest.fixture(scope="module")
def text(records: list[RunRecord]) -> str:
    return html(page_of_runs(records))


def test_nothing_is_fetched(text: str) -> None:
    tags = Tags()
    tags.feed(text)
    assert all(link.startswith("#") for link in tags.links)
    assert "default-src 'none'" in text


def test_each_place_has_a_name_of_its_own(text: str) -> None:
    tags = Tags()
    tags.feed(text)
    assert len(set(tags.ids)) == len(tags.ids) > 3
    assert {link[1:] for link in tags.links} <= {*tags.ids}


@pytest.fixture
def weasyprint(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library, whose import has pictures that are cut off read as whole ones, until the test is over."""
    files = pytest.importorskip("PIL.ImageFile")
    monkeypatch.setattr(files, "LOAD_TRUNCATED_IMAGES", files.LOAD_TRUNCATED_IMAGES)
    return pytest.importorskip("weasyprint")


CUT = """
import io, sys
from pathlib import Path
from PIL import Image
from gossamer.report.page import page_of_runs, write_paper
from gossamer.report.records import read_records
write_paper(page_of_runs(read_records([Path(sys.argv[1])])), Path(sys.argv[1]))
whole = io.BytesIO()
Image.effect_noise((32, 32), 50).save(whole, "PNG")
Image.open(io.BytesIO(whole.getvalue()[:-200])).load()
"""


@pytest.mark.usefixtures("weasyprint")
def test_after_paper_a_picture_that_is_cut_off_is_refused_as_before(tmp_path: Path) -> None:
    there = folder(tmp_path / "r", ROWS)
    done = subprocess.run([sys.executable, "-c", CUT, str(there)], capture_output=True, text=True, check=False)
    assert (there / "report.pdf").exists()
    assert done.returncode == 1
    assert "OSError" in done.stderr


def test_on_paper_pictures_are_drawn_and_nothing_is_fetched(
    records: list[RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weasyprint: Any
) -> None:
    asked: list[str] = []
    fetch = weasyprint.urls.URLFetcher.fetch
    monkeypatch.setattr(weasyprint.urls.URLFetcher, "fetch", lambda self, url: asked.append(url) or fetch(self, url))
    page, drawn = page_of_runs(records), Figure.png
    titles: list[str] = []
    monkeypatch.setattr(Figure, "png", lambda self, scale: titles.append(self.title) or drawn(self, scale))
    paper = write_paper(page, tmp_path)
    assert not any(titles)  # which stand above the pictures
    assert paper.name == "report.pdf"
    assert paper.read_bytes().startswith(b"%PDF-")
    assert paper.stat().st_mode & 0o077 == 0  # the owner's alone, as the page is
    assert len(asked) == len(page.figures)
    assert all(url.startswith("data:image/png;") for url in asked)


def test_on_paper_no_row_is_split_and_no_short_name_is_broken(tmp_path: Path, weasyprint: Any) -> None:
    found = {name: {"value": 0.5123, "low": 0.4123, "high": 0.6123} for name in ("auroc", "brier", "sensitivity")}
    parties = {f"internal-medicine-{n}": found for n in range(60)}
    there = folder(tmp_path / "r", ROWS)
    summary = json.loads((there / "summary.json").read_text())
    summary["private_evaluation"] = {"epsilon": 1.0, "figures": found, "parties": parties}
    (there / "summary.json").write_text(json.dumps(summary))
    text = html(page_of_runs(read_records([there])), {"none": ""})
    lines: dict[str, int] = {}
    for sheet in weasyprint.HTML(string=text).render().pages:
        rows = [box for box in sheet._page_box.descendants() if type(box).__name__ == "TableRowBox"]
        for row in (row for row in rows if "0.612" in text_of(row) and "all parties" not in text_of(row)):
            assert text_of(row).count("0.612") == len(found)
            name = row.children[0]
            assert text_of(name) not in lines
            lines[text_of(name)] = sum(type(box).__name__ == "LineBox" for box in name.descendants())
    assert lines == dict.fromkeys(parties, 1)


def text_of(box: Any) -> str:
    """Text in a box, as it was laid out."""
    return "".join(one.text for one in box.descendants() if type(one).__name__ == "TextBox")


def test_one_run_is_a_list_of_facts_that_no_window_cuts(text: str, records: list[RunRecord]) -> None:
    overview = text.partition('id="overview"')[2].partition("</section>")[0]
    assert '<dl class="facts">' in overview
    assert "<table" not in overview
    two = html(page_of_runs([records[0], replace(records[0], path=records[0].path.with_name("other"))]))
    assert "<table" in two.partition('id="overview"')[2].partition("</section>")[0]


def test_paper_without_a_figure_has_no_code_either(records: list[RunRecord]) -> None:
    page = replace(page_of_runs(records), sections=())
    tags = Tags()
    tags.feed(html(page, {}))
    assert "script" not in tags.names


def test_paper_without_its_package_is_refused(
    records: list[RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(DataError, match=r"a report on paper needs the optional package weasyprint"):
        write_paper(page_of_runs(records), tmp_path)
    assert not [*tmp_path.iterdir()]


def test_names_from_data_do_not_end_up_in_code(text: str) -> None:
    tags = Tags()
    tags.feed(text)
    assert tags.names.count("script") == 3
    assert EVIL not in text
    assert "&lt;script&gt;alert(1)" in text


def test_each_figure_has_words_and_says_who_may_see_it(text: str, records: list[RunRecord]) -> None:
    figures = page_of_runs(records).figures
    assert [figure.name for figure in figures] == ["mean-model-test-accuracy", "epsilon-so-far"]
    for figure in figures:
        assert figure.description.startswith(figure.title)
    assert len(
        re.findall(r'class="mark (?:private|released|public)" title="[^"]+">(private|released|public)<', text)
    ) == len(figures)


def test_a_public_report_has_no_score_on_test_examples(records: list[RunRecord], tmp_path: Path) -> None:
    public = write_report(records, tmp_path, public=True).read_text()
    assert "epsilon-so-far" in public
    assert "accuracy" not in public.split("<main>")[1].split("<script>")[0]


COURSE = ("ended", "updates", "virtual seconds", "sent")


def test_a_public_report_hides_the_course_of_secret_cohorts_alone(tmp_path: Path) -> None:
    """Times and counts of such a run tell whom the server drew, which its guarantee assumes that nobody learns."""
    secret = {
        "algorithm": {"name": "fedavg", "nodes": 6, "rounds": 2, "clients_per_round": 3, "cohorts": "secret"}
        | {"noise_by": "server", "trusted": "server"},
        "privacy": {"noise_multiplier": 2},
    }
    gs.run(secret, tmp_path / "secret")
    gs.run({**secret, "algorithm": {**secret["algorithm"], "cohorts": "public"}}, tmp_path / "open")
    one = read_records([tmp_path / "secret"])
    both = read_records([tmp_path / "secret", tmp_path / "open"])
    page = page_of_runs(one, public=True)
    assert [section.name for section in page.sections] == ["privacy"]
    assert "is without its course" in page.notes[0]
    assert all(page.overview[0][cell] == "-" for cell in COURSE)
    assert {section.name for section in page_of_runs(one).sections} == {"scores", "privacy", "figures", "nodes"}
    assert all(cell != "-" for name, cell in page_of_runs(one).overview[0].items() if name in COURSE)
    compared = page_of_runs(both, public=True)
    drawn = {str(row) for section in compared.sections[1:] for figure in section.figures for row in figure.rows}
    assert drawn
    assert not any("secret" in row for row in drawn)
    assert all(cell != "-" for name, cell in compared.overview[1].items() if name in COURSE)


def test_every_score_that_results_hold_is_in_the_table_and_none_in_a_public_one(tmp_path: Path) -> None:
    scores = {"mean_model_test_accuracy": 0.75, "test_auroc": 0.875, "test_sensitivity": 0.5}
    places = [folder(tmp_path / "classes", ROWS), folder(tmp_path / "numbers", ROWS)]
    for place, metrics in zip(places, (scores, {"test_rmse": 2.5, "test_r2": None}), strict=True):
        summary = json.loads((place / "summary.json").read_text())
        (place / "summary.json").write_text(json.dumps({**summary, "metrics": metrics}))
    both = read_records(places)
    first, second = page_of_runs(both).overview
    shown = ("accuracy of the mean model", "sensitivity", "area under the ROC curve", "RMSE")
    assert [first[name].replace("\u00a0", " ") for name in shown] == ["75.0 %", "50.0 %", "0.875", "-"]
    assert [second[name] for name in shown] == ["-", "-", "-", "2.5"]
    assert first.keys() == second.keys()
    assert "R2" not in first  # nothing to say of either
    assert not page_of_runs(both, public=True).overview[0].keys() & set(shown)


@pytest.mark.parametrize(
    ("nodes", "shown"),
    [({"quota": 3}, "all finished"), ({"updates": 3}, "updates made"), ({"virtual_seconds": 3}, "time was up")],
)
def test_a_public_page_does_not_say_that_the_loss_on_test_examples_rose(
    nodes: dict[str, int], shown: str, tmp_path: Path
) -> None:
    """But that a node's own model diverged, which follows from what was released."""
    worse = {"initial_test_loss": 2.3, "test_loss": 9.0}
    found = read_records([folder(tmp_path / "r", ROWS, status="diverged", ended=nodes, ended_worse=worse)])
    assert [page_of_runs(found, public=public).overview[0]["ended"] for public in (False, True)] == ["diverged", shown]
    found = read_records(
        [folder(tmp_path / "own", ROWS, status="diverged", ended={"diverged": 1, "updates": 2}, ended_worse=worse)]
    )
    assert page_of_runs(found, public=True).overview[0]["ended"] == "diverged"


def test_a_score_that_is_no_number_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "r", ROWS)
    summary = json.loads((place / "summary.json").read_text())
    (place / "summary.json").write_text(json.dumps({**summary, "metrics": {"test_auroc": EVIL}}))
    with pytest.raises(gs.CallerError, match="expected the results folder of a run"):
        read_records([place])


def test_what_was_released_of_held_out_examples_is_shown_to_everybody(tmp_path: Path) -> None:
    figure = {"value": 0.8, "low": 0.75, "high": 0.85}
    hidden = dict.fromkeys(("value", "low", "high"))
    parties = {"node-0": {"auroc": figure, "calibration_slope": hidden}, EVIL: {"auroc": figure}}
    there = folder(tmp_path / "r-seed0", ROWS, algorithm="gossip")
    summary = json.loads((there / "summary.json").read_text())
    summary["private_evaluation"] = {"epsilon": 0.5, "figures": {"auroc": figure}, "parties": parties}
    (there / "summary.json").write_text(json.dumps(summary))
    text = html(page_of_runs(read_records([there]), public=True))
    assert "Private evaluation" in text
    assert text.count("0.800 (0.750 to 0.850)") == 3
    assert "noise of epsilon 0.5 for each held-out example" in text
    assert EVIL not in text


def test_a_private_figure_without_a_value_has_its_interval(tmp_path: Path) -> None:
    """Noise may leave no value that is likeliest, and still say between which it lies."""
    there = folder(tmp_path / "r-seed0", ROWS, algorithm="gossip")
    summary = json.loads((there / "summary.json").read_text())
    figures = {"auroc": {"value": None, "low": 0.25, "high": 0.875}, "brier": dict.fromkeys(("value", "low", "high"))}
    summary["private_evaluation"] = {"epsilon": 0.5, "figures": figures, "parties": {}}
    (there / "summary.json").write_text(json.dumps(summary))
    text = html(page_of_runs(read_records([there])))
    assert text.count("unknown (0.250 to 0.875)") == 1
    assert text.count("unknown (") == 1


@pytest.mark.parametrize(
    "found",
    [3, {}, {"epsilon": EVIL, "figures": {}, "parties": {}}, {"epsilon": 1, "figures": {"auroc": 3}, "parties": {}}],
)
def test_a_private_evaluation_that_is_none_is_refused(found: object, tmp_path: Path) -> None:
    place = folder(tmp_path / "r", ROWS)
    summary = json.loads((place / "summary.json").read_text())
    (place / "summary.json").write_text(json.dumps({**summary, "private_evaluation": found}))
    with pytest.raises(gs.CallerError, match="expected the results folder of a run"):
        write_report(read_records([place]), tmp_path)


def test_histograms_of_held_out_examples_that_nothing_covers_are_not_shown_in_public(tmp_path: Path) -> None:
    """Of a run without noise they are exact scores on test examples; reproducible noise can be drawn again."""
    there = folder(tmp_path / "r-seed0", ROWS, algorithm="gossip")
    summary = json.loads((there / "summary.json").read_text())
    figures = {"auroc": {"value": 0.8, "low": 0.75, "high": 0.85}}
    summary["private_evaluation"] = {"epsilon": None, "figures": figures, "parties": {}}
    (there / "summary.json").write_text(json.dumps(summary))
    own, shown = (html(page_of_runs(read_records([there]), public=public)) for public in (False, True))
    assert "0.800 (0.750 to 0.850)" in own
    assert "of which nothing is guaranteed" in own
    assert "0.800" not in shown
    assert "Private evaluation" not in shown
