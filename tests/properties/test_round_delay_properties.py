"""Theorem 2.1: whatever the speeds of clients and messages, gradients are computed at models consistent with tau."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.reference.delay_slow import assignment, consistent, rho

from gossamer.algorithms.increasing.settings import (
    PowerDelay,
    PowerSizes,
    PublicRounds,
    RoundsAhead,
    Settings,
    WithinTau,
    first_breach,
    first_stall,
    steps_allowed,
)

ROUNDS = 6


@st.composite
def size_tables(draw):
    schedule = PowerSizes(a=draw(st.floats(0, 12)), c=draw(st.sampled_from([0, 0.5, 1, 2])), b=draw(st.floats(0, 20)))
    shards = {f"client-{c}": draw(st.integers(1, 50)) for c in range(draw(st.integers(1, 4)))}
    counts = draw(st.sampled_from(["rounded", "coins"]))
    weights = draw(st.sampled_from(["equal", "shards"]))
    chosen = Settings().model_copy(update={"sizes": schedule, "weights": weights, "counts": counts})
    return PublicRounds(chosen, shards, draw(st.integers(0, 9)))


powers = st.builds(PowerDelay, constant=st.floats(0, 80), factor=st.floats(0, 1), exponent=st.floats(0, 1))


def play(sizes, allowed, generator, eager):
    """Let clients compute in a random order and receive global models at random; yields (c, i, h, k) of each step.

    ``eager`` clients compute for as long as they may before anybody receives anything: models get as old as they can.
    """
    i, h, k = ({c: 0 for c in sizes.names} for _ in range(3))
    while True:
        able = [c for c in sizes.names if i[c] < ROUNDS and h[c] < allowed(c, i[c], k[c])]
        complete = min(i.values())
        behind = [c for c in sizes.names if k[c] < complete]
        if not able and not behind:
            return
        if able and (eager or not behind or generator.random() < 0.7):
            c = str(generator.choice(able))
            yield c, i[c], h[c], k[c]
            h[c] += 1
            if h[c] == sizes.of(c, i[c]):
                i[c], h[c] = i[c] + 1, 0
        else:
            c = str(generator.choice(behind))
            k[c] = int(generator.integers(k[c] + 1, complete + 1))


def all_consistent(sizes, allowed, tau, generator, eager):
    """Whether every model was consistent with tau; a client's includes its own steps besides the rounds below k."""
    numbers = rho(assignment(sizes.names, [sizes.sizes(i) for i in range(ROUNDS)], generator))
    own = {c: set() for c in sizes.names}
    fine = True
    for c, i, h, k in play(sizes, allowed, generator, eager):
        t = numbers[c, i, h]
        fine = fine and consistent(tau.at, t, own[c] | set(range(sizes.before(k))))
        own[c].add(t)
    return fine, sum(map(len, own.values()))


@given(sizes=size_tables(), tau=powers, seed=st.integers(0, 99), eager=st.booleans())
def test_within_tau_models_are_consistent(sizes, tau, seed, eager):
    def allowed(c, i, k):
        return steps_allowed(WithinTau(tau=tau), sizes, c, i, k)

    fine, steps = all_consistent(sizes, allowed, tau, np.random.default_rng(seed), eager)
    assert fine
    # And the rule holds nobody back for ever but where `first_stall` says so.
    stall = first_stall(tau, sizes, ROUNDS)
    assert (steps == sizes.before(ROUNDS)) == (stall is None)


@given(sizes=size_tables(), tau=powers, d=st.integers(0, 3), seed=st.integers(0, 99), eager=st.booleans())
def test_rounds_ahead_are_consistent_under_condition_2(sizes, tau, d, seed, eager):
    """Condition (2) is about i > d; up to round d nobody waits, so tau has to permit models without any update."""
    assume(first_breach(tau, sizes, d, ROUNDS) is None)
    start = min(d + 1, ROUNDS)
    assume(all(t - tau.at(t) <= 0 for t in range(sizes.before(start))))

    def allowed(c, i, k):
        return steps_allowed(RoundsAhead(d=d), sizes, c, i, k)

    fine, steps = all_consistent(sizes, allowed, tau, np.random.default_rng(seed), eager)
    assert fine
    assert steps == sizes.before(ROUNDS)


@pytest.mark.parametrize("rule", ["within tau", "rounds ahead"])
def test_clients_that_wait_too_little_are_seen(rule):
    """Two clients, 20 steps a round each, tau = 35, which is below s_i, so that (2) fails even for d = 0.

    The 19th step of a client has t_delay = 38. It is allowed if tau is taken for 39, and its model is too old if its
    number within the round is above 35, as it is in most orders.
    """
    sizes = PublicRounds(Settings(sizes=PowerSizes(a=0, b=40)), {"a": 9, "b": 9}, 0)
    tau = PowerDelay(constant=35, factor=0)

    def lax(c, i, k):
        if rule == "within tau":
            return steps_allowed(WithinTau(tau=PowerDelay(constant=39, factor=0)), sizes, c, i, k)
        return steps_allowed(RoundsAhead(d=0), sizes, c, i, k)

    outcomes = [all_consistent(sizes, lax, tau, np.random.default_rng(seed), eager=True)[0] for seed in range(20)]
    assert not all(outcomes)
