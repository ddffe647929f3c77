"""Nothing leaks but noise: runs on neighbouring data sets, with equal coins, differ in nothing outside of data sides.

With ``--slow`` these are 100,000 pairs over all algorithms, and by default 2,000 (`test_as_many_pairs_as_promised`).
"""

from __future__ import annotations

import pytest
from tests.reference.leak_specs import MASKED, SPECS, tiny
from tests.reference.planted_leaks import BUGS, Bug
from tests.sampling import examples

from gossamer.algorithms.table import ALGORITHMS
from gossamer.experiment.audits.leak_audit import audit_leak
from gossamer.experiment.preparation.planning import plan_run
from gossamer.privacy.mechanisms import Mechanism
from gossamer.sides.plan import ClientUpdate, Curator, MaskedMember, Nothing, Samples, StreamPlan

WHOLE = examples(1000) == 1000
PAIRS = 2700 if WHOLE else 54
OF_MASKED = 250 if WHOLE else 8
CAUGHT = 50
"""Pairs within which a bug is found."""


def pairs(name: str) -> int:
    return OF_MASKED if name in MASKED else PAIRS


@pytest.mark.parametrize("name", SPECS)
def test_nothing_leaks_but_noise(name: str) -> None:
    """A check of noise fails by chance once in 10^12 looks; everything else follows from the spec's seed alone."""
    found = audit_leak(tiny(name), pairs=pairs(name))
    assert found.leak is None, f"{found.neighbours}: {found.leak}"
    assert found.pairs == pairs(name)
    assert found.releases >= found.pairs
    assert found.largest_share_of_sensitivity <= 1 + 1e-5  # what rounding to float32 explains


def test_as_many_pairs_as_promised() -> None:
    assert sum(map(pairs, SPECS)) >= (100_000 if WHOLE else 2000)


def test_every_algorithm_is_audited() -> None:
    assert {spec["algorithm"]["name"] for spec in SPECS.values()} == set(ALGORITHMS)


def test_every_kind_of_data_side_is_audited() -> None:
    plans = [side for name in SPECS for side in plan_run(tiny(name)).sides.values()]
    assert {type(plan) for plan in plans} | {Nothing} == {
        ClientUpdate,
        Curator,
        MaskedMember,
        Nothing,
        Samples,
        StreamPlan,
    }
    noises = {type(plan.noise) for plan in plans if isinstance(plan, ClientUpdate)}
    assert type(None) in noises
    assert any(issubclass(noise, Mechanism) for noise in noises)


def test_bugs_are_many_and_each_has_a_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20


@pytest.mark.parametrize("bug", BUGS, ids=[bug.plant.__name__ for bug in BUGS])
def test_a_leak_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same spec without the bug passes, above."""
    prepared = tiny(bug.spec)
    bug.plant(monkeypatch)
    found = audit_leak(prepared, pairs=CAUGHT)
    assert found.leak is not None, f"not found: {bug.name}"
