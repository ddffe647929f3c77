"""The model card, and the first sentence of a report: what people said, and what they did not say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer as gs
from gossamer.cli.main import main
from gossamer.report.model_card import model_card
from gossamer.report.records import read_records

SAID = {
    "purpose": "warn the ward",
    "limits": "not for children | nor elsewhere",
    "persons": "patients of two wards <i>",
    "decided": "the board",
}


def spec(folder: Path, **more: Any) -> Path:
    rows = [f"{20 + i % 60},{'fm'[i % 2]},{'no' if i % 60 < 30 else 'yes'}" for i in range(120)]
    (folder / "wards.csv").write_text("age,sex,ill\n" + "\n".join(rows) + "\n")
    there = folder / "spec.yaml"
    there.write_text(
        yaml.safe_dump(
            {
                "dataset": {
                    "name": "wards",
                    "path": "wards.csv",
                    "target": "ill",
                    "labels": ["no", "yes"],
                    "columns": {"age": [0, 120], "sex": ["f", "m"]},
                },
                "algorithm": {"name": "gossip", "nodes": 2},
                "privacy": {"noise_secret": "reproducible"},
                "budget": {"epsilon": 8, "delta": 1e-4},
                "stop": {"epochs": 2},
                **more,
            }
        )
    )
    return there


def test_what_people_said_is_on_the_card_and_first_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    out = tmp_path / "out"
    assert main(["run", str(spec(tmp_path, about=SAID, privacy={})), "--out", str(out)]) == 0
    assert main(["report", str(out), "--card"]) == 0
    card = (out / "model-card.md").read_text()
    head, text = re.fullmatch(r"---\n(.*?)---\n(.*)", card, re.DOTALL).groups()  # type: ignore[union-attr]
    assert yaml.safe_load(head)["library_name"] == "gossamer"
    first = f"This model predicts whether ill is no or yes, from 2 columns of the table wards: {SAID['persons']}."
    for words in (first, "## What it is for\n\nwarn the ward", SAID["limits"], "## Who decided\n\nthe board"):
        assert words in text
    assert "| age | number from 0 to 120 |\n| sex | one of f, m |" in text
    scores = json.loads((out / "summary.json").read_text())["scores"]["figures"]["auroc"]
    low, high = scores["interval"]
    assert f"| area under the ROC curve | {scores['value']:.3f} | {low:.3f} to {high:.3f} | 0.500 |" in text
    assert "at delta 0.0001." in text
    page = (out / "report.html").read_text()
    assert page.index("patients of two wards &lt;i&gt;") < page.index("Runs</h2>")
    assert gs.load_model(out).card.about.persons == SAID["persons"]  # type: ignore[union-attr]


def test_columns_are_said_as_they_were_declared(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    there, out = spec(tmp_path), tmp_path / "out"
    given = yaml.safe_load(there.read_text())
    head, *lines = (tmp_path / "wards.csv").read_text().splitlines()
    rows = [f"2022-03-{1 + n % 28:02},1980-01-01,{line}" for n, line in enumerate(lines)]
    (tmp_path / "wards.csv").write_text("\n".join([f"seen,born,{head}", *rows]))
    given["dataset"]["columns"] = {
        "age": {"range": [0, 120], "missing": 50, "was_empty": True},
        "sex": {"categories": ["f", "m"], "missing": "f"},
        "seen": {"range": ["2022-01-01", "2023-12-31"], "missing": "2022-06-30", "parts": ["days", "month"]},
        "born": {"kind": "date", "since": "1970-01-01", "range": ["1971-01-01", "2010-12-31"]},
    }
    there.write_text(yaml.safe_dump(given))
    assert main(["run", str(there), "--out", str(out)]) == 0
    assert main(["report", str(out), "--card"]) == 0
    card = (out / "model-card.md").read_text()
    for line in (
        "| age | number from 0 to 120; an empty cell is read as 50; a further feature says whether it was empty |",
        "| sex | one of f, m; an empty cell is read as f |",
        "| seen | date from 2022-01-01 to 2023-12-31 (days, month); an empty cell is read as 2022-06-30 |",
        "| born | date from 1971-01-01 to 2010-12-31, in days since 1970-01-01 |",
    ):
        assert line in card


def test_what_nobody_said_is_said_to_be_missing(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    out = tmp_path / "out"
    assert main(["run", str(spec(tmp_path)), "--out", str(out)]) == 0
    assert main(["report", str(out), "--card"]) == 0
    card = (out / "model-card.md").read_text()
    assert "nobody said whose data these are (about.persons)" in card
    assert card.count("Nobody said (about.") == 3


def test_a_public_card_has_no_score_on_test_rows(tmp_path: Path) -> None:
    """Nor how many updates there were where the guarantee holds only if nobody learns that."""
    pytest.importorskip("jinja2")
    out = tmp_path / "out"
    assert main(["run", str(spec(tmp_path)), "--out", str(out)]) == 0
    summary = json.loads((out / "summary.json").read_text())
    updates = f", {summary['updates']} updates."
    cards = []
    for more in ([], ["--public"]):
        assert main(["report", str(out), "--card", *more]) == 0
        cards.append((out / "model-card.md").read_text())
    assert "| area under the ROC curve |" in cards[0]
    assert "Scores on test rows are left out" in cards[1]
    assert "area under the ROC curve" not in cards[1]
    assert all(updates in card for card in cards)
    summary["privacy"]["secret_schedule"] = True
    (out / "summary.json").write_text(json.dumps(summary))
    assert main(["report", str(out), "--card", "--public"]) == 0
    assert updates not in (out / "model-card.md").read_text()


def test_figures_of_declared_groups_stand_on_card_and_page_and_in_public_only_released_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of `evaluate --by` for the same rows, which are the reference; with a release also those of histograms."""
    pytest.importorskip("jinja2")
    dataset = yaml.safe_load(spec(tmp_path).read_text())["dataset"] | {"test_path": "wards.csv"}
    released = {"release": "private", "epsilon": 5}
    for name, more in (("exact", {}), ("released", released), ("together", {**released, "by": "federation"})):
        there = spec(tmp_path, dataset=dataset, evaluation={"group": "sex", **more}, privacy={})
        out = tmp_path / name
        assert main(["run", str(there), "--out", str(out)]) == 0
        assert "\nby sex  rows  ROC area" in capsys.readouterr().out
        by = gs.load_model(out).evaluate(tmp_path / "wards.csv", by="sex")["groups"]
        scores = json.loads((out / "summary.json").read_text())["scores"]
        assert scores["groups"] == by
        one = by["sex"]["f"]["figures"]["auroc"]
        cell = f"{one['value']:.3f} ({one['interval'][0]:.3f} to {one['interval'][1]:.3f})"
        assert main(["report", str(out), "--card"]) == 0
        card, page = ((out / file).read_text() for file in ("model-card.md", "report.html"))
        assert f"| f | 60 | {cell} |" in card
        assert cell in page
        assert main(["report", str(out), "--card", "--public"]) == 0
        card, page = ((out / file).read_text() for file in ("model-card.md", "report.html"))
        assert cell not in card + page
        assert ("| sex=f |" in card) is (name != "exact")
        assert ("sex=f" in page) is (name != "exact")
        assert ("Of the sum of all parties' histograms, released once" in card) is (name == "together")


def test_words_change_no_run(tmp_path: Path) -> None:
    for name, more in (("said", {"about": SAID}), ("plain", {})):
        assert main(["run", str(spec(tmp_path, **more)), "--out", str(tmp_path / name)]) == 0
    said, plain = (gs.load_model(tmp_path / name).vector for name in ("said", "plain"))
    assert said.tobytes() == plain.tobytes()


def test_a_card_is_of_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    for name in ("a", "b"):
        assert main(["run", str(spec(tmp_path)), "--out", str(tmp_path / name)]) == 0
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--card"]) == 2
    assert "--card: expected one run, found 2" in capsys.readouterr().err
    assert not any((tmp_path / "a" / name).exists() for name in ("model-card.md", "report.html"))


def test_a_card_says_first_that_a_model_is_no_better_than_a_constant(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    out = tmp_path / "out"
    assert main(["run", str(spec(tmp_path)), "--out", str(out)]) == 0
    summary = json.loads((out / "summary.json").read_text())
    summary["scores"]["better"] = False
    (out / "summary.json").write_text(json.dumps(summary))
    assert main(["report", str(out), "--card"]) == 0
    text = (out / "model-card.md").read_text()
    assert text.index("No better than saying the same of every row") < text.index("| area under the ROC curve")


TABLE = ("new", "wards", "--data", "wards.csv", "--target", "ill", "--labels", "no,yes")
NEW = (*TABLE, "--range", "age=0..120", "--categories", "sex=f,m")


def test_new_writes_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main([*NEW, "--about", "purpose=warn the {ward}: now", "persons=patients, 2024"]) == 0
    about = gs.read_spec("wards.yaml").about
    assert about is not None
    assert about.model_dump() == {"purpose": "warn the {ward}: now", "persons": "patients, 2024"}


def test_new_asks_what_was_not_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec(tmp_path)
    monkeypatch.chdir(tmp_path)
    answers = {"What is the model for?": "warn the ward", "Whose data are these?": "patients"}
    share = iter(["half", "1.2", "0.4"])
    common = "How common is yes, as is known without these rows, such as 0.08?"

    def answer(asked: str) -> str:
        asked = asked.partition(" (Enter")[0]
        return next(share) if asked == common else answers.get(asked, "")

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main([*NEW, "--about", "limits=not for children"]) == 0
    about, dataset = gs.read_spec("wards.yaml").about, gs.read_spec("wards.yaml").dataset
    assert dataset.prevalence == 0.4
    assert about is not None
    assert about.model_dump() == {"purpose": "warn the ward", "limits": "not for children", "persons": "patients"}


@pytest.mark.parametrize("said", ["porpose=x", "purpose", "purpose= "])
def test_new_refuses_what_no_card_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    spec(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main([*NEW, "--about", said]) == 2
    assert "--about: expected KEY=TEXT with one of purpose, limits, persons, decided" in capsys.readouterr().err
    assert not Path("wards.yaml").exists()


def test_a_card_of_a_run_without_a_model_makes_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    out = tmp_path / "out"
    assert main(["run", str(spec(tmp_path)), "--out", str(out)]) == 0
    (out / "model.json").unlink()
    assert main(["report", str(out), "--card", "--out", str(tmp_path / "new")]) == 2
    assert "expected a model, with model.json, found none" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_party_s_folder_has_a_card_too(tmp_path: Path) -> None:
    """Its summary has no number of updates, which the other parties may have made as well."""
    out = tmp_path / "out"
    assert main(["run", str(spec(tmp_path)), "--out", str(out)]) == 0
    summary = json.loads((out / "summary.json").read_text())
    del summary["updates"]
    (out / "summary.json").write_text(json.dumps(summary))
    assert "# Model card: out" in model_card(read_records([out])[0])
