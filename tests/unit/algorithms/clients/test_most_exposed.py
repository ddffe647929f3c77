"""The guarantee of clients that release differently: of the whole profile nobody may be exposed more."""

from __future__ import annotations

import math

from gossamer.algorithms.clients.planning import most_exposed
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Mechanism, NeighboringRelation
from gossamer.sides.guarantees import noised_guarantee
from gossamer.sides.plan import ClientUpdate

RELATION, DELTA, SIZE = NeighboringRelation.REPLACE_ONE, 1e-5, 5
SPEC = parse_spec(
    {"dataset": "digits", "algorithm": {"name": "fedavg", "nodes": 2}, "privacy": {"noise_multiplier": 8.0}}
)


def side(law: Mechanism, updates: int) -> ClientUpdate:
    return ClientUpdate(None, law.clip, law, updates, SIZE)


def test_a_client_of_smaller_epsilon_may_be_the_one_with_the_larger_mu() -> None:
    """One strong release against many weak ones: which is worse depends on the privacy loss that is looked at."""
    sides = {
        "one release": side(L2Laplace(1.0, 3.0, RELATION), 1),
        "many releases": side(L2Laplace(1.0, 0.4, RELATION), 40),
    }
    found = {name: noised_guarantee(plan, DELTA, RELATION) for name, plan in sides.items()}
    one, many = found["one release"], found["many releases"]
    assert one.epsilon < many.epsilon
    assert one.mu > many.mu + 0.1
    both = most_exposed(sides.values(), found, SPEC)
    assert both.epsilon == many.epsilon
    assert both.mu >= one.mu
    for epsilon in (0.0, 0.5, 1.0, 2.0, 2.9, 4.0):
        at_most = max(one.profile.delta(epsilon), many.profile.delta(epsilon))
        assert both.profile.delta(epsilon) >= at_most * (1 - 1e-12)


def test_without_noise_of_one_client_nothing_is_guaranteed() -> None:
    sides = {"noisy": side(Gaussian(1.0, 5.0), 3), "bare": side(Gaussian(1.0, 5.0), 3)}
    found = {"noisy": noised_guarantee(sides["noisy"], DELTA, RELATION)}
    found["bare"] = noised_guarantee(ClientUpdate(None, 1.0), DELTA, RELATION)
    assert most_exposed(sides.values(), found, SPEC).epsilon == math.inf
