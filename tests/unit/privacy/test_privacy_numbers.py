"""What wants a number says so: truth values, texts and the like are refused in one line, by every constructor."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.reference.ledgers import AgentLedger, UnitLedger

import gossamer.privacy
from gossamer.algorithms.gossip import claims as adp2sgd
from gossamer.algorithms.increasing import claims as increasing_theorem
from gossamer.errors import AccountingError, SpecError, real_number, whole_number
from gossamer.privacy import mechanisms, tasks
from gossamer.privacy.accounting.filters import EitherFilter, GaussianFilter, RenyiFilter
from gossamer.privacy.exact.grid_noise import GridGaussian
from gossamer.privacy.masking.fixed_point import FixedPoint, Group
from gossamer.privacy.mechanisms import PaperNoise, ReleaseKind
from gossamer.privacy.observers.sensitivity import Participation
from gossamer.privacy.pairs import L2LaplaceFull
from gossamer.privacy.streams import correlated_noise, graph_bounds
from gossamer.privacy.streams.correlated_noise import StreamKind
from gossamer.privacy.tasks import ClippedUpdate, Cohort, CuratedSum, LocalQuery, TrainingQuery
from gossamer.vectors import Public

ADD = mechanisms.NeighboringRelation.ADD_OR_REMOVE_ONE
GAUSSIAN, POISSON = mechanisms.Gaussian(1.0, 2.0), mechanisms.Poisson(0.1)
FACTORISATION = correlated_noise.Factorisation("banded", 8, 3)
STREAM = StreamKind(None, 3, 4)
MODEL = Public(np.zeros(3))

MADE: list[Any] = [
    graph_bounds.AgentNoise(5, 2.0, 3),
    AgentLedger("a", graph_bounds.AgentNoise(5, 2.0, 3), 4),
    adp2sgd.Adp2sgdSetting(1.0, 10.0, 100.0, 3, 50),
    adp2sgd.Adp2sgdProblem(1.0, 1.0, 1.0, 1.0, 10),
    adp2sgd.Adp2sgdNetwork(3, 0.5, 1),
    increasing_theorem.MainTheorem(power=1.0, r0=0.01, sigma=8.0, ratio=1.0),
    FACTORISATION,
    GaussianFilter(1.0, 1e-5, ADD),
    EitherFilter(1.0, 1e-5, ADD, 8.0),
    RenyiFilter(1.0, 1e-5, ADD),
    graph_bounds.UpdateBound(0.1, 1.0, 5, graph_bounds.GradientAt.RELEASED),
    graph_bounds.RandomNoise(3, 1.0, ((0.5, 2),)),
    GridGaussian(1.0, 2.0**-20, 1 << 21, 3),
    L2LaplaceFull(1.0, 3),
    FixedPoint(1.0, 5),
    Participation(3, 2),
    Group(5, 10),
    GAUSSIAN,
    mechanisms.BallGaussian(1.0, 2.0),
    mechanisms.PairedGaussian(1.0, 2.0, 0.5, 0.5),
    mechanisms.L2Laplace(1.0, 2.0, ADD),
    mechanisms.RadialNoise(1.0, 2.0, ADD),
    mechanisms.Laplace(1.0, 2.0),
    mechanisms.NoNoise(),
    mechanisms.Mechanism(1.0),
    correlated_noise.CorrelatedNoise(FACTORISATION, 1.0),
    PaperNoise(1.0, 1.0, ADD, "gamma", 3),
    ReleaseKind(GAUSSIAN, POISSON, 3),
    POISSON,
    mechanisms.FixedSize(10, 2),
    mechanisms.WithReplacement(10, 2),
    tasks.Query(POISSON, GAUSSIAN, 10.0),
    tasks.Gradient(1, MODEL, tasks.Query(POISSON, GAUSSIAN, 10.0)),
    tasks.StepSizes(0.1),
    tasks.Swap(0, MODEL),
    tasks.Round(1, (tasks.Swap(0, MODEL),), tasks.Query(POISSON, GAUSSIAN, 1.0), 4, 4, tasks.StepSizes(0.1), "batch"),
    STREAM,
    UnitLedger("u", ("a",), STREAM),
    LocalQuery(2, 3, 0.1, 1.0),
    TrainingQuery(2, 3, 0.1, 0.9, 1.0),
    ClippedUpdate(1, MODEL, TrainingQuery(2, 3, 0.1, 0.9, 1.0), 0.5),
    Cohort(1, MODEL, 5, tasks.Query(POISSON, GAUSSIAN, 10.0)),
    CuratedSum(1, MODEL, (("a", MODEL),), tasks.Query(POISSON, GAUSSIAN, 10.0)),
]
"""One of each."""
ELSEWHERE = {
    "masking.sums",  # states of sums, whose numbers are dealt and counted: test_masking_rounds.py
    "masking.messages",  # what others send, refused as such: test_masking_messages.py
}


def numbers_of(made: Any) -> Iterator[tuple[str, str]]:
    """Fields that are numbers, and of which type."""
    for field in dataclasses.fields(made):
        # Of an option of a command the type is annotated.
        told = re.sub(r"^Annotated\[([^,]+),.*\]$", r"\1", str(field.type), flags=re.DOTALL)
        kinds = {part.strip() for part in told.split("|")}
        if kinds <= {"float", "int", "None"} and field.name != "id":
            yield field.name, "float" if "float" in kinds else "int"


NONE = [True, np.True_, "1", 1j, [1.0], math.nan, object()]


@pytest.mark.parametrize("made", MADE, ids=lambda made: type(made).__name__)
def test_what_is_no_number_is_refused_in_one_line(made: Any) -> None:
    for name, kind in numbers_of(made):
        for value in [*NONE, *([1.5, -1] if kind == "int" else [])]:
            with pytest.raises((SpecError, AccountingError)) as caught:
                dataclasses.replace(made, **{name: value})
            assert "\n" not in str(caught.value)
            assert f"{value!r:.30}" in str(caught.value)


def test_numbers_of_other_libraries_are_numbers() -> None:
    for made, name, kind in [(one, *found) for one in MADE for found in numbers_of(one)]:
        value = getattr(made, name)
        if value is not None and not isinstance(made, (Group, FixedPoint, GridGaussian)):  # exact integers, by design
            dataclasses.replace(made, **{name: np.float64(value) if kind == "float" else np.int64(value)})


def test_every_constructor_that_checks_is_in_the_list() -> None:
    """What has no checks is made here alone: pairs of an accountant, results."""
    listed = {type(made) for made in MADE}
    missing = set()
    for found in pkgutil.walk_packages(gossamer.privacy.__path__, "gossamer.privacy."):
        if ".attacks" in found.name or found.name.removeprefix("gossamer.privacy.") in ELSEWHERE:
            continue
        for name, one in vars(importlib.import_module(found.name)).items():
            checks = inspect.isclass(one) and one.__module__ == found.name and hasattr(one, "__post_init__")
            if checks and one not in listed and not name.startswith("_") and any(numbers_of(one)):
                missing.add(f"{found.name}.{name}")
    assert missing == set()


def test_a_number_is_real_and_no_truth_value() -> None:
    for value in (1, 1.0, np.float32(1), np.int64(1), Fraction(1)):
        assert real_number(value) == 1.0
        assert type(real_number(value)) is float
    for value in (*NONE, None, "nan", np.ones(1), 10**400):
        assert math.isnan(real_number(value))
    assert real_number(math.inf) == math.inf
    assert [whole_number(value) for value in (3, np.int64(3), True, 3.0, "3", -1, None)] == [3, 3, *[None] * 5]
