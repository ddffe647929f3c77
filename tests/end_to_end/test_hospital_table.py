"""A table as five hospitals have it, from `new` to the page: 8 % die, mixed columns, gaps, persons who come twice."""

from __future__ import annotations

import math
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer as gs
from gossamer.cli import main

pytestmark = [
    pytest.mark.usefixtures("called_here"),
    pytest.mark.filterwarnings("always::gossamer.errors.RunWarning"),
]
HEADER = "patient,hospital,admitted,age,sex,ward,lactate,creatinine,diabetes,died"
NEW = [
    *("new", "stays", "--data", "stays.csv", "--target", "died", "--labels", "no,yes", "--prevalence", "0.08"),
    *("--owner", "hospital", "--person", "patient", "--rows-per-person", "2", "--boolean", "diabetes"),
    *("--date", "admitted=2021-01-01..2023-12-31", "--range", "age=18..100", "lactate=0.5..5", "creatinine=40..180"),
    *("--categories", "sex=f,m", "ward=medical,surgical,emergency,unknown", "--was-empty", "lactate"),
    *("--missing", "ward=unknown", "lactate=1.5", "creatinine=90"),
]
"""All of it public knowledge: none of it was counted in the rows."""
DOUBT = "a budget that teaches little: the smallest node trains on 2"


def stays(rows: int = 4000) -> float:
    """Write stays.csv and return the share that died; one in four rows is of a person who was there before."""
    draw, lines, deaths = random.Random(39), [HEADER], 0
    before: list[tuple[Any, ...]] = []
    for row in range(rows):
        if before and draw.random() < 0.25:
            person = before.pop(draw.randrange(len(before)))
        else:
            person = f"p{row}", "ABCDE"[row % 5], draw.randint(18, 95), draw.choice("fm")
            before.append(person)
        who, hospital, age, sex = person
        admitted = date(2021, 1, 1) + timedelta(days=draw.randrange(1095))
        ward, diabetes = draw.choice(["medical", "surgical", "emergency"]), draw.random() < 0.2
        lactate, creatinine = draw.gammavariate(4, 0.45), draw.gauss(95, 25)
        odds = 0.045 * age + 0.55 * lactate + 0.007 * (creatinine - 95) - 6.83
        odds += 0.6 * (ward == "emergency") + 0.4 * diabetes
        died = draw.random() < 1 / (1 + math.exp(-odds))
        deaths += died
        cells = [who, hospital, admitted, age, sex, "" if draw.random() < 0.05 else ward]
        cells += ["" if draw.random() < 0.2 else f"{lactate:.1f}", "NA" if draw.random() < 0.1 else f"{creatinine:.0f}"]
        lines.append(",".join(map(str, [*cells, ["no", "yes"][diabetes], ["no", "yes"][died]])))
    Path("stays.csv").write_text("\n".join(lines) + "\n")
    return deaths / rows


def called(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[str, str]:
    """What a command says that has to succeed: its output, and its warnings."""
    capsys.readouterr()
    assert main(line) == 0
    found = capsys.readouterr()
    return " ".join(found.out.split()), " ".join(found.err.split())


def test_a_table_becomes_a_page_in_four_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """At epsilon 3 the rule says beforehand that 24 deaths at a hospital, of persons who come twice, are too few."""
    assert 0.075 < stays() < 0.085
    assert DOUBT in called(capsys, *NEW, "--epsilon", "3")[1]
    said, warned = called(capsys, "check", "stays.yaml")
    assert "The spec can be run, but see the warning." in said
    assert DOUBT in warned
    assert "2/L" not in warned
    assert "shortens" not in warned
    said, _ = called(capsys, "run", "stays.yaml", "--out", "out")
    assert "at most 2 examples" in said
    called(capsys, "report", "out")
    page = Path("out/report.html").read_text()
    assert all(word in page for word in ("ROC", "died", "constant"))


def _judged(spec: dict[str, Any], seed: int, **changed: Any) -> tuple[float, float]:
    """Mean predicted risk, and the area under the ROC curve, of all rows."""
    made = {key: value for key, value in {**spec, "seed": seed, **changed}.items() if value is not None}
    figures = gs.run({**made, "evaluation": "off"}).model.evaluate("stays.csv")["figures"]
    return figures["mean_predicted"]["value"], figures["auroc"]["value"]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [3, 8])
def test_risks_are_right_and_rows_are_ranked_as_without_privacy(
    epsilon: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of five seeds, within 15 % of the prevalence and 0.03 of the AUROC without privacy: each where it can be learnt.

    At epsilon 3 the rule says that it cannot, and the mean of five runs is within, but not each: in 60 runs the mean
    risk was 0.99 of the share with a deviation of 0.080, and the AUROC 0.013 less with one of 0.008. So a mean of five
    fails by chance once in 1,000 times; each of five at epsilon 8, with 0.99, 0.062, 0.003 and 0.002, once in ten. The
    noise follows from the test's name, so it passes always or never.
    """
    share = stays()
    doubted = DOUBT in called(capsys, *NEW, "--epsilon", str(epsilon))[1]
    assert doubted == (epsilon == 3)
    spec = yaml.safe_load(Path("stays.yaml").read_text())
    private = [_judged(spec, seed) for seed in range(5)]
    plain = [_judged(spec, seed, privacy="none", budget=None) for seed in range(5)]
    risks, lost = [risk for risk, _ in private], [b - a for (_, a), (_, b) in zip(private, plain, strict=True)]
    if doubted:
        risks, lost = [sum(risks) / 5], [sum(lost) / 5]
    assert risks == pytest.approx([share] * len(risks), rel=0.15)
    assert max(lost) <= 0.03
