"""Deployed agents behind masks, and an own server that puts keys of its own in the place of the other agents'."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.end_to_end.test_deployed_sides import BASE, UNITS, Parties, identity_of, own, prepared_of, run, signing_of

from gossamer.algorithms.graph_federated.masking import MaskingServerNode
from gossamer.algorithms.graph_federated.settings import units_of
from gossamer.deployment.founding.founding import draft
from gossamer.deployment.party.agreement import Agreed
from gossamer.deployment.party.data_side import SideFile, deployed_computer
from gossamer.errors import DataError
from gossamer.experiment.preparation.planning import plan_run, problem_of
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.specs.spec_file import parse_spec, write_spec
from gossamer.keys.identity import Identity
from gossamer.privacy.masking import Group, MaskingAgent, MaskingServer, Phase
from gossamer.privacy.masking.messages import REPLIES, AgentRoster, Announcement, MaskedVector, packed, unpacked
from gossamer.privacy.tasks import REFUSED, LocalQuery, LocalUpdate, MaskingStep
from gossamer.runtimes.storage.file import IN_MEMORY
from gossamer.vectors import Public

RUN, EARLIER = "0" * 32, "1" * 32
VICTIM = "node-0"
SERVER = Identity.of_seed(bytes(32))
"""Of the server that lies, or whoever helps it; the invitation names it as nobody's."""


@cache
def simulated() -> Prepared:
    return prepared_of("units masked")


def named(run: str = RUN) -> Prepared:
    return replace(simulated(), run=run)


class Agent:
    """A deployed agent with an update for round 0, as its server can ask it."""

    def __init__(self, prepared: Prepared, name: str = VICTIM) -> None:
        plan = plan_run(prepared)
        file, signing = SideFile(IN_MEMORY, "run", name), signing_of(prepared, name)
        self._name = name
        self._computer: Any = deployed_computer(own(prepared, name), plan, name, None, kept=file, signing=signing)
        self._ask(LocalUpdate(0, prepared.initial, LocalQuery(2, 4, 0.5, 1.0)))
        self.side = self._computer.sides[name].rule
        self.group: Group = self.side.unit.group

    def step(self, step: int, incoming: Public = REFUSED) -> Any:
        return self._ask(MaskingStep(0, step, incoming, 0))

    @property
    def announced(self) -> Announcement:
        return unpacked(self.step(Phase.ANNOUNCE), Announcement, self.group)

    def _ask(self, task: Any) -> Any:
        return self._computer.compute([self._computer.admit(self._name, task)])[0].released


class Measured(Parties):
    """Data sides whose messages about masks have the sizes that were asked for."""

    steps = 0

    def admit(self, node: str, task: Any) -> Any:
        return node, (task, self.sides[node].admit(node, task))

    def compute(self, tickets: Any) -> Any:
        found = []
        for node, (task, ticket) in tickets:
            found += self.sides[node].compute([ticket])
            if isinstance(task, MaskingStep):
                released: Any = found[-1].released
                assert (released.size, released.values.dtype) == (task.answer_size, task.dtype), task.step
                self.steps += 1
        return found


def members() -> tuple[str, ...]:
    """Whom public coins draw for round 0, in the order of their numbers."""
    prepared = simulated()
    problem = problem_of(prepared)
    return tuple(units_of(problem.settings, problem.names, problem.seed)[0].of(0))


def shares_for(agent: Agent, others: dict[int, Announcement]) -> Any:
    """What it says to a list of keys with its own and those of ``others``."""
    number = agent.announced.agent
    all_of_them = {**others, number: agent.announced}
    return agent.step(Phase.SHARE, packed(AgentRoster(0, tuple(all_of_them[i] for i in sorted(all_of_them)))))


def test_without_identities_a_server_that_plays_the_others_has_the_update() -> None:
    """In a simulation, and so it was in deployments: it fools the agent, and the sum that it unmasks has one update."""
    agent = Agent(simulated())
    number, inputs = agent.announced.agent, agent.announced.inputs
    played = {i: MaskingAgent(agent.group, i, 0, inputs=inputs) for i in range(1, 4) if i != number}
    server, requests = MaskingServer(agent.group, 0), dict.fromkeys(range(1, 4))
    for step in Phase:
        if step == Phase.DONE:
            break
        answer = agent.step(step, REFUSED if step == Phase.ANNOUNCE else packed(requests[number]))  # type: ignore[arg-type]
        message: Any = (
            MaskedVector(0, number, answer) if step == Phase.MASK else unpacked(answer, REPLIES[step], agent.group)
        )
        server.receive(message)
        for i, one in played.items():
            server.receive(_said(one, step, requests[i]))
        if step != Phase.REVEAL:
            requests = server.advance()  # type: ignore[assignment]
    found = agent.side.unit.decoded(server.unmask()).values
    update = agent.side._round.update
    assert np.linalg.norm(update) > 0.01
    np.testing.assert_allclose(found, update, atol=agent.side.unit.fixed.resolution)


def _said(one: MaskingAgent, step: Phase, request: Any) -> Any:
    if step == Phase.ANNOUNCE:
        return one.announce()
    if step == Phase.MASK:
        return one.mask(request, np.zeros(one.group.length, one.group.dtype))
    return {Phase.SHARE: one.share, Phase.CONFIRM: one.confirm, Phase.REVEAL: one.reveal}[step](request)


def forged(victim: Agent, number: int, signer: Identity, group: Group | None = None) -> Announcement:
    """Keys of the server's own, under an agent's number, for the very question that the ``victim`` was asked."""
    inputs = victim.announced.inputs
    return MaskingAgent(group or victim.group, number, 0, {}, inputs=inputs).announce(signer)


def test_a_server_s_own_keys_are_refused() -> None:
    """However they are signed; one that is not the agent's is enough, and no share has been said yet."""
    numbers = {name: number for number, name in enumerate(members(), 1)}
    true = {number: Agent(named(), name).announced for name, number in numbers.items() if name != VICTIM}
    first, second = true
    names = {number: name for name, number in numbers.items()}
    for signer in (SERVER, identity_of(VICTIM), identity_of(names[second]), identity_of("node-5")):
        victim = Agent(named())
        others = {**true, first: forged(victim, first, signer)}
        assert shares_for(victim, others) == REFUSED
    victim = Agent(named())
    assert shares_for(victim, {**true, first: replace(forged(victim, first, SERVER), signature=b"")}) == REFUSED
    assert (
        shares_for(victim, {**true, first: replace(true[first], agent=first, share_key=bytes(31) + b"\x09")}) == REFUSED
    )
    assert shares_for(victim, true) != REFUSED


def test_keys_that_agents_signed_for_another_run_or_unit_are_refused() -> None:
    numbers = {name: number for number, name in enumerate(members(), 1)}
    others = [name for name in numbers if name != VICTIM]
    victim = Agent(named())
    assert shares_for(victim, {numbers[name]: Agent(named(EARLIER), name).announced for name in others}) == REFUSED
    elsewhere = replace(victim.group, context=victim.group.context + b"0")
    signed = {numbers[name]: forged(victim, numbers[name], identity_of(name), elsewhere) for name in others}
    assert shares_for(victim, signed) == REFUSED
    swapped = {numbers[name]: Agent(named(), other).announced for name, other in zip(others, reversed(others))}
    renumbered = {number: replace(one, agent=number) for number, one in swapped.items()}
    assert shares_for(victim, renumbered) == REFUSED
    assert shares_for(victim, {numbers[name]: Agent(named(), name).announced for name in others}) != REFUSED


@pytest.mark.parametrize(
    ("agents", "privacy"), [(3, {"clip": 1.0}), (6, {"clip": 1.0}), (3, {"clip": 1.0, "agent_noise": 2.0})]
)
def test_sums_of_a_run_with_identities_are_made(agents: int, privacy: dict[str, float]) -> None:
    algorithm = {**UNITS, "agents": agents, "rounds": 2, "masking": "secure"}
    prepared = replace(prepare(parse_spec({**BASE, "algorithm": algorithm, "privacy": privacy})), run=RUN)
    plan = plan_run(prepared)
    parties = Measured(prepared, plan, [*prepared.names, "server-0", "server-1"])
    simulator, _ = run(prepared, plan, parties)
    assert parties.steps > 0
    servers = [node for node in simulator.nodes.values() if isinstance(node, MaskingServerNode)]
    assert [node.state.sums_refused for node in servers] == [0, 0]
    assert [node.state.unanswered for node in servers] == [0, 0]
    assert all(node.state.round > 0 for node in servers)


def test_what_an_invitation_settles_is_signed_for_its_run() -> None:
    """So there is no data side without identities, and no message of another size."""
    one = simulated()
    invitation = draft(
        spec=write_spec(one.experiment), parties=one.shard_sizes, broker="mqtt://127.0.0.1:1883"
    ).invitation
    agreed = Agreed.by(invitation)
    assert agreed.prepared.run == invitation.run
    (said,) = [line for line in agreed.plan.guarantees["other_units"].assumptions if "the own server sees" in line]
    assert "whose keys the identities in the invitation sign" in said
    assert "hands on" not in agreed.plan.guarantees["own_server"].proof
    assert "if it hands on their own keys" in str(plan_run(one).guarantees["other_units"])
    groups = {node.unit.group for node in agreed.nodes().values() if isinstance(node, MaskingServerNode)}
    assert len(groups) == 2
    assert all(group.signed and invitation.run.encode() in group.context for group in groups)
    mark = SideFile(IN_MEMORY, "run", VICTIM)
    prepared = replace(own(one, VICTIM), run=agreed.prepared.run)
    with pytest.raises(DataError, match="expected the agents' identities, found none"):
        deployed_computer(prepared, agreed.plan, VICTIM, None, kept=mark)
    with pytest.raises(DataError, match="identities are for one with signed=True"):
        deployed_computer(
            own(one, VICTIM), plan_run(one), VICTIM, None, kept=mark, signing=signing_of(prepared, VICTIM)
        )
