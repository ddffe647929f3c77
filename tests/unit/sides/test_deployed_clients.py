"""Deployed clients that mask, and a server that asks their data sides one by one, each as it likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.end_to_end.test_deployed_sides import ledger_of, own, signing_of
from tests.reference.asked_apart import Party, added

from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedavg.box import public_cohorts
from gossamer.deployment.party.data_side import SideFile, deployed_computer
from gossamer.errors import BudgetSpent
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.masking import MaskedSum, Phase
from gossamer.privacy.masking.messages import AgentRoster, Announcement, packed, unpacked
from gossamer.privacy.tasks import REFUSED, MaskingStep
from gossamer.runtimes.storage.file import IN_MEMORY
from gossamer.sides.ledger import Receipt
from gossamer.sides.plan import CountedOn, MaskedMember
from gossamer.vectors import Public

RUN, OTHER_RUN = "a" * 32, "b" * 32
FEDAVG = {"name": "fedavg", "nodes": 6, "rounds": 3, "masking": {"name": "secure", "honest": 0.8}, "batch_size": 8}


def clients(run: str = RUN, **changes: Any) -> Prepared:
    spec = {"dataset": "digits", "seed": 3, "algorithm": {**FEDAVG, **changes}}
    return replace(prepare(parse_spec({**spec, "privacy": {"clip": 1.0, "noise_multiplier": 6.0}})), run=run)


class Client(Party):
    """The real data side of one client, in a process that may be started again."""

    def __init__(self, prepared: Prepared, name: str) -> None:
        self.name, self.prepared, self.plan = name, prepared, plan_run(prepared)
        self.query = prepared.experiment.algorithm.query(prepared.shard_sizes[name])
        self.file, self.ledger = SideFile(IN_MEMORY, prepared.run, name), ledger_of(prepared, self.plan, name)
        self.restart()

    def restart(self) -> None:
        """All that was not stored is gone."""
        computer: Any = deployed_computer(
            own(self.prepared, self.name),
            self.plan,
            self.name,
            self.ledger,
            kept=self.file,
            signing=signing_of(self.prepared, self.name),
        )
        self._computer, self.side = computer, computer.sides[self.name].rule
        self.members = computer.sides[self.name].rule._members

    @property
    def charged(self) -> int:
        assert self.ledger is not None
        return self.ledger.releases


def asked(prepared: Prepared, round: int = 0, model: Public | None = None) -> dict[str, Client]:
    """All clients, who have made an update of the round."""
    found = {name: Client(prepared, name) for name in prepared.names}
    for one in found.values():
        one.update(round, model or prepared.initial)
    return found


def announced(parties: Mapping[str, Client], round: int = 0) -> AgentRoster:
    group = next(iter(parties.values())).side.unit.group
    said = [one.ask(MaskingStep(round, Phase.ANNOUNCE, REFUSED, 0)) for one in parties.values()]
    return AgentRoster(round, tuple(unpacked(one, Announcement, group) for one in said))


def shares(client: Client, roster: AgentRoster) -> Any:
    return client.ask(MaskingStep(roster.round, Phase.SHARE, packed(roster), 0))


def test_a_whole_sum_is_charged_once_to_each() -> None:
    parties = asked(clients())
    total = added(parties)
    assert isinstance(total, MaskedSum)
    assert total.agents == (1, 2, 3, 4, 5, 6)
    assert [one.charged for one in parties.values()] == [1] * 6
    again = added(parties)  # the same answers, so the same sum
    assert again is not None
    np.testing.assert_array_equal(again.values, total.values)
    assert [one.charged for one in parties.values()] == [1] * 6


def test_whoever_is_asked_about_another_model_is_in_no_sum_and_not_charged() -> None:
    """One about the model, five about one at which their updates may be known: what is left would be one update."""
    prepared = clients()
    parties = asked(prepared)
    odd = parties["node-0"] = Client(prepared, "node-0")
    odd.update(0, Public(np.asarray(prepared.initial.values) + np.float32(1.0)))
    assert shares(odd, announced(parties)) == REFUSED
    assert odd.charged == 0


def test_keys_of_another_run_are_refused() -> None:
    """The same clients, identities, spec and model: a server may have the answers of a run before."""
    old, new = asked(clients(OTHER_RUN)), asked(clients())
    before, roster = announced(old), announced(new)
    assert shares(new["node-1"], roster) != REFUSED
    mixed = AgentRoster(0, (before.announcements[0], *roster.announcements[1:]))
    assert shares(new["node-2"], mixed) == REFUSED


def test_a_client_has_one_place_in_a_sum() -> None:
    """Its own keys under another's number are signed by nobody who has that number."""
    parties = asked(clients())
    roster = announced(parties)
    twice = AgentRoster(0, (replace(roster.announcements[1], agent=1), *roster.announcements[1:]))
    assert shares(parties["node-2"], twice) == REFUSED
    assert shares(parties["node-2"], roster) != REFUSED


def test_a_round_of_others_is_none_of_a_client_s() -> None:
    prepared = clients(nodes=6, clients_per_round=4, rounds=8)
    client = Client(prepared, "node-0")
    without = [round for round in range(8) if "node-0" not in client.members(round)]
    for round in without:
        client.update(round, prepared.initial)
        assert client.ask(MaskingStep(round, Phase.ANNOUNCE, REFUSED, 0)) == REFUSED
    assert without
    assert client.charged == 0


def test_after_a_restart_what_was_said_is_not_said_again_and_stays_charged() -> None:
    parties = asked(clients())
    client = parties["node-0"]
    assert added(parties) is not None
    client.restart()
    client.update(0, client.prepared.initial)
    for step in Phase:
        assert step is Phase.DONE or client.ask(MaskingStep(0, step, REFUSED, 0)) == REFUSED
    assert client.charged == 1
    for one in parties.values():
        one.update(1, one.prepared.initial)
    assert added(parties, 1) is not None
    assert client.charged == 2


def test_no_client_is_in_more_sums_than_planned() -> None:
    """Its ledger is opened for three; charged otherwise, as after a crash, it hands over nothing in the last round."""
    parties = asked(clients())
    client = parties["node-0"]
    (kind,) = [client.plan.side("node-0").noise]  # type: ignore[attr-defined]
    assert client.ledger is not None
    for _ in range(3):
        client.ledger.charge(Receipt(kind))
    with pytest.raises(BudgetSpent):
        added(parties)
    assert client.charged == 3


# Whose noise is counted


def side(**changes: Any) -> MaskedMember:
    found = plan_run(clients(**changes)).side("node-0")
    assert isinstance(found, MaskedMember)
    return found


def test_a_plan_says_whose_noise_it_counts() -> None:
    """Five of six are honest; of the smallest sum, of four, three are."""
    names = tuple(f"node-{i}" for i in range(6))
    assert side().trusted.counts_on("node-0") == CountedOn(frozenset([names]), 1)
    assert side(masking="secure").trusted.counts_on("node-0") is None
    assert plan_run(clients()).side("server").trusted.counts_on("server") is None


def test_it_says_it_of_every_sum_that_a_client_is_in() -> None:
    found = side(clients_per_round=4, rounds=8, masking={"name": "secure", "honest": 0.75})
    sharing = found.trusted.counts_on("node-0")
    assert sharing is not None
    assert sharing.groups == {found.coins(round) for round in range(8) if "node-0" in found.coins(round)}
    assert all("node-0" in group and len(group) == 4 for group in sharing.groups)
    assert 1 < len(sharing.groups) <= 8
    assert sharing.dishonest == 1


def test_the_cohort_of_a_round_is_drawn_once_for_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the plan is asked whose noise it counts: a party does so several times before it starts."""
    drawn: list[int] = []

    def counting(*given: Any) -> Any:
        cohort = public_cohorts(*given)
        return lambda round: drawn.append(round) or cohort(round)  # type: ignore[func-returns-value]

    monkeypatch.setattr(fedavg, "public_cohorts", counting)
    changes = {"clients_per_round": 4, "rounds": 8, "masking": {"name": "secure", "honest": 0.75}}
    plan = plan_run(clients(**changes))
    for _ in range(3):
        assert plan.side("node-0").trusted.counts_on("node-0") is not None
    assert sorted(drawn) == list(range(8))
