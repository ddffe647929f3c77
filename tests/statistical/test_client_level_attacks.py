"""Attacks on whole clients and on their examples, as likelihood ratios, in runs of FedAvg's own nodes and data sides.

D clients have one example each, whose gradient is a thousand times too long and lies along an axis of the client's own:
so each update is +C or -C times that axis, by what the client has. Of a client's two data sets, which are neighbours
under replace_one, the attacker sees the released models, or with noise of the clients' own what they send; all else it
knows. On other axes is independent noise, so a run attacks D clients, each by an attack of its own. Where examples are
protected, that one is in a step by a coin of its own.

With E the event that the log likelihood ratio is above a threshold fixed beforehand, (epsilon, delta)-privacy means
``P(E) <= exp(epsilon) P'(E) + delta``. Both probabilities are replaced by their Clopper-Pearson limits at level 1e-8
each, so that a bound is above the true epsilon with probability at most 2e-8, and right code fails with probability
below 1e-6 in all tests here. Seeds are fixed: it fails for good or never.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, norm

from gossamer.algorithms.clients.nodes import SERVER, Push
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedavg.box import Settings
from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, Poisson, ReleaseKind
from gossamer.privacy.tasks import Query
from gossamer.protocol.effects import Send
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.world import World
from gossamer.sides.guarantees import OTHERS, curated_guarantees, noised_guarantee
from gossamer.sides.home import Simulated
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator, Samples, SidePlan
from gossamer.sides.pool import open_pool
from gossamer.sides.samples import ShardRows
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public

D, ROUNDS, C, DELTA, LEVEL = 25, 3, 0.5, 0.1, 1e-8
COIN = 0.6
"""Chance of an example in a noisy step."""
NAMES = tuple(f"node-{number:02}" for number in range(D))
OBJECTIVE = LinearModel("squared", D, None, intercept=False, dtype=np.dtype(np.float32))
SHARDS = {name: ShardRows(np.array([number])) for number, name in enumerate(NAMES)}
Numbers = np.ndarray[Any, np.dtype[np.float64]]


def plans(settings: Settings, law: Gaussian) -> dict[str, SidePlan]:
    query = settings.query(1)
    if settings.stepwise:
        return dict.fromkeys(NAMES, Samples({ReleaseKind(law.unit(), Poisson(COIN), D): ROUNDS}))
    if not settings.curated:
        return dict.fromkeys(NAMES, ClientUpdate(query, C, law, ROUNDS, D))
    curator = Curator({ReleaseKind(law.unit(), settings.sampling, D): ROUNDS}, D, NAMES, C, SERVER)
    return {**dict.fromkeys(NAMES, ClientUpdate(query, C, scope=curator.scope, behind=curator)), SERVER: curator}


def proved(settings: Settings, law: Gaussian) -> float:
    plan = list(plans(settings, law).values())[-1]
    if isinstance(plan, Curator):
        return curated_guarantees(plan, DELTA, NeighboringRelation.REPLACE_ONE)[OTHERS].epsilon
    if isinstance(plan, Samples):
        return epsilon(plan.kinds, DELTA, NeighboringRelation.REPLACE_ONE).epsilon
    assert isinstance(plan, ClientUpdate)
    return noised_guarantee(plan, DELTA, NeighboringRelation.REPLACE_ONE).epsilon


def seen(settings: Settings, law: Gaussian, signs: Numbers, seed: int) -> Numbers:
    """Numbers [rounds, D] that an attacker reads off a run, in clips: +1 or -1, by what a client has, with noise."""
    data = Split(np.eye(D, dtype=np.float32), (1000 * C * signs).astype(np.float32))
    context = Context(
        seed=seed,
        names=NAMES,
        graph=Graph(D, np.empty((0, 2), int)),
        initial=Public(np.zeros(D, np.float32)),
        queries=dict.fromkeys(NAMES, Query(Poisson(COIN) if settings.stepwise else WHOLE, law, 1.0)),
        shard_sizes=dict.fromkeys(NAMES, 1),
    )
    nodes, steps = fedavg.build(settings, context), list[TraceStep]()
    scopes = dict.fromkeys((*NAMES, SERVER), SERVER) if settings.curated else {}
    pool = open_pool(plans(settings, law), SHARDS, OBJECTIVE, data, Simulated(seed))
    models: dict[int, Numbers] = {0: np.zeros(D)}
    simulator = Simulator(nodes, pool, World(servers=(SERVER,), units=scopes, seed=seed), watch=steps.append)
    while simulator.next_time is not None:
        simulator.step()
        server: Any = simulator.nodes[SERVER]
        models[server.state.t] = np.asarray(server.state.x.values, np.float64)
    if settings.curated:
        return np.diff([models[t] for t in range(ROUNDS + 1)], axis=0) * settings.drawn / C
    found = np.zeros((ROUNDS, D))
    for step in steps:
        for effect in step.effects:
            if isinstance(effect, Send) and isinstance(effect.message, Push):
                place = NAMES.index(step.node)
                found[effect.message.version, place] = effect.message.update.values[place] / C
    return found


def ratios(settings: Settings, multiplier: float, numbers: Numbers) -> Numbers:
    """Log likelihood ratio [D] of +1 and -1, each in a round with the chance that it is drawn."""
    q = COIN if settings.stepwise else settings.sampling.rate
    plus, still, minus = (norm.pdf(numbers, mean, multiplier) for mean in (1, 0, -1))
    one, other = (1 - q) * still + q * plus, (1 - q) * still + q * minus
    found: Numbers = np.log(one / other).sum(axis=0)
    return found


def measured(settings: Settings, law: Gaussian, runs: int, threshold: float) -> float:
    """The least epsilon that explains what attacks on the clients of so many runs find."""
    generator, hits, counts = np.random.default_rng(5), {1.0: 0, -1.0: 0}, {1.0: 0, -1.0: 0}
    for seed in range(runs):
        signs = generator.choice([-1.0, 1.0], D)
        found = ratios(settings, law.noise_multiplier, seen(settings, law, signs, seed)) > threshold
        for sign in hits:
            hits[sign] += int(found[signs == sign].sum())
            counts[sign] += int((signs == sign).sum())
    least = beta.ppf(LEVEL, hits[1.0], counts[1.0] - hits[1.0] + 1)
    most = beta.ppf(1 - LEVEL, hits[-1.0] + 1, counts[-1.0] - hits[-1.0])
    return math.log((least - DELTA) / most)


TRUSTED = {"noise_by": "server", "trusted": "server"}
SETTINGS: dict[str, Any] = {"nodes": D, "rounds": ROUNDS, "local_steps": 1, "local_learning_rate": 1.0}


SECRET = {**TRUSTED, "clients_per_round": 15, "cohorts": "secret"}
EXAMPLES = {"privacy_unit": "example", "batch_size": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "multiplier"),
    [({}, 2.0), (TRUSTED, 2.0), (SECRET, 1.0), (EXAMPLES, 1.0)],
    ids=["clients", "server", "secret cohorts", "examples"],
)
def test_attacks_come_near_what_is_proved_and_no_further(more: dict[str, Any], multiplier: float) -> None:
    """25,000 attacks each: what their limits leave is between 0.7 of what is proved, and all of it."""
    settings, law = Settings(**SETTINGS, **more), Gaussian(C, multiplier)
    limit = proved(settings, law)
    assert 0.7 < measured(settings, law, 1000, 0.8 * limit) / limit < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, TRUSTED, SECRET, EXAMPLES], ids=["clients", "server", "secret cohorts", "examples"]
)
def test_half_the_noise_is_noticed(more: dict[str, Any]) -> None:
    settings, law = Settings(**SETTINGS, **more), Gaussian(C, 2.0)
    limit = proved(settings, law)
    assert measured(settings, Gaussian(C, 1.0), 300, 0.8 * limit) > limit


@pytest.mark.slow
def test_cohorts_that_are_no_secret_are_noticed() -> None:
    """All are drawn, while the chance of 15 in 25 is claimed."""
    secret, law = Settings(**SETTINGS, **SECRET), Gaussian(C, 1.0)
    limit = proved(secret, law)
    assert measured(Settings(**SETTINGS, **TRUSTED), law, 300, 0.8 * limit) > limit
