"""Rules for linear models: bounds hold of rows that are drawn as was declared, and formulas are as derived."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer import LinearModel, Split
from gossamer.arrays import FloatArray
from gossamer.data.columns import Column
from gossamer.experiment.specs.linear_rules import CURVATURE, LinearRules

NUMBER, TRUTH = Column(range=(0, 9)), Column(kind="boolean")
TEXT = Column(kind="category", categories=("a", "b", "c"))
RULES = LinearRules([NUMBER, NUMBER, TRUTH, TEXT], "logistic", 1, 1000, 1, 0.25)


def drawn(columns: list[Column], count: int, generator: np.random.Generator, even: bool = True) -> FloatArray:
    """Features of rows: evenly drawn, or anywhere in what is declared."""
    parts = []
    for column in columns:
        if column.categories is not None:
            parts.append(np.eye(3)[generator.integers(0, 3 if even else 2, count)])
        elif column.kind == "boolean":
            parts.append(generator.integers(0, 2, (count, 1)).astype(float))
        else:
            parts.append(
                generator.uniform(-1, 1, (count, 1)) if even else generator.choice([-1.0, 0.3, 1.0], (count, 1))
            )
    return np.hstack(parts)


@settings(max_examples=examples(100), deadline=None)
@given(
    columns=st.lists(st.sampled_from([NUMBER, TRUTH, TEXT]), min_size=1, max_size=5),
    loss=st.sampled_from(sorted(CURVATURE)),
    seed=st.integers(0, 10**6),
)
def test_no_rows_curve_the_loss_more_than_the_bound(columns: list[Column], loss: str, seed: int) -> None:
    rows = drawn(columns, 30, np.random.default_rng(seed), even=False).astype(np.float32)
    classes = {"logistic": 2, "softmax": 3, "squared": None}[loss]
    model = LinearModel(loss, rows.shape[1], classes)
    found = model.smoothness(Split(rows, np.arange(30) % 2 if classes else np.zeros(30)))
    assert found is not None
    assert found <= (1 + 1e-6) * LinearRules(columns, loss, 1, 30, 1, 1.0).smoothness


def test_a_row_is_as_long_as_evenly_drawn_ones() -> None:
    """Within 6 deviations of the mean of 20,000: false alarms in 2 of a billion runs."""
    rows = drawn(list(RULES.columns), 20_000, np.random.default_rng(3))
    squares = 1 + np.square(rows).sum(axis=1)
    assert RULES.length**2 == pytest.approx(squares.mean(), abs=6 * squares.std() / math.sqrt(20_000))
    assert RULES.length**2 == pytest.approx(1 + 2 / 3 + 1 / 2 + 1)
    assert RULES.size == 1 + 2 + 1 + 3


def test_few_gradients_of_the_rarer_class_are_shortened_and_a_clip_of_one_shortens_nearly_all() -> None:
    """At the model that says a share of 0.08 of every row, as one learns first."""
    rules = replace(RULES, share=0.08)
    rows = drawn(list(RULES.columns), 5000, np.random.default_rng(4))
    lengths = 0.92 * np.sqrt(1 + np.square(rows).sum(axis=1))
    assert np.mean(lengths > 1.1 * rules.clip) < 0.25
    assert np.mean(lengths > 1) > 0.99


def test_the_noise_alone_moves_a_model_as_far_whatever_the_number_of_rows_and_parameters() -> None:
    """The walk of T steps of eta with noise of C sqrt(T)/(mu n) in each of d coordinates, within the bounds of T.

    It is 0.3 B^2 R/C reach/L C sqrt(d)/(mu n) = 0.3/c by the rule, and rounding of C, T and eta moves it by 5 %.
    """
    for rows, nodes, mu in ((2000, 1, 0.25), (5000, 4, 0.2), (3000, 1, 0.7)):
        rules = replace(RULES, rows=rows, nodes=nodes, mu=mu)
        assert 20 < rules.updates < 1000
        noise = rules.clip * math.sqrt(rules.updates * rules.size / nodes) / (mu * rows)
        walk = rules.rate * math.sqrt(rules.updates) * noise
        assert walk == pytest.approx(0.3 / CURVATURE["logistic"], rel=0.05)


def test_more_nodes_and_budget_need_fewer_rows() -> None:
    assert replace(RULES, nodes=4).needed == pytest.approx(RULES.needed / 2)
    assert replace(RULES, mu=0.5).needed == pytest.approx(RULES.needed / 2)
    assert (replace(RULES, share=0.1).counted, RULES.counted) == (100, 1000)
