"""The spec that `gossamer new` writes: its rules, and that no name or value breaks it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.experiment.specs.spec_draft import Draft, delta_of, draft
from gossamer.experiment.specs.spec_file import read_text
from gossamer.privacy.accounting.gaussian_dp import gaussian_mu

PLAIN = Draft("t", "t.csv", "y", ["no", "yes"], {"a": [0, 1]}, rows=1000, fewest=1000)


@pytest.mark.parametrize("rows", [1, 9, 10, 11, 99, 100, 101, 3000, 10**5, 10**6 + 1])
def test_delta_is_the_largest_power_of_ten_that_is_small_enough(rows: int) -> None:
    exponent = next(k for k in range(20) if Fraction(1, 10**k) <= Fraction(1, 10 * rows))
    assert delta_of(rows) == float(f"1e-{exponent}")


@pytest.mark.parametrize("owner", [None, "who"])
def test_a_step_takes_about_half_of_the_fewest_rows(owner: str | None) -> None:
    """A fifth is held out for testing: half of what is left of 250 is 100."""
    for fewest, batch in [(1, 1), (2, 1), (5, 2), (250, 100), (2500, 1000), (10**6, 10_000)]:
        spec = read_text(draft(replace(PLAIN, fewest=fewest, owner=owner)))
        assert spec.algorithm.batch_size == batch


@pytest.mark.parametrize(("labels", "objective"), [(["a", "b"], "logistic"), ([0, 1, 2], "softmax"), ([], "squared")])
def test_the_objective_goes_with_the_classes(labels: list[str | int], objective: str) -> None:
    spec = read_text(draft(replace(PLAIN, labels=labels, target_range=None if labels else [80, 200])))
    assert spec.objective.name == objective
    assert spec.dataset.task == ("classification" if labels else "regression")
    # A row of one number in [-1, 1] and the intercept is sqrt(4/3) = 1.15 long; errors count up to what 800 rows teach.
    reach = gaussian_mu(1, 1e-4) * 800 / (1.155 * (2 if len(labels) < 3 else 6) ** 0.5)
    error = max(0.5, min(1, reach / 40)) if labels else max(0.35, min(1, reach / 200))
    assert spec.privacy.clip.initial_bound == pytest.approx(1.155 * error, rel=0.05)


def test_without_privacy_there_is_no_budget_and_nothing_to_wait_for() -> None:
    spec = read_text(draft(replace(PLAIN, private=False)))
    assert (spec.budget, spec.private, spec.algorithm.updates_per_node) == (None, False, 500)


def test_a_declared_prevalence_stands_in_the_spec_and_makes_the_clip_that_of_the_rarer_class() -> None:
    rare, even = (read_text(draft(replace(PLAIN, prevalence=share))) for share in (0.95, 0.5))
    assert rare.dataset.prevalence == 0.95
    assert rare.privacy.clip.initial_bound == pytest.approx(2 * 0.95 * even.privacy.clip.initial_bound, rel=0.05)


@pytest.mark.parametrize(("said", "unit"), [([80, 200], 60), ({"mean": 130, "deviation": 20}, 20)])
def test_a_regression_has_the_range_of_its_target(said: Any, unit: float) -> None:
    found = read_text(draft(replace(PLAIN, labels=[], target_range=said))).dataset.target_scale
    assert found is not None
    assert found.unit == unit


@pytest.mark.parametrize(("owners", "topology"), [(10, "complete"), (11, "exponential")])
def test_few_owners_all_talk_to_each_other(owners: int, topology: str) -> None:
    spec = yaml.safe_load(draft(replace(PLAIN, owner="who", owners=owners)))
    assert (spec["algorithm"]["topology"], spec["algorithm"]["nodes"]) == (topology, owners)


def test_each_kind_of_column_has_its_comment() -> None:
    columns = {
        "plain": "number",
        "gaps": {"missing": 3},
        "range": {"range": [0, 9], "missing": 3},
        "mean": {"mean": 1, "deviation": 2},
        "texts": {"categories": ["a", "b"], "missing": "b"},
        "truth": {"kind": "boolean", "missing": True},
    }
    text = draft(replace(PLAIN, columns=columns, left_out=["name"]))
    lines = {line.split(":")[0].strip(): line.partition(" # ")[2] for line in text.splitlines() if line[:4] == "    "}
    as_it_is = "scaled privately; better a range that is known without these rows, such as [0, 100]"
    assert lines == {
        "plain": as_it_is,
        "gaps": f"{as_it_is}; an empty cell counts as 3",
        "range": "mapped to -1 .. 1; beyond, the nearer end; an empty cell counts as 3",
        "mean": "a number, less its mean and over its deviation",
        "texts": "a feature for each, 1 where a row has it; an empty cell counts as b",
        "truth": "0 or 1; an empty cell counts as true",
    }
    assert "left out: name" in text
    assert read_text(text).dataset.columns is not None


NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(str.strip)


@settings(max_examples=60, deadline=None)
@given(name=NAMES, column=NAMES, texts=st.lists(NAMES.map(str.strip), min_size=2, max_size=4, unique=True), left=NAMES)
def test_no_name_breaks_the_spec(name: str, column: str, texts: list[str], left: str) -> None:
    """Signs of YAML, comments and what looks like numbers or truth values stay what they are."""
    given_ = replace(
        PLAIN, name=name, path=name, columns={column: texts}, labels=texts, left_out=[left], target="y" + column
    )
    spec = yaml.safe_load(draft(given_))
    assert spec["dataset"]["name"] == name
    assert spec["dataset"]["columns"] == {column: texts}
    assert spec["dataset"]["labels"] == texts
    assert spec["budget"] == {"epsilon": 1, "delta": 1e-4}
