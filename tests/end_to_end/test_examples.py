"""The examples: each spec and each script runs, and comes to what it shows.

Bounds of accuracies are far above that of a guess (the share of the most frequent class) and well below what runs came
to; noise follows from the name of the test, so that a test passes always or never.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import norm
from tests.end_to_end import relapses_table, visits_table

import gossamer as gs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = EXAMPLES / "python"

Check = Callable[[gs.Result], bool]


class Shown(NamedTuple):
    """What an example comes to.

    Attributes
    ----------
    least : float
        Of ``figure``.
    figure : str
        Among the metrics of the summary.
    more : callable
        What else it shows.
    settings : tuple of str
        What is overridden, so that the test is quick.
    """

    least: float
    figure: str = "mean_model_test_accuracy"
    more: Check = lambda result: True
    settings: tuple[str, ...] = ("evaluation=false",)


def nodes(result: gs.Result) -> dict[str, dict[str, Any]]:
    """Every node's releases and epsilon."""
    found: dict[str, dict[str, Any]] = result.summary["privacy"]["nodes"]
    return found


def for_all_visits(result: gs.Result) -> bool:
    return result.guarantee.rows_per_person == 3 and "person" in result.guarantee.unit


def for_all_months(result: gs.Result) -> bool:
    """The guarantee is of persons, and the mean risk of a month about the 0.07 that the table was drawn with."""
    risk = result.model.predict(EXAMPLES / "relapses.csv").probabilities[:, 1].mean()
    return result.guarantee.rows_per_person == 6 and 0.05 < risk < 0.09


def within_own_budgets(result: gs.Result) -> bool:
    spent = [node["epsilon"] for node in nodes(result).values()]
    noise = [node["noise_multiplier"] for node in nodes(result).values()]
    own = (0.5, 1, 2, 4, 8)
    return all(0.9 * most < each <= most for each, most in zip(spent, own)) and noise == sorted(noise, reverse=True)


def in_spite_of_faults(result: gs.Result) -> bool:
    made = {name: node["releases"] for name, node in nodes(result).items()}
    slow, gone = made["node-0"], made["node-4"]
    return (
        slow <= 16
        and 65 <= gone <= 71
        and made["node-2"] == made["node-3"] == 100
        and "node-4" in result.summary["gone"]
    )


def stopped_by_public_rows(result: gs.Result) -> bool:
    early = result.summary["updates"] < 250 and result.summary["stopped_by"] == "public_accuracy"
    return early and 3.9 < result.guarantee.epsilon <= 4  # the whole plan's, not what was spent


def for_each_example(result: gs.Result) -> bool:
    trusting = any("trusted server" in line for line in result.guarantee.assumptions)
    return "example" in result.guarantee.unit and not trusting


def who_trust_a_server(result: gs.Result) -> bool:
    return any("server" in line and "trust" in line for line in result.guarantee.assumptions)


SHOWN = {
    "digits-allreduce": Shown(0.85),
    "digits-central": Shown(0.85),
    "digits-edge-cloud": Shown(0.8),
    "digits-fedasync": Shown(0.85, more=for_each_example),
    "digits-fedavg": Shown(0.8, more=who_trust_a_server),
    "digits-fedavg-examples": Shown(0.8),
    "digits-fedavg-masked": Shown(0.75),
    "digits-fedbuff": Shown(0.7, more=who_trust_a_server),
    "digits-gossip": Shown(0.85),
    "digits-graph": Shown(0.75),
    "digits-increasing": Shown(0.8),
    "digits-local": Shown(0.7, "test_accuracy"),
    "digits-mapa": Shown(0.6),
    "digits-muffliato": Shown(0.85),
    "digits-hostile": Shown(0.8),
    "digits-push-sum": Shown(0.85),
    "hospitals": Shown(0.82),
    "hospitals-budgets": Shown(0.82, more=within_own_budgets),
    "hospitals-faults": Shown(0.82, more=in_spite_of_faults),
    "hospitals-stopping": Shown(0.75, more=stopped_by_public_rows, settings=()),
    "own-module": Shown(0.8),
    "relapses-hazards": Shown(0.6, "test_auroc", more=for_all_months),
    "visits-persons": Shown(0.7, more=for_all_visits),
    "wards-gossip": Shown(0.7),
    "wards-regression": Shown(0.15, "test_r2"),
}
SLOW = {
    "digits-fedavg",
    "digits-fedavg-masked",
    "digits-fedbuff",
    "digits-fedasync",
    "digits-graph",
    "digits-increasing",
    "digits-muffliato",
    "hospitals-budgets",
    "own-module",
}
"""Those that take over four seconds."""


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scripts import each other, as when they are run."""
    monkeypatch.syspath_prepend(str(SCRIPTS))


def test_every_example_is_here_and_in_the_readme() -> None:
    specs = {path.stem for path in EXAMPLES.glob("*.yaml")}
    assert specs == {*SHOWN}
    scripts = {path.name for path in SCRIPTS.glob("*.py")}
    listed = re.findall(
        r"^\| \[`(.+?)`\]\((.+?)\) \| .{20,}", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert {name for name, _ in listed} == {f"{spec}.yaml" for spec in specs} | scripts | {"flower/"}
    assert [target for _, target in listed if not (EXAMPLES / target).is_file()] == []


@pytest.mark.some(4)
@pytest.mark.filterwarnings("ignore::gossamer.errors.RunWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in sorted(SHOWN)]
)
def test_specs_come_to_what_they_show(name: str) -> None:
    shown = SHOWN[name]
    spec = gs.read_spec(EXAMPLES / f"{name}.yaml", shown.settings)
    result = gs.run(spec)
    assert spec.budget is not None
    assert 0 < result.guarantee.epsilon <= np.max(spec.budget.epsilon)
    assert result.summary["metrics"][shown.figure] >= shown.least
    assert shown.more(result)


@pytest.mark.parametrize(("table", "name"), [(visits_table, "visits.csv"), (relapses_table, "relapses.csv")])
def test_tables_are_as_they_were_drawn(table: Any, name: str, tmp_path: Path) -> None:
    table.main(tmp_path)
    assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes()


# Scripts


def main_of(script: str) -> Callable[..., Any]:
    found: Callable[..., Any] = runpy.run_path(str(SCRIPTS / f"{script}.py"))["main"]
    return found


@pytest.mark.slow
def test_algorithms_are_compared() -> None:
    found = main_of("compare_algorithms")()
    accuracy = {name: value for name, (value, _) in found.items()}
    assert accuracy["local"] + 0.05 < accuracy["gossip"]
    assert accuracy["local"] + 0.05 < accuracy["central"]
    assert found["gossip"][1] <= found["allreduce"][1]


def test_an_own_loop_goes_on_where_it_was_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of("own_loop")() == 200
    assert re.findall(r"^(\d+) of 200 charged", capsys.readouterr().out, re.MULTILINE) == ["100", "200"]


def test_own_arrays_are_learnt(capsys: pytest.CaptureFixture[str]) -> None:
    result = main_of("own_arrays")()
    assert result.summary["metrics"]["mean_model_test_accuracy"] > 0.85  # the label of a guess is right half the time
    assert (np.sign(result.model["weight"].ravel()) == [1, -1, 1]).all()  # as they were drawn
    assert result.guarantee.epsilon <= 3
    assert "Guarantee: " in capsys.readouterr().out


@pytest.mark.slow
def test_an_own_module_is_trained() -> None:
    result = main_of("own_module")()
    assert result.summary["metrics"]["mean_model_test_accuracy"] > 0.6
    assert result.model["layers.6.weight"].shape == (10, 8 * 4 * 4)


@pytest.mark.slow
def test_new_rows_are_predicted_and_a_model_is_exported(tmp_path: Path) -> None:
    import torch

    found, exported = main_of("predict_and_export")(tmp_path)
    assert len(found) == 12
    assert set(found) == {"no", "yes"}
    program = torch.export.load(str(exported)).module()
    # The first new patient, as in `wards-new.csv`.
    cells = [34, 1, 0, 0, 1, 0, 0, 89, 83, 6, 17300]
    said = program(torch.tensor([cells], dtype=torch.float64)).detach().numpy()
    assert said == pytest.approx(found.probabilities[:1], abs=1e-6)


def test_a_guarantee_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    guarantee = main_of("read_a_guarantee")()
    out = capsys.readouterr().out
    # Between its points a profile is a chord, which is above the curve: by about (0.018 slope)^2/8, where the slope of
    # log delta is 7.6 for a Gaussian mechanism with this mu.
    assert guarantee.profile.delta(guarantee.epsilon) == pytest.approx(guarantee.delta, rel=0.01)
    (guess,) = re.findall(r"at most ([\d.]+) times", out)
    # A Gaussian mechanism with this mu lets nobody guess better: (1 + (2 Phi(mu/2) - 1)) / 2.
    assert 50 < float(guess) <= 100 * norm.cdf(guarantee.mu / 2) + 0.05
    assert all(line in out for line in guarantee.assumptions)
