"""The nodes of a unit that masks: who may say what when, and what becomes of a round in which someone does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.properties.test_masked_units_properties import unit_settings
from tests.reference.masking_conversation import Conversation
from tests.reference.shuffled_unit import SERVER, ShuffledUnit

from gossamer.algorithms.context import Context
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.graph_federated.nodes import Assignment, Contribution, Declined
from gossamer.algorithms.graph_federated.settings import Masking, Settings
from gossamer.algorithms.masked_round import MaskingReply, MaskingRequest, Withdrawn
from gossamer.errors import PeerError, SpecError, TooFewAgents
from gossamer.privacy.masking import Group, MaskedSum, MaskingServer, Phase
from gossamer.privacy.masking.messages import REPLIES, REQUESTS, Announcement, agents_in, packed, packed_size, unpacked
from gossamer.privacy.masking.sums import reply_bytes
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import REFUSED, MaskingStep, Query
from gossamer.protocol.effects import Compute, Record, Send, SetTimer
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Answered, Elapsed, PeerDown, PeerUp, Received, Refused, Resumed, Stop
from gossamer.protocol.node import state_of
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import LinkSettings, World
from gossamer.sides.pool import BlankSides
from gossamer.topology.topologies import build_graph
from gossamer.vectors import Blank, Confined, Masked, Public, Released

AGENTS = 4


def unit(rounds: int = 2, agents: int = AGENTS, **masking: Any) -> ShuffledUnit:
    return ShuffledUnit(unit_settings(agents, rounds, **masking), 3, np.random.default_rng(0))


def until(found: ShuffledUnit, step: int, round: int = 0) -> ShuffledUnit:
    """Everything happens until the server waits for ``step``, and agents have got what it asks."""
    while (found.server.state.round, found.server.state.sum.step) < (round, step):
        assert found.step()
    while any(pair[0] == SERVER and queue for pair, queue in found.flying.items()):
        for pair, queue in found.flying.items():
            while pair[0] == SERVER and queue:
                found.deliver(*pair)
    return found


def refused(found: ShuffledUnit, name: str, sender: str, message: Any, match: str) -> None:
    """The node says so and stays as it was."""
    node = found.nodes[name]
    before = encode(state_of(node))
    with pytest.raises(PeerError, match=match):
        node.handle(Received(sender, message), 0.0)
    assert encode(state_of(node)) == before


def announcements(found: ShuffledUnit, seed: int = 5) -> dict[str, Public]:
    said = Conversation(found.unit.group, seed=seed)
    said.speak()
    return {f"node-{number - 1}": packed(message) for number, message in said.outbox.items()}


def test_a_sum_with_a_false_vector_moves_the_server_no_more_than_updates_can() -> None:
    """Three agents' updates are mu B long at most; a false sum within the range of integers is sqrt(3) times longer."""
    found = unit(agents=3)
    most = found.unit.fixed.limit  # of each coordinate of each agent
    total = MaskedSum(np.full(3, 3 * most).astype(found.unit.group.dtype), (1, 2, 3))
    decoded = found.unit.decoded(total)
    before = found.server.state.own.values.copy()
    assert np.linalg.norm(decoded.values) > 1.7 * 3 * found.unit.reach
    list(found.server.gathered(decoded, 3))
    assert np.linalg.norm(found.server.state.own.values - before) == pytest.approx(found.unit.reach)


@pytest.mark.parametrize("edge", ["honest", "fold", "range"])
def test_a_sum_at_an_edge_depends_on_no_bit_of_others(edge: str) -> None:
    """A fellow brings the sum to the edge; in one of two runs another's update is a step longer, which crosses it.

    Both have a sum, and their servers' states are that step over L apart.
    """
    states = []
    for step in (0, 1):
        found = unit(rounds=1, agents=3)
        fixed, dtype = found.unit.fixed, found.unit.group.dtype
        others = {f"node-{k}": np.full(3, 1000 * k, np.int64) for k in (1, 2)}
        at = {"honest": 3 * fixed.limit, "fold": 2**30, "range": 2**31 - 1}[edge]
        others["node-0"] = at - others["node-1"] - others["node-2"]
        others["node-1"] = others["node-1"] + [step, 0, 0]
        for name, vector in others.items():
            masks(found, name, vector.astype(dtype))
        found.run()
        assert found.server.state.sums_refused == 0
        states.append(found.server.w.values)
    difference = np.linalg.norm(states[1] - states[0])
    assert difference <= fixed.resolution / 3 * (1 + 1e-9) + 2.0**-50 * np.linalg.norm(states[0])


def masks(found: ShuffledUnit, name: str, vector: np.ndarray) -> None:
    """Have an agent mask these integers, whatever its update is."""
    found.sides[name]._encoded = lambda kept: vector  # type: ignore[method-assign]


# What a server refuses


def test_an_update_without_masks_is_refused() -> None:
    found = unit()
    update = Confined(np.zeros(3))
    refused(found, SERVER, "node-0", Contribution(0, update), "node-0 sends an update without masks")


def test_only_agents_of_the_unit_are_heard() -> None:
    found = unit()
    reply = MaskingReply(0, 0, announcements(found)["node-0"])
    refused(found, SERVER, "stranger", reply, "stranger may send server-0 no MaskingReply")
    refused(found, SERVER, "stranger", Withdrawn(0), "stranger may send server-0 no Withdrawn")


def test_an_agent_speaks_for_itself_alone() -> None:
    found = unit()
    reply = MaskingReply(0, 0, announcements(found)["node-2"])
    refused(found, SERVER, "node-0", reply, "agent 1 speaks as agent 3")


def test_a_key_that_is_no_point_of_the_curve_is_refused() -> None:
    found = unit()
    said = unpacked(announcements(found)["node-0"], Announcement, found.unit.group)
    bad = packed(replace(said, mask_key=bytes(32)))
    refused(found, SERVER, "node-0", MaskingReply(0, 0, bad), "agent 1's mask key is not a valid point")


def test_replies_ahead_of_their_step_are_refused_and_late_ones_do_nothing() -> None:
    found = unit()
    said = announcements(found)
    refused(found, SERVER, "node-0", MaskingReply(1, 0, said["node-0"]), "was not asked yet")
    done = until(unit(), Phase.MASK)
    before = encode(state_of(done.server))
    assert done.server.handle(Received("node-0", MaskingReply(0, 0, said["node-0"])), 0.0) == []
    assert encode(state_of(done.server)) == before
    masked = Masked(np.zeros(3, np.uint32))
    refused(found, SERVER, "node-0", MaskingReply(0, 2, masked), "was not asked yet")


def test_a_masked_vector_is_masked_and_of_the_units_size() -> None:
    found = until(unit(), Phase.MASK)
    some = Public(np.zeros(3, np.uint8))
    refused(found, SERVER, "node-0", MaskingReply(0, 2, some), "no message belongs to step 2")
    refused(found, SERVER, "node-0", MaskingReply(0, 2, Masked(np.zeros(4, np.uint32))), "sent 4 masked values")
    refused(found, SERVER, "node-0", MaskingReply(0, 2, Masked(np.zeros(3, np.uint64))), "of uint64, expected uint32")
    refused(
        found,
        SERVER,
        "node-0",
        MaskingReply(0, 1, Masked(np.zeros(3, np.uint32))),
        "step 1 has EncryptedShares, found Masked",
    )
    for step in (-1, 5, 77):
        refused(found, SERVER, "node-0", MaskingReply(0, step, some), f"no message belongs to step {step}")


# Who is waited for


def sent(effects: list[Any], kind: type) -> list[str]:
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


@pytest.mark.some(8)
@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("how", ["withdrawn", "declined", "down", "late"])
def test_a_step_closes_without_whoever_is_not_coming(step: int, how: str) -> None:
    """n = 4, and three are enough: one is missing from the sum if its update had not arrived."""
    found = until(unit(rounds=1), step)
    name = "node-1"
    events: dict[str, Any] = {
        "withdrawn": Received(name, Withdrawn(0)),
        "declined": Received(name, Declined()),
        "down": PeerDown(name, "silent"),
        "late": Elapsed("agents"),
    }
    if how == "late":
        while found.server.state.waiting != {name}:
            index = next(i for i, (who, _) in enumerate(found.computing) if who != name)
            found.complete(index)
            for pair, queue in found.flying.items():
                while pair[1] == SERVER and queue:
                    found.deliver(*pair)
    found.happen(SERVER, events[how])
    found.gone.add(name)
    found.server.state.away.add(name)
    found.computing = [item for item in found.computing if item[0] != name]
    found.run()
    ((_, total, names),) = found.sums
    assert names == (("node-0", "node-2", "node-3") if step <= Phase.MASK else found.names)
    np.testing.assert_array_equal(total, found.plain(0, names))
    assert found.server.state.unanswered == (1 if step <= Phase.MASK else 0)


def test_a_withdrawal_from_an_older_round_is_none() -> None:
    found = until(unit(), Phase.ANNOUNCE, round=1)
    waiting = set(found.server.state.waiting)
    found.happen(SERVER, Received("node-0", Withdrawn(0)))
    assert found.server.state.waiting == waiting


def test_agents_that_are_away_when_a_step_begins_are_not_asked() -> None:
    found = until(unit(), Phase.SHARE)
    effects: list[Any] = []
    for name, task in sorted(found.computing, key=lambda item: item[0], reverse=True):
        found.server.state.away |= {"node-2"} if name == "node-0" else set()  # after it has replied
        reply = MaskingReply(0, 1, found.sides[name].admit(task).answer().released)
        effects = found.server.handle(Received(name, reply), 0.0)
    assert sent(effects, MaskingRequest) == ["node-0", "node-1", "node-3"]
    assert found.server.state.waiting == {"node-0", "node-1", "node-3"}
    assert any(isinstance(effect, SetTimer) for effect in effects)


def test_a_server_that_comes_back_asks_again_with_the_same_words() -> None:
    for step in range(5):
        found = until(unit(), step)
        first = {name: found.server.state.asked.get(name) for name in found.names}
        effects = found.server.handle(Resumed(3.0), 0.0)
        asked = [effect for effect in effects if isinstance(effect, Send)]
        assert [effect.to for effect in asked] == sorted(found.names)
        for effect in asked:
            if step == 0:
                assert isinstance(effect.message, Assignment)
            else:
                assert effect.message == MaskingRequest(0, step, first[effect.to])


def test_below_the_minimum_a_round_has_no_sum_and_says_so() -> None:
    found = unit(rounds=1, minimum=4)
    until(found, Phase.MASK)
    effects = found.server.handle(Received("node-0", Declined()), 0.0)
    for name in ("node-1", "node-2"):
        effects += found.server.handle(PeerDown(name, "gone"), 0.0)
    effects += found.server.handle(Elapsed("agents"), 0.0)
    assert [effect for effect in effects if isinstance(effect, Record)] == [Record("masked_sum_refused", 0.0)]
    assert found.sums == [(0, None, ())]
    assert found.server.state.unanswered == 4
    assert found.server.state.sums_refused == 1


@pytest.mark.parametrize("liars", [("node-0",), ("node-3",), ("node-0", "node-2")])
def test_a_wrong_share_is_left_out_and_too_many_are_no_sum(liars: tuple[str, ...]) -> None:
    """Three of four right ones are enough; with two, all that is learnt is that there is no sum."""
    found = until(unit(rounds=1), Phase.REVEAL)
    for name, task in list(found.computing):
        answer = found.sides[name].admit(task).answer().released
        values = answer.values.copy()
        if name in liars:
            values[-5] ^= 1
        found.happen(SERVER, Received(name, MaskingReply(0, 4, Public(values))))
    if len(liars) == 1:
        ((_, total, names),) = found.sums
        assert names == found.names
        np.testing.assert_array_equal(total, found.plain(0, names))
    else:
        assert found.sums == [(0, None, ())]
        assert found.server.state.unanswered == 4
        assert found.server.w.values.tolist() == found.initial.values.tolist()


# What an agent does


def test_an_agent_listens_to_its_server_alone() -> None:
    found = until(unit(), Phase.SHARE)
    request = MaskingRequest(0, 1, found.server.state.asked["node-0"])
    refused(found, "node-0", "node-1", request, "node-1 may send node-0 no MaskingRequest")
    bad = MaskingRequest(0, 1, Public(np.zeros(9, np.uint8)))
    refused(found, "node-0", SERVER, bad, "unknown tag")
    for step in (0, 5, -1):
        refused(found, "node-0", SERVER, MaskingRequest(0, step, request.content), "no message belongs to step")


def test_requests_of_other_rounds_and_earlier_steps_have_been_given_up() -> None:
    found = until(unit(), Phase.MASK)
    early = MaskingRequest(0, 1, Public(Blank(8, np.uint8)))
    assert found.nodes["node-0"].handle(Received(SERVER, early), 0.0) == []
    other = MaskingRequest(1, 2, found.server.state.asked["node-0"])
    assert found.nodes["node-0"].handle(Received(SERVER, other), 0.0) == []


def test_what_an_agent_is_asked_twice_it_answers_twice() -> None:
    """An assignment that comes again does not send it back to its update."""
    found = until(unit(), Phase.SHARE)
    (task,) = [task for name, task in found.computing if name == "node-0"]
    request = MaskingRequest(0, 1, found.server.state.asked["node-0"])
    for again in (request, Assignment(0, found.initial)):
        found.nodes["node-0"].handle(Answered(task.id, Public(np.ones(3, np.uint8))), 0.0)
        assert found.nodes["node-0"].handle(Received(SERVER, again), 0.0) == [Compute(task)]


def test_an_agent_whose_data_side_refuses_withdraws() -> None:
    found = until(unit(), Phase.SHARE)
    (task,) = [task for name, task in found.computing if name == "node-0"]
    effects = found.nodes["node-0"].handle(Answered(task.id, REFUSED), 0.0)
    assert effects == [Send(SERVER, Withdrawn(0))]
    assert found.nodes["node-0"].handle(Answered(task.id, REFUSED), 0.0) == []  # once


def test_an_agent_whose_budget_is_spent_declines() -> None:
    found = until(unit(), Phase.MASK)
    (task,) = [task for name, task in found.computing if name == "node-0"]
    effects = found.nodes["node-0"].handle(Refused(task.id, 1), 0.0)
    assert effects[0] == Send(SERVER, Declined())
    request = MaskingRequest(0, 2, found.server.state.asked["node-0"])
    assert found.nodes["node-0"].handle(Received(SERVER, request), 0.0) == [Send(SERVER, Declined())]


def test_an_agent_that_comes_back_does_its_step_again() -> None:
    for step in range(1, 5):
        found = until(unit(), step)
        (task,) = [task for name, task in found.computing if name == "node-0"]
        assert found.nodes["node-0"].handle(Resumed(1.0), 0.0) == [Compute(task)]
        found.nodes["node-0"].handle(Stop("enough"), 0.0)
        assert found.nodes["node-0"].handle(Resumed(1.0), 0.0) == []


def test_answers_to_what_was_not_asked_do_nothing() -> None:
    found = until(unit(), Phase.SHARE)
    node = found.nodes["node-0"]
    for task in (MaskingStep(0, 0, REFUSED, 0), MaskingStep(1, 1, REFUSED, 0), MaskingStep(0, 2, REFUSED, 0)):
        assert node.handle(Answered(task.id, Public(np.ones(4, np.uint8))), 0.0) == []
    assert node.handle(Answered(0, REFUSED), 0.0) == []  # the update's, which has long been there


def test_no_update_and_no_secret_is_in_a_nodes_state() -> None:
    """The agent's vector, as floats or as integers, is nowhere in what nodes store and send."""
    found = unit(rounds=1)
    needles = []
    for name in found.names:
        update = found.update(name, 0)
        needles += [update.tobytes(), found.unit.encode(update).tobytes()]
    while not found.server.state.finished:
        found.step()
        stored = b"".join(encode(state_of(node)) for node in found.nodes.values())
        flying = b"".join(data for queue in found.flying.values() for data in queue)
        assert not any(needle in stored + flying for needle in needles)


# Messages without content


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    "vanish", [{}, {2: Phase.SHARE}, {1: Phase.MASK, 5: Phase.CONFIRM}, {3: Phase.MASK, 4: Phase.MASK}]
)
def test_sizes_follow_from_how_many_agents_there_are(vanish: dict[int, Phase], signed: bool) -> None:
    """Whatever the keys, and whoever vanishes: a blank sum has messages of the same sizes as a real one."""
    group = Group(6, 7, 64, signed=signed)
    conversation = Conversation(group)
    real, blank = MaskingServer(group, 0), MaskingServer(group, 0, total=Blank(7, np.uint64))
    speakers = 0
    while conversation.step < Phase.DONE:
        step = conversation.step
        conversation.speak(lambda agent, step=step: vanish.get(agent, Phase.DONE) <= step)  # type: ignore[misc]
        assert len(conversation.outbox) >= group.minimum
        for number, message in conversation.outbox.items():
            content = message.values if step == Phase.MASK else packed(message)
            assert content.nbytes == reply_bytes(group, step, speakers)
            double: Any = Masked if step == Phase.MASK else Public
            real.take(number, content)
            blank.take(number, double(Blank(content.size, content.values.dtype)))
        if step < Phase.REVEAL:
            requests, blanks = ({a: packed(one) for a, one in of.advance().items()} for of in (real, blank))
            assert {a: r.nbytes for a, r in requests.items()} == {a: r.nbytes for a, r in blanks.items()}
            kind = REQUESTS[step + 1]
            first = next(iter(requests.values()))
            assert packed_size(kind, agents_in(kind, first.size, signed=signed), signed=signed) == first.size
            if step + 1 in (Phase.SHARE, Phase.MASK):
                speakers = agents_in(kind, first.size, signed=signed) + (step + 1 == Phase.MASK)
        assert blank.survivors == real.survivors
        conversation.deliver()
    total = real.unmask()
    assert total is not None
    assert total.agents == real.survivors
    assert blank.unmask() is None


def test_a_blank_sum_is_refused_when_a_real_one_is() -> None:
    group = Group(6, 7)
    blank = MaskingServer(group, 0, total=Blank(7, np.uint32))
    for number in (1, 2, 3):
        blank.take(number, Public(Blank(packed_size(REPLIES[0], 1), np.uint8)))
    with pytest.raises(TooFewAgents, match="a masked sum needs 4 agents and 3 are left at step announce of round 0"):
        blank.advance()
    with pytest.raises(PeerError, match="agent 4 sent 7 bytes at step 0"):
        blank.take(4, Public(Blank(7, np.uint8)))
    with pytest.raises(TooFewAgents):
        replace(blank, step=Phase.REVEAL, received=dict.fromkeys((1, 2, 3)), survivors=(1, 2, 3, 4)).unmask()


def test_null_data_sides_answer_with_blanks_of_the_right_kind() -> None:
    sides = BlankSides()
    masked = MaskingStep(0, 2, REFUSED, 7, 64)
    shared = MaskingStep(0, 1, REFUSED, 9)
    answers = sides.compute([sides.admit("node-0", masked), sides.admit("node-0", shared)])
    assert [type(answer.released) for answer in answers] == [Masked, Public]
    assert [answer.released.nbytes for answer in answers] == [56, 9]
    assert sides.releases("node-0") == 0
    assert masked.steps == 0
    assert not isinstance(answers[0].released, Released)


# Settings


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"bits": 64}, "bits belongs to secure, found none"),
        ({"bits": 64, "radius": 3}, "bits and radius belong to secure, found none"),
        ({"name": "secure", "bits": 16}, "Input should be 32 or 64"),
        ({"name": "secure", "threshold": 1}, "greater than or equal to 2"),
    ],
)
def test_settings_belong_together(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Masking.model_validate(given)


def test_settings_of_a_group() -> None:
    found = Masking(name="secure").unit("unit", 1.0, 9, 3)
    assert (found.group.bits, found.group.threshold, found.group.minimum) == (32, 6, 6)
    found = Masking(name="secure", bits=64, threshold=5, minimum=6, fraction_bits=20).unit("unit", 1.0, 9, 3)
    assert (found.group.bits, found.group.threshold, found.group.minimum) == (64, 5, 6)
    assert found.fixed.fraction_bits == 20


def test_a_unit_that_cannot_mask_is_refused_at_the_start() -> None:
    with pytest.raises(SpecError, match="masks need 2 to"):
        unit(agents=1)
    with pytest.raises(SpecError, match="more than half of the 4 agents"):
        unit(threshold=2)


def test_who_is_back_takes_part_in_the_next_round() -> None:
    found = unit(rounds=2)
    found.happen(SERVER, PeerDown("node-1", "silent"))
    found.happen(SERVER, PeerUp("node-1"))
    found.run()
    assert [names for _, _, names in found.sums] == [("node-0", "node-2", "node-3"), found.names]


def test_who_is_heard_and_acknowledges_nothing_holds_up_no_sum() -> None:
    """What it said before it was given up arrives, and a session says once more that it is lost."""
    found = unit(rounds=2)
    name = "node-1"
    found.happen(SERVER, PeerDown(name, "silent"))
    while not (said := found.flying.get((name, SERVER))):
        assert found.step()
    while said:
        found.deliver(name, SERVER)
    found.happen(SERVER, PeerDown(name, "silent"))
    found.gone.add(name)
    found.run()
    assert [names for _, _, names in found.sums] == [("node-0", "node-2", "node-3")] * 2


def test_masks_take_no_time() -> None:
    """In a simulation where updates take random times and messages none, rounds end when they do without masks."""
    ends = []
    for masking in ("none", "secure"):
        settings = Settings(units=2, agents=3, rounds=4, noise="none", gradient_at="hidden", masking=masking)
        names = tuple(f"node-{number}" for number in range(6))
        query = Query(Poisson(0.5), NoNoise(1.0), 4.0)
        context = Context(
            seed=1,
            names=names,
            graph=build_graph(settings.topology, 2, stream(2), ("server-0", "server-1")),
            initial=Public(Blank(5, np.float32)),
            queries=dict.fromkeys(names, query),
            shard_sizes=dict.fromkeys(names, 8),
        )
        nodes = graph_federated.build(settings, context)
        units = graph_federated.cast(settings, names).trust
        world = World(
            SpeedSettings(name="lognormal"), LinkSettings(latency=0.0), servers=("server-0", "server-1"), units=units
        )
        simulator = Simulator(nodes, BlankSides(), world)
        while not simulator.settled:
            simulator.step()
        ends.append(simulator.elapsed)
        assert {node.state.round for name, node in nodes.items() if name in world.servers} == {4}
    assert ends[0] == ends[1] > 0


def test_a_reply_before_the_server_starts_does_nothing() -> None:
    found = unit()
    fresh = found.fresh(SERVER)
    reply = MaskingReply(0, 0, announcements(found)["node-0"])
    assert fresh.handle(Received("node-0", reply), 0.0) == []


@pytest.mark.parametrize("step", [Phase.SHARE, Phase.MASK, Phase.CONFIRM])
def test_all_updates_of_a_refused_sum_are_given_up(step: Phase) -> None:
    """Three reply, the fourth declines, and four are needed; at the end three answers are, and two come."""
    found = until(unit(rounds=1, minimum=4), step)
    gone = ("node-3",) if step < Phase.CONFIRM else ("node-2", "node-3")
    for name, task in list(found.computing):
        if name not in gone:
            reply = MaskingReply(0, step, found.sides[name].admit(task).answer().released)
            found.happen(SERVER, Received(name, reply))
    for name in gone:
        found.happen(SERVER, Received(name, Declined()))
    assert found.sums == [(0, None, ())]
    assert found.server.state.unanswered == 4
    assert found.records == [Record("masked_sum_refused", float(4 - len(gone)))]


def test_agents_that_have_declined_since_they_replied_are_not_asked() -> None:
    found = until(unit(), Phase.SHARE)
    effects: list[Any] = []
    for name, task in sorted(found.computing, key=lambda item: item[0], reverse=True):
        if name == "node-0":
            found.happen(SERVER, Received("node-2", Declined()))
        reply = MaskingReply(0, 1, found.sides[name].admit(task).answer().released)
        effects = found.server.handle(Received(name, reply), 0.0)
    assert sent(effects, MaskingRequest) == ["node-0", "node-1", "node-3"]


def test_when_nobody_is_left_to_ask_the_round_is_over() -> None:
    found = until(unit(rounds=1), Phase.SHARE)
    *first, last = found.computing
    for name, task in first:
        reply = MaskingReply(0, 1, found.sides[name].admit(task).answer().released)
        found.happen(SERVER, Received(name, reply))
    found.server.state.away |= set(found.names)
    name, task = last
    found.happen(SERVER, Received(name, MaskingReply(0, 1, found.sides[name].admit(task).answer().released)))
    assert found.sums == [(0, None, ())]
    assert found.server.state.unanswered == 4


def test_a_sum_takes_masked_vectors_when_it_waits_for_them_and_only_then() -> None:
    found = until(unit(), Phase.MASK)
    with pytest.raises(PeerError, match="agent 1 sent a vector that is not masked"):
        found.server.state.sum.take(1, Public(np.zeros(3, np.uint32)))
    with pytest.raises(PeerError, match="agent 1 sent a masked vector at step 0"):
        MaskingServer(found.unit.group, 0).take(1, Masked(np.zeros(3, np.uint32)))
