"""Regressions of the first day: what `gossamer new` writes for a number far from 0 is learnt, and shown in its unit.

The tables are made up by `regression_tables`. A model's R2 is of 5,000 further rows; that of least squares without
privacy, trained on the same rows encoded alike, is beside it.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.end_to_end.regression_tables import MADE

import gossamer as gs
from gossamer.cli import main
from gossamer.data.datasets import load_dataset
from gossamer.experiment.specs.spec_file import read_spec

pytestmark = pytest.mark.usefixtures("called_here")
LinearRegression = pytest.importorskip("sklearn.linear_model").LinearRegression

ROWS, FURTHER = 3000, 5000
MOST_LOST = 0.07
"""On five tables of each kind, of other seeds, it was 0.017, 0.017 and 0.0004 on average, with a standard deviation of
0.013 at most: the limit is above 4 of these."""


def lost(name: str, seed: int) -> float:
    """R2 of least squares less that of the private model, from nothing to both."""
    made = MADE[name]
    made.write(Path(f"{name}.csv"), seed, ROWS)
    made.write(Path("further.csv"), 1_000_000 + seed, FURTHER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is to be warned of on the first day
        for command in (made.flags(name), ["run", f"{name}.yaml", "--out", "results", "--seed", str(seed)]):
            assert main(command) == 0
    settings = read_spec(f"{name}.yaml").dataset
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "values outside of their column's range")
        found = gs.load_model("results").evaluate("further.csv")
    train = load_dataset(settings).train
    tested = load_dataset(settings.model_copy(update={"test_path": Path("further.csv")})).test
    plain = LinearRegression().fit(train.features, train.targets)
    # In the target's own unit: R2 and the error go with the spread of the prices, hours and pressures themselves.
    targets = np.array([float(row[made.target]) for row in made.rows(1_000_000 + seed, FURTHER)])
    assert found["figures"]["r2"]["value"] == pytest.approx(
        1 - found["figures"]["rmse"]["value"] ** 2 / targets.var(), abs=1e-4
    )
    return float(plain.score(tested.features, tested.targets)) - found["figures"]["r2"]["value"]


@pytest.mark.some(1)
@pytest.mark.parametrize("name", MADE)
def test_a_private_regression_of_ones_own_table(name: str) -> None:
    """One table of each kind for every day; the limit is as below."""
    assert lost(name, 7) < MOST_LOST


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("seed", range(5))
def test_little_is_lost_at_epsilon_one(name: str, seed: int) -> None:
    assert lost(name, seed) < MOST_LOST
