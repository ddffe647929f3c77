"""The price of privacy and of distance."""

from __future__ import annotations

import json
import math
import re
import statistics
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import t
from tests.unit.studies.test_scores import figure, summary

import gossamer as gs
from gossamer.cli.main import main
from gossamer.experiment.specs.spec_file import parse_spec, read_spec
from gossamer.privacy.guarantees import PLANNED
from gossamer.report.drawing import Shown
from gossamer.studies.price import (
    Price,
    alone,
    difference,
    in_one_place,
    in_words,
    passes_of,
    plan_price,
    with_epsilon,
    without_noise,
)
from gossamer.studies.study import Spread, scores_of

EXAMPLES = Path(__file__).parents[3] / "examples"
SPEC = """
algorithm: {name: gossip, nodes: 3, batch_size: 20, updates_per_node: 5}
budget: {epsilon: 5, delta: 1.0e-4}
evaluation: "off"
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SPEC)
    return path


def planned(experiment: gs.Experiment) -> tuple[gs.Prepared, Any]:
    prepared = gs.prepare(experiment)
    return prepared, gs.plan_run(prepared)


def test_all_look_at_as_many_examples(spec: Path) -> None:
    """3 nodes take 5 batches of 20: one machine takes 15 of them, and each party alone its share, rounded up."""
    prepared, plan = planned(read_spec(spec))
    passes = passes_of(prepared, plan)
    assert passes == pytest.approx(3 * 5 * 20 / sum(prepared.shard_sizes.values()))
    _, central = planned(in_one_place(prepared, passes))
    assert central.quotas == {"node-0": 15}
    _, single = planned(alone(prepared, passes))
    share = 300 / sum(prepared.shard_sizes.values()) / 20
    assert single.quotas == {name: math.ceil(share * size) for name, size in prepared.shard_sizes.items()}
    assert max(single.quotas.values()) <= 6
    assert [one.guarantee.epsilon for one in (central, single)] == [math.inf] * 2


def test_passes_of_clients_count_every_local_step() -> None:
    """Clients that go over their examples twice in each of 3 rounds look at each 6 times."""
    algorithm = {"name": "fedavg", "nodes": 4, "rounds": 3, "local_epochs": 2, "batch_size": 10}
    prepared, plan = planned(parse_spec({"algorithm": algorithm, "budget": {"epsilon": 8, "delta": 1e-4}}))
    assert passes_of(prepared, plan) == pytest.approx(6)


def test_another_budget_changes_nothing_else(spec: Path) -> None:
    before, after = (one.model_dump() for one in (read_spec(spec), with_epsilon(read_spec(spec), 1.0)))
    assert after.pop("budget") == before.pop("budget") | {"epsilon": 1.0}
    assert after == before


def test_noise_of_a_level_gets_a_budget_at_its_delta() -> None:
    level = parse_spec({"privacy": {"noise_multiplier": 2.0, "delta": 1e-6}})
    found = with_epsilon(level, 1.0)
    assert found.budget == gs.Budget(epsilon=1.0, delta=1e-6)
    assert found.privacy.noise_multiplier is None


def test_without_noise_nothing_is_clipped(spec: Path) -> None:
    found = without_noise(read_spec(spec))
    assert not found.private
    assert found.privacy.clip is None
    assert found.algorithm == read_spec(spec).algorithm


def test_the_price_of_a_small_federation(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "price"
    assert main(["price", str(spec), "--seeds", "2", "--epsilons", "1,5", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    found = json.loads((out / "price.json").read_text())
    assert found["warning"] in printed.err
    spent = float(found["warning"].split("to epsilon ")[1].split()[0])
    # Two seeds of 5 and of 1; the runs without noise have no guarantee that could add up.
    assert 0.9 * 12 < spent <= 12
    assert found["warning"].endswith("at delta 0.0004.")
    assert list(found["variants"]) == ["in-one-place", "without-noise", "with-noise", "epsilon=1", "alone"]
    epsilons = {name: one["epsilon"] for name, one in found["variants"].items()}
    assert 0.9 < epsilons["epsilon=1"] <= 1 < epsilons["with-noise"] <= 5
    assert [epsilons[name] for name in ("in-one-place", "without-noise", "alone")] == [None] * 3
    assert {one["seed"] for one in found["runs"]} == {0, 1}
    for word in ("Privacy costs", "Distance costs", "Joining, with noise,", "virtual seconds instead of"):
        assert word in " ".join(printed.out.split())
    page = unescape((out / "report.html").read_text())
    assert "Price of privacy: accuracy against proved epsilon" in page
    said = "".join(printed.out.split())
    lines = re.findall(r"<p>(Privacy costs.*|Distance costs.*|Joining, with noise,.*)</p>", page)
    assert len(lines) == 3
    assert [line for line in lines if "".join(line.split()) not in said] == []
    assert main(["price", str(spec), "--seeds", "2", "--epsilons", "1,5", "--out", str(out), "--json"]) == 0
    again = capsys.readouterr()
    assert "finished before: 10 of 10 runs" in again.err
    assert json.loads(again.out)["variants"] == found["variants"]


def made_up(tmp_path: Path, **accuracies: tuple[float, float]) -> Price:
    """A price of made-up accuracies; with noise, epsilon 2."""
    scores = {}
    for name, values in accuracies.items():
        rows = [{"test_accuracy": value, "mean_model_test_accuracy": value} for value in values]
        epsilon = 2.0 if name == "with_noise" else 0.5 if name == "epsilon" else None
        scores[name.replace("_", "-")] = scores_of([summary(row, epsilon) for row in rows], shared=True)
    guarantee = replace(PLANNED, epsilon=2.0, delta=1e-4, proof="-")
    return Price(out=tmp_path, runs=[], shared={}, scores=scores, guarantee=guarantee)


def test_the_price_in_words_and_as_a_figure(tmp_path: Path) -> None:
    """Means 0.9, 0.85, 0.75, 0.6: privacy 10 points, distance 5 of them, joining 15, over two seeds each.

    Each spreads by 0.0141, so by Welch a difference has two degrees of freedom and an interval of 4.3027 times 0.0141.
    """
    found = made_up(
        tmp_path,
        in_one_place=(0.89, 0.91),
        without_noise=(0.84, 0.86),
        with_noise=(0.74, 0.76),
        epsilon=(0.5, 0.6),
        alone=(0.59, 0.61),
    )
    said = in_words(found)
    assert said[0].startswith("Each example of a node's shard has epsilon 2 at delta 0.0001")
    assert said[1] == (
        "Privacy costs 10.0 points of accuracy (3.9 to 16.1 over 2 seeds): 0.850 as a federation without noise, and "
        "0.750 as a federation with noise."
    )
    assert said[2].startswith(
        "Distance costs 5.0 points of accuracy, which 2 seeds do not tell from none (-1.1 to 11.1): 0.900 with all rows"
    )
    assert said[3].startswith(
        "Joining, with noise, gains a party 15.0 points of accuracy (8.9 to 21.1 over 2 seeds): 0.6"
    )
    figure = found.figure()
    assert figure is not None
    assert figure.shown is Shown.PRIVATE
    noisy = [(row["epsilon"], row["mean"]) for row in figure.rows if "epsilon" in row]
    assert noisy == [(0.5, pytest.approx(0.55)), (2.0, pytest.approx(0.75))]
    assert "0.75 at epsilon 2" in figure.description


def test_a_difference_that_seeds_make_as_well_is_said_to_be_one(tmp_path: Path) -> None:
    said = in_words(made_up(tmp_path, without_noise=(0.80, 0.90), with_noise=(0.79, 0.89)))
    assert "Privacy costs 1.0 points of accuracy, which 2 seeds do not tell from none (-29.4 to 31.4)" in said[1]
    said = in_words(made_up(tmp_path, without_noise=(0.80, 0.80), with_noise=(0.81, 0.81)))
    assert said[1].startswith("Privacy costs no accuracy that these test rows show, of 2 seeds that score alike")


def test_the_interval_of_a_difference_is_welchs_and_few_seeds_make_it_wide(tmp_path: Path) -> None:
    one, other = (0.71, 0.74, 0.70), (0.69, 0.66, 0.72, 0.70)
    parts = [statistics.variance(values) / len(values) for values in (one, other)]
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (one, other)))
    mean, reach = statistics.fmean(one) - statistics.fmean(other), t.ppf(0.975, freedom) * math.sqrt(sum(parts))
    assert difference(Spread(one), Spread(other)) == pytest.approx((mean - reach, mean + reach), rel=1e-9)
    assert difference(Spread((0.7, 0.7)), Spread((0.6, 0.6))) is None
    assert difference(Spread((0.7,)), Spread(other)) is None
    said = in_words(made_up(tmp_path, without_noise=(0.8,), with_noise=(0.7,)))  # type: ignore[arg-type]
    assert "Privacy costs 10.0 points of accuracy, of one seed, which decides nothing: " in said[1]


def test_runs_that_diverged_are_named_before_the_price(tmp_path: Path) -> None:
    found = made_up(tmp_path, without_noise=(0.80, 0.80), with_noise=(0.81, 0.81))
    bad = replace(found.scores["without-noise"], statuses=("finished", "diverged"))
    said = in_words(replace(found, scores={**found.scores, "without-noise": bad}))
    assert said[1].startswith(
        "Diverged, with a larger loss than at the beginning, or none: federation without noise (1 of 2)."
    )


def test_models_that_say_the_same_of_every_row_price_nothing(tmp_path: Path) -> None:
    """Of an outcome of one in twenty: accuracies of 0.95 are those of a constant, whatever the noise is."""

    def of(accuracy: float) -> Any:
        row = {"test_accuracy": accuracy, "mean_model_test_accuracy": accuracy}
        return scores_of([summary(row, accuracy=figure(accuracy, 0.95))], shared=True)

    constant = {"without-noise": of(0.95), "with-noise": of(0.951)}
    said = in_words(replace(made_up(tmp_path), scores=constant))
    assert said[1].startswith("No model here, with noise or without, is better than saying the same of every row")
    assert "costs no accuracy" not in " ".join(said)
    assert not constant["with-noise"].as_dict()["better_than_constant"]
    said = in_words(replace(made_up(tmp_path), scores={**constant, "without-noise": of(0.98)}))
    assert said[1].endswith("With noise, the model is no better than saying the same of every row.")


def test_no_band_of_a_price_is_narrower_than_what_test_rows_tell(tmp_path: Path) -> None:
    row = {"test_accuracy": 0.92, "mean_model_test_accuracy": 0.92}
    runs = {
        "without-noise": [summary(row, None, auroc=figure(area, 0.5, 0.05)) for area in (0.739, 0.741)],
        "with-noise": [summary(row, 2.0, auroc=figure(area, 0.5, 0.06)) for area in (0.709, 0.711)],
    }
    scores = {name: scores_of(some, shared=True) for name, some in runs.items()}
    found = replace(made_up(tmp_path), scores=scores)
    said = in_words(found)
    assert said[1] == (
        "Privacy costs 0.03 of area under the ROC curve (0.0239 to 0.0361 over 2 seeds), which is within the intervals "
        "of test rows: 0.740 (0.689 to 0.791) as a federation without noise, and 0.710 (0.649 to 0.771) as a "
        "federation with noise."
    )
    (point,) = found.points
    assert (point.low, point.high) == (pytest.approx(0.649), pytest.approx(0.771))
    drawn = found.figure()
    assert drawn is not None
    assert "always the same: 0.5" in drawn.description


def test_a_regression_is_priced_in_loss_and_its_fit_is_said(tmp_path: Path) -> None:
    """Losses 0.2 and 0.5: 0.3 more."""
    pairs = {"without-noise": (0.2, 0.8), "with-noise": (0.5, 0.5)}
    rows = {name: {"mean_model_test_loss": loss, "test_r2": fit} for name, (loss, fit) in pairs.items()}
    scores = {name: scores_of([summary(row)], shared=True) for name, row in rows.items()}
    said = in_words(replace(made_up(tmp_path), scores=scores))
    assert said[1] == (
        "Privacy costs 0.3 of test loss, of one seed, which decides nothing: 0.2 (R2 0.800) as a federation without "
        "noise, and 0.5 (R2 0.500) as a federation with noise."
    )


def test_what_cannot_be_compared_is_left_out_and_said(tmp_path: Path) -> None:
    told: list[str] = []
    found = plan_price(EXAMPLES / "digits-graph.yaml", tmp_path, 1, [], 1, ["algorithm.rounds=2"], told.append)
    assert {one.setting for one in found.runs} == {"with-noise", "without-noise"}
    assert list(found.left_out) == ["in-one-place", "alone"]
    assert "graph_federated does not count in passes over the examples" in told[-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"privacy": "none", "budget": None}, "this spec says privacy: none; give it a budget"),
        (
            {"privacy": {"mechanism": "l2_laplace", "epsilon": 1.0, "norm": "exponential"}, "budget": None},
            "nothing is proved of this spec's noise",
        ),
    ],
)
def test_a_spec_without_a_price_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    spec = {"algorithm": {"name": "gossip", "nodes": 3}, "budget": {"epsilon": 1.0}, **change}
    with pytest.raises(gs.SpecError, match=said):
        gs.price(spec, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("epsilons", [[0.0], [math.nan], [math.inf], [1.0, 1.0]])
def test_epsilons_that_cannot_be(epsilons: list[float], spec: Path, tmp_path: Path) -> None:
    with pytest.raises(gs.SpecError, match="--epsilons: expected"):
        gs.price(spec, out=tmp_path / "out", epsilons=epsilons)
