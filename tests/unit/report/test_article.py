"""Means as an article shows them: intervals and tests against closed forms, tables and pictures from the command."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gs
from gossamer.cli.main import main
from gossamer.errors import SpecError
from gossamer.report.article import Article, Axes, Mean, _drawn, against

SPEC = """
algorithm: {name: gossip, nodes: 3, batch_size: 20, updates_per_node: 2}
privacy: {noise_secret: reproducible}
budget: {epsilon: 5, delta: 1.0e-4}
evaluation: "off"
"""


def mean(algorithm: str, *values: float, epsilon: str = "1") -> Mean:
    return Mean({"algorithm": algorithm, "budget.epsilon": epsilon}, dict(enumerate(values)))


def test_the_interval_of_two_seeds_is_that_of_cauchy() -> None:
    """With one degree of freedom t is Cauchy's, with the quantile tan(pi (p - 1/2)); the error of (a, b) is |a-b|/2."""
    low, high = mean("a", 0.5, 0.7).interval or (0, 0)
    half = math.tan(0.475 * math.pi) * 0.1
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half))
    assert mean("a", 0.5).interval is None
    assert mean("a", 0.5, 0.5, 0.5).interval is None  # of no width it would say that the mean is known
    assert math.isnan(mean("a").mean)


def test_a_paired_test_of_three_seeds_is_its_closed_form() -> None:
    """With two degrees of freedom p = 1 - |t| / sqrt(2 + t^2); differences 1, 2 and 6 have t = 3 / sqrt(7 / 3)."""
    t = 3 / math.sqrt(7 / 3)
    found = against([mean("a", 5, 5, 5), mean("b", 6, 7, 11)], "algorithm", "a")
    assert found == {1: pytest.approx(1 - t / math.sqrt(2 + t * t))}


def test_seeds_that_one_of_both_lacks_are_left_out_and_equal_differences_tell_nothing() -> None:
    one, other = mean("a", 5, 5, 5, 9), Mean({"algorithm": "b", "budget.epsilon": "1"}, {0: 6, 1: 7, 2: 11, 7: 0})
    assert against([one, other], "algorithm", "a").keys() == {1}
    assert against([one, mean("b", 6, 6, 6)], "algorithm", "a") == {}
    assert against([mean("a", 0.3, 0.6), mean("b", 0.1 + 0.3, 0.1 + 0.6)], "algorithm", "a") == {}  # but for rounding


@given(st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=1, max_size=6))
def test_several_tests_have_holms_correction(differences: list[list[int]]) -> None:
    """Of m tests: the largest, over tests with no larger p, of p times one more than the number of larger ones."""
    levels = [str(number) for number in range(len(differences))]
    base = [mean("a", 0, 0, 0, epsilon=level) for level in levels]
    rest = [mean("b", *map(float, own), epsilon=level) for own, level in zip(differences, levels, strict=True)]
    alone = [against([one, other], "algorithm", "a").get(1) for one, other in zip(base, rest, strict=True)]
    ranked = sorted(p for p in alone if p is not None)
    expected = {
        len(base) + place: min(1.0, max((len(ranked) - rank) * q for rank, q in enumerate(ranked) if q <= p))
        for place, p in enumerate(alone)
        if p is not None
    }
    assert against([*base, *rest], "algorithm", "a") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x=budget.epsilon", "expected x=KEY,y=FIGURE,hue=KEY, each once"),
        ("x=budget.epsilon,y=", "expected x=KEY,y=FIGURE,hue=KEY, each once"),
        ("x=algorithm,x=algorithm,y=loss", "expected x=KEY,y=FIGURE,hue=KEY, each once"),
        ("x=budget.epsilon,y=loss,colour=algorithm", "unknown key 'colour'; expected x=KEY,y=FIGURE,hue=KEY"),
        ("x=budget.epsilo,y=loss,hue=algorithm", "x=budget.epsilo is no key of the grid; did you mean budget.epsilon"),
        ("x=budget.epsilon,y=loss,hue=seed", "hue=seed is no key of the grid; expected one of"),
        ("x=budget.epsilon,y=loss", "algorithm of the grid is neither x nor hue"),
    ],
)
def test_axes_that_cannot_be_are_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Axes.read(text, ["algorithm", "budget.epsilon"])


def test_a_sentence_says_what_the_means_are() -> None:
    found = Article("auroc", [mean("a", 0.5, 0.6), Mean({"algorithm": "b"}, {0: 0.5, 1: 0.7}, p=0.5)], baseline="a")
    assert found.caption == (
        "Area under the ROC curve on test examples, mean over 2 seeds with its 95 % interval (Student's t). "
        "p: paired t-test by seed against a."
    )
    lacking = Article("auroc", [mean("a", 0.5), mean("b", 0.5, 0.6)], lacking=1)
    assert "over 1 to 2 seeds" in lacking.caption
    assert "Without 1 run that failed or diverged" in lacking.caption


NAMES = ("d_psgd 50% {a}", "$b_", r"\c ~^")


def test_latex_takes_what_names_have_and_less_than_is_no_other_letter(tmp_path: Path) -> None:
    """In TeX's own letters (OT1) a bare < is an inverted exclamation mark; a bare _ ends the document."""
    means = [Mean({"algorithm": name}, {0: 0.5, 1: 0.6}, p=p) for name, p in zip(NAMES, (None, 1e-4, 1), strict=True)]
    Article("auroc", means, baseline=NAMES[0]).write(tmp_path)
    tex = (tmp_path / "table.tex").read_text()
    assert r"by seed against d\_psgd 50\% \{a\}, with" in tex
    assert r"\$b\_ & 0.550 & $-$0.085 to 1.185 & 2 & $<$ 0.001 & - \\" in tex
    assert r"\textbackslash{}c \textasciitilde{}\textasciicircum{} & 0.550" in tex


def test_latex_sets_a_sign_as_one(tmp_path: Path) -> None:
    """Of a mean of 0.1 over 0.0 and 0.2 the interval reaches from -1.171 to 1.371 (12.706 times 0.1)."""
    Article("accuracy", [mean("a-1", 0.0, 0.2)]).write(tmp_path)
    tex = (tmp_path / "table.tex").read_text()
    assert "a-1 & 1 & 0.100 & $-$1.171 to 1.371 & 2" in tex
    assert "\\begin{table*}\n\\centering\n" in tex  # over both columns of an article that has two
    assert tex.endswith("\\end{tabular}\n\\end{table*}\n")


def test_latex_has_powers_of_ten_signs_in_headings_and_no_name_changed(tmp_path: Path) -> None:
    """A delta of 1e-05 is 10 to the power of -5, and names stay as they are. The interval is 12.706 times 5e-6."""
    keys = {"budget.epsilon": "0.5", "budget.delta": "1e-05", "algorithm": "lr-1e-05 p"}
    Article("loss", [Mean(keys, {0: 2.5e-5, 1: 3.5e-5}, 0.4)], delta=1.5e-5).write(tmp_path)
    tex = (tmp_path / "table.tex").read_text()
    assert r"at delta $1.5 \cdot 10^{-5}$." in tex
    head = (
        r"budget $\varepsilon$ & budget $\delta$ & algorithm & loss & 95 \% interval & seeds & $\varepsilon$ proved \\"
    )
    assert head in tex
    assert r"0.5 & $10^{-5}$ & lr-1e-05 p & $3 \cdot 10^{-5}$ & $-3.353 \cdot 10^{-5}$ to" in tex


def test_a_figure_takes_any_name_and_one_of_an_earlier_call_goes(tmp_path: Path) -> None:
    means = [Mean({"algorithm": name, "seed.of": "1"}, {0: 0.5, 1: 0.6}) for name in (*NAMES, "$x_$ and $")]
    for drawn in (Axes("algorithm", "auroc", "seed.of"), Axes("seed.of", "auroc", "algorithm")):
        Article("auroc", means, drawn).write(tmp_path)
        assert (tmp_path / "figure.png").exists()
    Article("auroc", means).write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.csv", "table.tex"]
    nothing = [replace(one, values={}) for one in means]
    Article("auroc", nothing, Axes("seed.of", "auroc", "algorithm")).write(tmp_path)


def test_lines_are_named_at_their_right_ends_and_numbers_with_their_key() -> None:
    """Whatever the order of the grid; and no interval of a share stretches the axis beyond 0 and 1."""
    means = [
        Mean({"budget.epsilon": e, "algorithm.batch_size": b}, {0: 0.2, 1: 0.9})
        for e in ("5", "1")
        for b in ("8", "16")
    ]
    with _drawn(means, Axes("budget.epsilon", "auroc", "algorithm.batch_size")) as figure:
        (plot,) = figure.axes
        assert [(one.get_text(), one.xy[0] > 4.5) for one in plot.texts] == [
            ("batch size 8", True),
            ("batch size 16", True),
        ]
        assert all(list(line.get_xdata()) == sorted(line.get_xdata()) for line in plot.lines)
        low, high = plot.get_ylim()
        assert low > -0.1
        assert high < 1.1


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with a figure and a baseline, by the command."""
    folder = tmp_path_factory.mktemp("article")
    (folder / "tiny.yaml").write_text(SPEC)
    options = ["--label", "algorithm=async gossip,D-PSGD", "--baseline", "algorithm=D-PSGD", "--seeds", "2"]
    grid = ["--grid", "algorithm=gossip,d_psgd", "--grid", "budget.epsilon=1,10"]
    figure = ["--figure", "x=budget.epsilon,y=auroc,hue=algorithm"]
    assert main(["sweep", str(folder / "tiny.yaml"), *grid, *options, *figure, "--out", str(folder / "swept")]) == 0
    return folder / "swept"


def test_one_command_makes_tables_and_a_figure(swept: Path) -> None:
    rows = list(csv.DictReader((swept / "table.csv").read_text().splitlines()))
    assert [(row["algorithm"], row["budget.epsilon"]) for row in rows] == [
        (name, epsilon) for name in ("async gossip", "D-PSGD") for epsilon in ("1", "10")
    ]
    areas = []
    for seed in (0, 1):
        summary = json.loads((swept / f"algorithm=d_psgd,budget.epsilon=10-seed{seed}/summary.json").read_text())
        areas.append(summary["scores"]["figures"]["auroc"]["value"])
    assert float(rows[3]["mean"]) == pytest.approx(sum(areas) / 2)
    assert [bool(row["p"]) for row in rows] == [True, True, False, False]
    tex = (swept / "table.tex").read_text()
    assert "async gossip & 1 & " in tex
    assert "95 \\% interval" in tex
    assert "Holm's correction for 2 tests" in tex
    begins = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    for kind, first in begins.items():
        assert (swept / f"figure.{kind}").read_bytes().startswith(first)
    assert b"/Type3" not in (swept / "figure.pdf").read_bytes()


def test_the_page_from_python_begins_with_means_and_has_the_labels(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SPEC)
    grid = {"budget.epsilon": [1], "algorithm.batch_size": [10, 20]}
    labels = {"algorithm.batch_size": ["few rows", "many rows"]}
    made = gs.sweep(tmp_path / "tiny.yaml", grid, out=tmp_path / "swept", seeds=1, labels=labels)
    page = made.report().read_text()
    assert page.index("Means over seeds") < page.index("Progress")
    for text in (page, repr(made)):
        assert "epsilon 1, few rows" in text
        assert "algorithm.batch_size" not in text


def test_the_page_begins_with_means_and_single_runs_are_folded(swept: Path, tmp_path: Path) -> None:
    page = (swept / "report.html").read_text()
    assert '"setting":"D-PSGD, epsilon 10"' in page
    assert page.index("Means over seeds</h2>") < page.index('<details class="all"') < page.index('id="overview"')
    assert main(["report", str(swept), "--out", str(tmp_path / "new" / "folder")]) == 0
    assert (tmp_path / "new/folder/report.html").read_text() == page
    assert main(["report", str(swept), "--public", "--out", str(tmp_path)]) == 0
    assert "Means over seeds" not in (tmp_path / "report.html").read_text()


def test_a_report_goes_to_a_folder_that_can_be_made_and_is_made_for_what_can_be_shown(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["report", str(swept), "--out", str(tmp_path / "file" / "x")]) == 2
    assert "cannot make this folder (Not a directory); choose another --out" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nothing"), "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"runs": [], "means": [1], "caption": ""}'])
def test_what_no_sweep_wrote_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.json").write_text(text)
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "expected what gossamer sweep wrote" in error
    assert error.count("\n") == 1


def test_a_frame_has_a_row_for_each_run(tmp_path: Path) -> None:
    spec = {"algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 1}, "privacy": "none", "evaluation": "off"}
    found = gs.sweep(spec, {"algorithm.batch_size": [10, 20]}, out=tmp_path, seeds=2)
    frame = found.frame()
    assert frame["algorithm.batch_size"] == [10, 10, 20, 20]
    assert frame["seed"] == [0, 1, 0, 1]
    assert frame["updates"] == [3, 3, 3, 3]
    summary = found.runs[2].summary()
    assert frame["auroc"][2] == summary["scores"]["figures"]["auroc"]["value"]
    assert frame["accuracy"][2] == summary["metrics"]["mean_model_test_accuracy"]
    assert [frame["auroc_low"][2], frame["auroc_high"][2]] == summary["scores"]["figures"]["auroc"]["interval"]
    assert {len(column) for column in frame.values()} == {4}


def test_epsilons_of_different_units_say_of_what_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gossip protects an example, and FedAvg a whole client."""
    (tmp_path / "tiny.yaml").write_text(SPEC)
    out = tmp_path / "swept"
    assert (
        main(
            [
                "sweep",
                str(tmp_path / "tiny.yaml"),
                "--grid",
                "algorithm=gossip,fedavg",
                "--seeds",
                "1",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    assert "epsilon is of" in capsys.readouterr().out
    said = "of each example of a node's shard for gossip, of each client with all of its data for fedavg."
    assert said in (out / "table.tex").read_text()
    assert said in json.loads((out / "sweep.json").read_text())["caption"]
    with (out / "table.csv").open() as file:
        assert [row["epsilon_of"] for row in csv.DictReader(file)] == [
            "example of a node's shard",
            "client with all of its data",
        ]


def test_a_caption_names_units_by_the_key_that_tells_them_apart_or_by_all() -> None:
    """Epsilons of one unit need no word; a run that failed has none."""
    units = {"a": "example", "b": "client", "c": "client", "d": None}
    means = [replace(mean(one, 1, epsilon=level), unit=units[one]) for one in units for level in "12"]
    said = Article("accuracy", means, delta=1e-5).caption
    assert said.endswith("Epsilons do not compare as they stand: of each example for a, of each client for b, c.")
    mixed = [replace(means[0], unit="client"), *means[1:4]]
    assert ": of each client for a 1, b 1, b 2, of each example for a 2." in Article("accuracy", mixed).caption
    assert "compare" not in Article("accuracy", means[2:]).caption
