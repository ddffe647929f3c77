"""A scale that deployed parties find: one charged release each, and what a simulation finds."""

from __future__ import annotations

import math
import shutil
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.private_scales import DELTA, NODES, WITHOUT_NOISE, A, B, Parties, founded, spec_of

from gossamer.cli.federation.local_federation import POLICY, STATE, LocalFederation
from gossamer.deployment.founding.scale_papers import ScaleError, write_release
from gossamer.deployment.owner.policy import read_policy
from gossamer.deployment.owner.spending import spendings
from gossamer.deployment.party.computing import deployed_epsilon, deployed_guarantees
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.joining import PolicyBroken, accept, asked
from gossamer.deployment.party.renewing import check_newer
from gossamer.deployment.party.scaling import agreed_ranges, combined, ranges_in, release_scale, released
from gossamer.deployment.party.state_folder import STORE, StateFolder
from gossamer.errors import BudgetSpent, CallerError, RunWarning
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.private_scale import beforehand, question, scaled
from gossamer.privacy.accounting.accountants import renyi_divergence
from gossamer.privacy.accounting.ledger import Plan
from gossamer.privacy.mechanisms import Gaussian
from gossamer.sides.charging_rules import ReleaseCharges
from gossamer.sides.ledger import MemoryLedger

pytestmark = pytest.mark.filterwarnings("ignore:dataset.scale. the noise hides")


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    """One that nobody changes."""
    return founded(tmp_path_factory.mktemp("once"))


@pytest.fixture
def parties(once: Parties, tmp_path: Path) -> Parties:
    """One that a test may do with what it wants."""
    shutil.copytree(once.made.folder, tmp_path / "f")
    return Parties(replace(once.made, folder=tmp_path / "f"))


# What is found


def test_without_noise_the_ranges_are_those_of_a_simulation(tmp_path: Path) -> None:
    parties = founded(tmp_path, **WITHOUT_NOISE)
    prepared = prepare(spec_of(tmp_path / "t.csv", **WITHOUT_NOISE))
    expected = scaled(prepared, plan_run(prepared), 0)
    content = parties.hand_round()
    assert ranges_in(parties.agreed, content) == expected.ranges
    # Each party's examples, once they are scaled, are those of the simulation's node.
    for name, shard in zip(prepared.names, prepared.shards, strict=True):
        with parties.held(name, scaled=True) as held:
            own = held.agreed.prepared.dataset
        np.testing.assert_array_equal(own.train.features, expected.prepared.dataset.train.features[shard])
        np.testing.assert_array_equal(own.train.targets, expected.prepared.dataset.train.targets[shard])
        assert own.declaration is not None
        assert own.declaration.columns is not None
        for column, most in expected.ranges.items():
            assert own.declaration.columns[column].range == (-most, most)


def test_ranges_of_given_releases_are_those_of_the_formula(once: Parties) -> None:
    """4 exp2 of the middle of the magnitudes plus half their width times the mean place, to three digits."""
    agreed = once.agreed
    law = question(agreed.prepared)[1].query.mechanism
    assert isinstance(law, Gaussian)
    vectors = {A: [30.0, -18.0, 44.0, 41.0], B: [28.0, -20.5, 39.0, 43.0], "node-2": [33.0, -17.0, 40.0, 38.0]}
    texts = {
        name: write_release(once.key(name), agreed.terms.invitation, name, np.array(values)).encode()
        for name, values in vectors.items()
    }
    _, ranges = combined(agreed, texts, once.organiser)
    low, high, noise = math.log2(1e-3), math.log2(1e6), law.noise_multiplier * math.sqrt(3)
    for column, place in (("size", 0), ("weight", 1)):
        logarithms = sum(values[place] for values in vectors.values())
        count = max(sum(values[place + 2] for values in vectors.values()), noise)
        exact = 4 * 2 ** ((low + high) / 2 + (high - low) / 2 * logarithms / count)
        assert ranges[column] == float(f"{exact:.3g}")


def test_releases_are_the_sum_with_the_noise_that_is_planned(tmp_path: Path) -> None:
    """Every one of them: it fails by chance in 1 run of 10,000, and noise that is 5 % off fails in 999 of 1,000."""
    parties = founded(tmp_path, budget=None, privacy={"noise_multiplier": 2.0}, dataset=_noisy(tmp_path, 3.0))
    with parties.held(A, scaled=False) as held:
        prepared, plan = held.agreed.prepared, held.agreed.plan.side(A)
    few = np.arange(4)
    agreed = replace(held.agreed, prepared=replace(prepared, shards=(few, *prepared.shards[1:])))
    charges = plan.charges()
    assert charges is not None
    stubs = (
        cast(Any, SimpleNamespace(agreed=agreed, ledger=MemoryLedger(A, charges), receipts=None)) for _ in range(2500)
    )
    drawn = np.array([released(stub) for stub in stubs])
    magnitudes, _ = question(prepared)
    noise = (drawn - magnitudes.vectors(prepared.dataset.train, few).sum(axis=0)) / 3.0
    square = float((noise**2).sum())
    # Noise on a grid is up to 1 in 1,000 larger, for rounding.
    low, high = stats.chi2.ppf([2.5e-5, 1 - 2.5e-5], noise.size)
    assert low <= square <= high * 1.0025
    assert not low <= square * 1.05**2 <= high * 1.0025 or not low <= square * 0.95**2 <= high * 1.0025
    assert stats.kstest(noise.ravel(), "norm").pvalue > 5e-5


def _noisy(tmp_path: Path, multiplier: float) -> dict[str, Any]:
    dataset = spec_of(tmp_path / "t.csv").dataset.model_dump()
    given = {key: value for key, value in dataset.items() if value is not None}
    return given | {"scale": {"name": "private", "noise_multiplier": multiplier}}


# What it costs


def test_the_plan_is_that_of_a_simulation(once: Parties) -> None:
    plan, agreed = once.made.plan, once.agreed
    assert agreed.plan.epsilons == plan.epsilons
    assert {name: agreed.plan.counts(name) for name in plan.epsilons} == {n: plan.counts(n) for n in plan.epsilons}
    size, coordinates = agreed.prepared.objective.size, 2 * 2
    ((_, drawn),) = agreed.plan.drawn(network=False, deadline=False).items()
    assert drawn.numbers == 10 * (size + 1) + coordinates  # of updates with their counts, and of the release
    guarantee, _ = deployed_guarantees(agreed.prepared, agreed.plan)
    assert max(plan.epsilons.values()) <= guarantee.epsilon <= 3.0 + 1e-9
    assert guarantee.delta <= DELTA * (1 + 1e-6)
    assert deployed_epsilon(agreed.prepared, agreed.plan, A) == pytest.approx(plan.epsilons[A])


def test_the_owners_ledger_has_the_whole_run_and_one_release(parties: Parties) -> None:
    release_scale(parties.options(A))
    (spent,) = spendings(read_policy(parties.place(A) / POLICY))
    assert spent.budget is not None
    ((kind, count),) = beforehand(parties.agreed.prepared).items()
    assert count == 1
    assert isinstance(kind.mechanism, Gaussian)
    planned, order = dict(parties.agreed.plan.counts(A) or {}), spent.budget.order
    del planned[kind]
    run = sum(n * renyi_divergence(one, order, spent.budget.relation) for one, n in planned.items())
    # A Gaussian on all examples: order / (2 sigma^2).
    assert spent.divergence == pytest.approx(run + order / (2 * kind.mechanism.noise_multiplier**2), rel=1e-9)
    assert [one.releases for one in spent.runs] == [1]
    assert spent.left is not None
    assert spent.left >= 0


def test_it_is_made_once(parties: Parties) -> None:
    path = release_scale(parties.options(A))
    first, ledger = path.read_bytes(), _releases(parties, A)
    assert release_scale(parties.options(A)) == path
    assert (path.read_bytes(), _releases(parties, A)) == (first, ledger)
    path.unlink()
    for more in ({}, {"store": parties.place(A) / "another"}):
        with pytest.raises(ScaleError, match="has made its release for this run before, and a second one would be"):
            release_scale(parties.options(A, **more))
    assert (_releases(parties, A), path.exists()) == ([1], False)
    assert not (parties.place(A) / STATE).exists()


def _releases(parties: Parties, name: str) -> list[int]:
    (spent,) = spendings(read_policy(parties.place(name) / POLICY))
    return [one.releases for one in spent.runs]


def test_two_processes_make_one(parties: Parties) -> None:
    """The other has charged its own between this one's look and its charge: nothing is drawn, whatever is planned."""
    with parties.held(A, scaled=False) as held:
        held.charge()
        options = parties.options(A)
        folder = StateFolder(parties.place(A) / "another")
        with closing(DataHeld(options, accept(options), folder)) as other:
            other.charge()
            released(other)
        with pytest.raises(BudgetSpent):
            released(held)
    assert _releases(parties, A) == [1]


def test_releases_and_runs_of_one_kind_are_told_apart(parties: Parties) -> None:
    """Where a run has releases of the same kind, its ledger would allow a second one for the scale."""
    with parties.held(A, scaled=False) as held:
        kind = question(held.agreed.prepared)[1].release
        ledger = MemoryLedger(A, ReleaseCharges(Plan({kind: 2})), {kind: 1})
        with pytest.raises(ScaleError, match="another process has made the release for this run; nothing was drawn"):
            released(cast(Any, SimpleNamespace(agreed=held.agreed, ledger=ledger, receipts=None)))


def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    parties = founded(tmp_path, budget=None, privacy={"noise_multiplier": 2.0}, dataset=_noisy(tmp_path, 1e30))
    with pytest.raises(CallerError, match=r"cannot be drawn|is too much for a grid"):
        release_scale(parties.options(A))
    assert _releases(parties, A) == []


def test_a_policy_that_asks_for_more_noise_is_kept_before_the_run_too(tmp_path: Path) -> None:
    parties = founded(tmp_path, budget=None, privacy={"noise_multiplier": 9.0}, dataset=_noisy(tmp_path, 7.0))
    assert asked(replace(parties.agreed, terms=parties.agreed.of(A).terms)).noise_multiplier == 7.0
    policy = parties.place(A) / POLICY
    policy.write_text(policy.read_text().replace("smallest_noise_multiplier: 0.0", "smallest_noise_multiplier: 8.0"))
    with pytest.raises(PolicyBroken, match="a noise multiplier of 7; allowed: 8 and more"):
        release_scale(parties.options(A))
    assert not (parties.place(A) / "policy.ledger").exists()


# How a node starts


def test_a_node_starts_with_the_scale_alone(parties: Parties) -> None:
    with pytest.raises(ScaleError, match=r"scale\.yaml: cannot read the scale that this run starts with"):
        parties.starts(A)
    parties.hand_round()
    for name in parties.made.prepared.names:
        parties.starts(name)
    for file in parties.place(A).glob("policy.ledger*"):
        file.unlink()
    with pytest.raises(CallerError, match="a release of this data that its ledger does not have, so the ledger is"):
        parties.starts(A)


def test_a_node_goes_on_by_what_it_began_with(parties: Parties) -> None:
    content = parties.hand_round()
    parties.starts(A)
    (parties.place(A) / STATE / STORE).write_bytes(b"")  # as if it had begun
    parties.starts(A)
    agreed = parties.agreed
    texts = {name: parties.signed(name, [20.0, -10.0, 35.0, 30.0]) for name in agreed.terms.names}
    (parties.place(A) / "scale.yaml").write_text(combined(agreed, texts, parties.organiser)[0])
    with pytest.raises(ScaleError, match="this node began with other ranges, and goes on by"):
        parties.starts(A)
    (parties.place(A) / "scale.yaml").write_bytes(content)
    parties.starts(A)


def test_nobody_joins(once: Parties) -> None:
    agreed = once.agreed
    terms = replace(agreed.terms, sizes={**agreed.terms.sizes, "d": 80})
    with pytest.raises(CallerError, match=r"nobody can join a run with dataset\.scale: private"):
        check_newer(agreed, replace(agreed, terms=terms), [A])


def test_runs_without_it_have_nothing_to_release(tmp_path: Path) -> None:
    dataset = spec_of(tmp_path / "t.csv").dataset.model_dump() | {"scale": "none"}
    given = {key: value for key, value in dataset.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        made = LocalFederation.found(spec_of(tmp_path / "t.csv", dataset=given), tmp_path / "f", "mqtt://127.0.0.1:1")
    parties = Parties(made)
    options = parties.options(A, data=parties.place(A) / "data.npz")
    with pytest.raises(CallerError, match="there is nothing to release; start the node"):
        release_scale(options)
    with pytest.raises(CallerError, match="there is nothing to combine"):
        combined(parties.agreed, {}, parties.organiser)
    folder = StateFolder(options.state)
    assert agreed_ranges(options, accept(options), folder) == {}
    with pytest.raises(CallerError, match="leave out --scale"):
        agreed_ranges(replace(options, scale=tmp_path / "scale.yaml"), accept(options), folder)


def test_a_server_has_none(tmp_path: Path) -> None:
    more = {"algorithm": {"name": "audp", "nodes": NODES, "batch_size": 20, "updates_per_node": 10}}
    parties = founded(tmp_path, **more)
    with pytest.raises(CallerError, match="server is the server of this run, and has no examples to release from"):
        release_scale(parties.options("server", data=None, policy=None))
    content = parties.hand_round()
    options = parties.options("server", data=None, policy=None)
    folder = StateFolder(options.state)
    folder.take()
    invited = accept(options)
    ranges = agreed_ranges(options, invited, folder)
    folder.give_back()
    assert ranges == ranges_in(parties.agreed, content)
    told = invited.agreed.scaled_by(ranges).prepared.dataset.declaration
    assert told is not None
    assert told.columns is not None
    assert told.columns["size"].range == (-ranges["size"], ranges["size"])
