"""Clients, server and aggregators of `increasing`, event by event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.context import Context
from gossamer.algorithms.increasing import box as increasing
from gossamer.algorithms.increasing.server import (
    MOST_AHEAD,
    SERVER,
    Alone,
    GlobalModel,
    Halt,
    Join,
    Leave,
    RoundUpdate,
)
from gossamer.algorithms.nodes import Probe
from gossamer.errors import PeerError, SpecError
from gossamer.privacy.mechanisms import FixedSize, NoNoise, Poisson
from gossamer.privacy.tasks import Query, Round
from gossamer.protocol.effects import Compute, Effect, Finish, Interrupt, Send, SetTimer, Update
from gossamer.protocol.events import (
    Completed,
    Elapsed,
    PeerDown,
    PeerUp,
    Received,
    Refused,
    Resumed,
    Started,
    Stop,
)
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public, Released

SIZE = 4
ZERO = np.zeros(SIZE)
RATE = 0.5


def context(nodes: int, **changes: Any) -> Context:
    names = tuple(f"node-{i}" for i in range(nodes))
    fields: dict[str, Any] = {
        "seed": 0,
        "names": names,
        "graph": Graph(nodes, np.empty((0, 2), int)),
        "initial": Public(ZERO),
        "queries": dict.fromkeys(names, Query(Poisson(0.5), NoNoise(), 1.0)),
        "shard_sizes": dict.fromkeys(names, 100),
        "quotas": dict.fromkeys(names, 5),
    }
    return Context(**{**fields, **changes})


def build(nodes: int = 2, known: Context | None = None, **options: Any) -> dict[str, Node]:
    options = {"sizes": 8, "learning_rate": RATE, **options}
    return increasing.build(increasing.Settings(nodes=nodes, **options), known or context(nodes))


def started(node: Node) -> Round:
    (compute,) = of(Compute, node.handle(Started(), 0.0))
    return compute.task


def of(kind: type[Effect], effects: list[Effect]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(effects: list[Effect], kind: type[Message]) -> list[tuple[str, Any]]:
    return [(e.to, e.message) for e in of(Send, effects) if isinstance(e.message, kind)]


def one(value: float) -> Released:
    return Released(np.full(SIZE, value))


def ones(model: Any) -> float:
    """The number that all of a model's coordinates are."""
    assert np.ptp(model.values) < 1e-12
    return float(model.values[0])


class TestClient:
    def node(self, **options: Any) -> Node:
        return build(**{"delay": {"rule": "rounds", "d": 3}, **options})["node-0"]

    def test_a_round_starts_where_the_last_one_ended(self) -> None:
        """w^ = w^ - eta_i (U + n): with U = 3 and eta = 1/2 the next round is at -1.5."""
        node = self.node()
        task = started(node)
        effects = node.handle(Completed(task.id, one(3.0), task.steps), 1.0)
        ((to, update),) = sent(effects, RoundUpdate)
        assert (to, update.first, update.round, update.rounds) == (SERVER, 0, 0, 1)
        assert ones(update.step) == 1.5
        (following,) = of(Compute, effects)
        assert ones(following.task.swaps[0].model) == -1.5

    def test_own_updates_that_the_model_lacks_are_kept(self) -> None:
        """Round 0 is on its way, round 1 overtook it: v = 10 holds round 1 only."""
        node = self.node()
        effects = node.handle(Completed(started(node).id, one(2.0), 4), 1.0)
        for value in (4.0, 8.0):
            (compute,) = of(Compute, effects)
            effects = node.handle(Completed(compute.task.id, one(value), 4), 2.0)
        (running,) = of(Compute, effects)
        assert ones(running.task.swaps[0].model) == -7.0
        newer = GlobalModel(1, 0, 0b1, Public(np.full(SIZE, 10.0)))
        (update,) = of(Update, node.handle(Received(SERVER, newer), 3.0))
        assert update.task == running.task.id
        assert ones(update.model) == 10.0 - 1.0 - 4.0

    def test_isr_receive_as_it_is_printed(self) -> None:
        """w^ = v - eta_i U: of v = 10, which lacks rounds 0 and 2, nothing is taken off but the round's U."""
        node = self.node(receive="printed")
        effects = node.handle(Completed(started(node).id, one(2.0), 4), 1.0)
        for value in (4.0, 8.0):
            (compute,) = of(Compute, effects)
            effects = node.handle(Completed(compute.task.id, one(value), 4), 2.0)
        (running,) = of(Compute, effects)
        assert ones(running.task.swaps[0].model) == -7.0  # until then w^ goes on from where it was
        newer = GlobalModel(1, 0, 0b1, Public(np.full(SIZE, 10.0)))
        (update,) = of(Update, node.handle(Received(SERVER, newer), 3.0))
        assert ones(update.model) == 10.0
        (following,) = of(Compute, node.handle(Completed(running.task.id, one(2.0), 4), 4.0))
        assert ones(following.task.swaps[0].model) == 10.0 - 1.0

    def test_older_and_repeated_models_change_nothing(self) -> None:
        node = self.node()
        started(node)
        node.handle(Received(SERVER, GlobalModel(2, 0, 0, Public(np.full(SIZE, 5.0)))), 1.0)
        for k in (2, 1):
            again = GlobalModel(k, 0, 0, Public(np.full(SIZE, 6.0)))
            assert not node.handle(Received(SERVER, again), 2.0)
        assert ones(increasing.model_of(node)) == 5.0

    def test_it_waits_within_a_round(self) -> None:
        """tau(t) = 10 and rounds of 8 + 8: t_delay = 8 (i - k + 1) + 4 + h is below 10 at h < 2 for i = k + ..."""
        tau = {"name": "power", "constant": 14, "factor": 0, "exponent": 0}
        node = build(delay={"rule": "tau", "tau": tau})["node-0"]
        task = started(node)
        assert (task.steps, task.until) == (4, 4)
        effects = node.handle(Completed(task.id, one(0.0), 4), 1.0)
        (compute,) = of(Compute, effects)
        assert compute.task.until == 2
        (update,) = of(Update, node.handle(Received(SERVER, GlobalModel(1, 1, 0, Public(ZERO))), 2.0))
        assert update.until == 4

    def test_nobody_is_further_ahead_than_one_integer_tells(self) -> None:
        known = context(2, quotas=None)
        node = build(known=known, delay={"rule": "rounds", "d": 1000})["node-0"]
        effects, rounds = node.handle(Started(), 0.0), 0
        while computes := of(Compute, effects):
            effects = node.handle(Completed(computes[0].task.id, one(0.0), 4), 1.0)
            rounds += 1
        assert rounds == MOST_AHEAD + 1

    def test_the_last_round_is_followed_by_leave(self) -> None:
        node = self.node(delay={"rule": "rounds", "d": 9})
        effects = node.handle(Started(), 0.0)
        while computes := of(Compute, effects):
            effects = node.handle(Completed(computes[0].task.id, one(0.0), 4), 1.0)
        assert sent(effects, Leave) == [(SERVER, Leave(5))]
        assert [finish.reason for finish in of(Finish, effects)] == ["quota"]

    def test_who_is_stopped_hands_in_what_is_done(self) -> None:
        node = self.node()
        task = started(node)
        assert of(Interrupt, node.handle(Stop("maintenance"), 1.0)) == [Interrupt(task.id)]
        effects = node.handle(Completed(task.id, one(2.0), 3), 1.0)
        assert sent(effects, RoundUpdate) == [(SERVER, RoundUpdate(0, 0, 1, one(1.0)))]
        assert sent(effects, Leave) == [(SERVER, Leave(1))]
        assert not of(Compute, effects)

    def test_noise_alone_is_not_sent(self) -> None:
        node = self.node()
        task = started(node)
        node.handle(Stop("maintenance"), 1.0)
        effects = node.handle(Completed(task.id, one(2.0), 0), 1.0)
        assert not sent(effects, RoundUpdate)
        assert sent(effects, Leave) == [(SERVER, Leave(0))]

    def test_who_comes_back_goes_on_at_the_round_of_the_others(self) -> None:
        node = self.node()
        started(node)
        effects = node.handle(Resumed(10.0), 20.0)
        assert sent(effects, Join) == [(SERVER, Join())]
        (again,) = of(Compute, effects)
        node.handle(Received(SERVER, GlobalModel(4, 0, 0, Public(np.full(SIZE, 9.0)))), 21.0)
        effects = node.handle(Completed(again.task.id, one(2.0), 4), 22.0)
        assert sent(effects, RoundUpdate) == [(SERVER, RoundUpdate(0, 0, 1, one(1.0)))]
        (following,) = of(Compute, effects)
        assert ones(following.task.swaps[0].model) == 8.0
        effects = node.handle(Completed(following.task.id, one(2.0), 4), 23.0)
        assert sent(effects, RoundUpdate) == [(SERVER, RoundUpdate(1, 4, 1, one(1.0)))]

    def test_the_end_of_the_run_ends_its_round(self) -> None:
        node = self.node()
        task = started(node)
        effects = node.handle(Received(SERVER, Halt(3, Public(np.full(SIZE, 2.0)))), 1.0)
        assert of(Interrupt, effects) == [Interrupt(task.id)]
        assert [finish.reason for finish in of(Finish, effects)] == ["halt"]
        assert not node.handle(Completed(task.id, one(7.0), 1), 1.0)
        assert ones(increasing.model_of(node)) == 2.0

    def test_the_last_model_is_the_servers_alone(self) -> None:
        """What v lacked of one's own updates is not taken off the run's result."""
        node = self.node()
        task = started(node)
        node.handle(Completed(task.id, one(2.0), 4), 1.0)
        node.handle(Received(SERVER, Halt(3, Public(np.full(SIZE, 2.0)))), 2.0)
        assert ones(increasing.model_of(node)) == 2.0

    def test_the_answer_to_a_lost_round_is_ignored(self) -> None:
        node = self.node()
        lost = started(node)
        (again,) = of(Compute, node.handle(Resumed(1.0), 2.0))
        assert not node.handle(Completed(lost.id, one(2.0), 4), 3.0)
        assert sent(node.handle(Completed(again.task.id, one(2.0), 4), 4.0), RoundUpdate)

    def test_a_spent_budget_ends_its_rounds(self) -> None:
        node = self.node()
        task = started(node)
        effects = node.handle(Refused(task.id, 0), 1.0)
        assert sent(effects, Leave) == [(SERVER, Leave(0))]

    @pytest.mark.parametrize(
        "message", [GlobalModel(1, 0, 0, Public(ZERO)), Halt(1, Public(ZERO)), Probe()], ids=lambda m: type(m).__name__
    )
    def test_only_the_server_is_listened_to(self, message: Message) -> None:
        node = self.node()
        with pytest.raises(PeerError, match="node-1 may send "):
            node.handle(Received("node-1", message), 0.0)

    @pytest.mark.parametrize("k", [-1, 67, 10**9])
    def test_more_rounds_than_the_run_has_are_refused(self, k: int) -> None:
        node = self.node()
        started(node)
        with pytest.raises(PeerError, match="more than this run can have"):
            node.handle(Received(SERVER, GlobalModel(k, 0, 0, Public(ZERO))), 1.0)

    def test_rounds_that_outgrow_the_shard_are_refused(self) -> None:
        """Of the rounds of 4 + 10 i steps, with 100 examples, 9 is the last: k = 10 may be, and k = 11 not."""
        known = context(2, quotas=None)
        for k, fine in ((10, True), (11, False)):
            node = build(known=known, sizes={"name": "power", "a": 20, "b": 8})["node-0"]
            started(node)
            news = Received(SERVER, GlobalModel(k, 0, 0, Public(ZERO)))
            if fine:
                assert of(Update, node.handle(news, 1.0))
            else:
                with pytest.raises(PeerError, match="more than this run can have"):
                    node.handle(news, 1.0)

    def test_a_round_goes_on_freely_once_the_others_are_ahead(self) -> None:
        tau = {"name": "power", "constant": 14, "factor": 0, "exponent": 0}
        node = build(delay={"rule": "tau", "tau": tau})["node-0"]
        started(node)
        (update,) = of(Update, node.handle(Received(SERVER, GlobalModel(5, 0, 0, Public(ZERO))), 1.0))
        assert update.until == 4

    def test_a_round_takes_its_sample_for_all_of_its_steps(self) -> None:
        known = context(2, queries=dict.fromkeys(("node-0", "node-1"), Query(FixedSize(100, 1), NoNoise(), 1.0)))
        task = started(build(known=known, sizes=20)["node-0"])
        assert task.query.sampling == FixedSize(100, 10)
        assert task.steps == 10

    def test_rounds_have_sizes_and_step_sizes_of_their_own(self) -> None:
        queries = dict.fromkeys(("node-0", "node-1"), Query(Poisson(0.5), NoNoise(), 8.0))
        rate = {"schedule": "diminishing2", "initial": 1.0, "beta": 1.0}
        node = build(known=context(2, queries=queries), sizes={"name": "power", "a": 4, "b": 8}, learning_rate=rate)
        first = started(node["node-0"])
        effects = node["node-0"].handle(Completed(first.id, one(1.0), 4), 1.0)
        (second,) = (compute.task for compute in of(Compute, effects))
        assert (first.steps, second.steps) == (4, 6)
        assert second.query == Query(Poisson(0.06), NoNoise(), 1.0)
        assert (first.step_sizes.first, second.step_sizes.first) == (1.0, 1 / 9)
        assert ones(second.swaps[0].model) == -1.0


class TestServer:
    def test_updates_are_applied_in_any_order_and_once(self) -> None:
        server = build(3)[SERVER]
        for sender, i in [("node-1", 1), ("node-0", 0), ("node-1", 1), ("node-1", 0), ("node-0", 0)]:
            assert not sent(server.handle(Received(sender, RoundUpdate(i, i, 1, one(1.0))), 0.0), GlobalModel)
        assert ones(server.state.v) == -3.0
        effects = server.handle(Received("node-2", RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        told = dict(sent(effects, GlobalModel))
        assert {name: (news.k, news.held, news.ahead) for name, news in told.items()} == {
            "node-0": (1, 1, 0),
            "node-1": (1, 2, 0),
            "node-2": (1, 1, 0),
        }
        assert all(ones(news.model) == -4.0 for news in told.values())

    def test_it_tells_of_rounds_beyond_one_that_it_lacks(self) -> None:
        server = build(2)[SERVER]
        for sender, i in [("node-0", 1), ("node-0", 3), ("node-1", 0)]:
            server.handle(Received(sender, RoundUpdate(i, i, 1, one(1.0))), 0.0)
        news = server.news("node-0")
        assert (news.held, news.ahead) == (0, 0b101)

    def test_several_rounds_may_be_complete_at_once(self) -> None:
        server = build(2)[SERVER]
        for sender, i in [("node-0", 0), ("node-0", 1), ("node-1", 1)]:
            server.handle(Received(sender, RoundUpdate(i, i, 1, one(1.0))), 0.0)
        effects = server.handle(Received("node-1", RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        assert {news.k for _, news in sent(effects, GlobalModel)} == {2}

    def test_who_is_away_is_not_waited_for(self) -> None:
        server = build(2)[SERVER]
        server.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        effects = server.handle(PeerDown("node-1", "silent"), 1.0)
        assert [to for to, _ in sent(effects, GlobalModel)] == ["node-0"]
        effects = server.handle(PeerUp("node-1"), 2.0)
        assert [(to, news.k, news.held) for to, news in sent(effects, GlobalModel)] == [("node-1", 1, 0)]
        server.handle(Received("node-0", RoundUpdate(1, 1, 1, one(1.0))), 3.0)
        assert server.state.k == 1, "who is back is waited for"
        server.handle(Received("node-1", RoundUpdate(0, 1, 1, one(1.0))), 4.0)
        assert (server.state.k, server.state.held["node-1"]) == (2, 2)

    def test_who_was_away_for_a_moment_only_is_waited_for(self) -> None:
        server = build(3)[SERVER]
        server.handle(PeerDown("node-0", "silent"), 0.0)
        server.handle(PeerUp("node-0"), 1.0)
        for name in ("node-1", "node-2"):
            server.handle(Received(name, RoundUpdate(0, 0, 1, one(1.0))), 2.0)
        assert server.state.k == 0

    def test_rounds_beyond_one_that_never_comes_do_not_lead_on_for_ever(self) -> None:
        """node-0 went away after its round 1 came and its round 0 did not; nobody has made round 2."""
        server = build(2)[SERVER]
        server.handle(Received("node-0", RoundUpdate(1, 1, 1, one(1.0))), 0.0)
        server.handle(Received("node-1", RoundUpdate(0, 0, 1, one(1.0))), 1.0)
        server.handle(PeerDown("node-0", "silent"), 2.0)
        server.handle(PeerDown("node-1", "silent"), 2.0)
        assert server.state.k == 2

    def test_a_late_update_of_who_was_away_still_counts(self) -> None:
        server = build(2)[SERVER]
        server.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        server.handle(PeerDown("node-1", "silent"), 1.0)
        server.handle(Received("node-1", RoundUpdate(0, 0, 1, one(1.0))), 2.0)
        assert ones(server.state.v) == -2.0

    def test_who_was_away_for_very_long_is_counted_again(self) -> None:
        """Its update of round 200 comes before that of round 0, which is given up: one number cannot tell both."""
        server = build(2)[SERVER]
        server.handle(PeerDown("node-1", "silent"), 0.0)
        for i in range(200):
            server.handle(Received("node-0", RoundUpdate(i, i, 1, one(0.0))), 1.0)
        server.handle(PeerUp("node-1"), 2.0)
        server.handle(Received("node-1", RoundUpdate(1, 200, 1, one(1.0))), 3.0)
        server.handle(Received("node-0", RoundUpdate(200, 200, 1, one(0.0))), 4.0)
        assert server.state.k == 201
        server.handle(Received("node-1", RoundUpdate(0, 0, 1, one(1.0))), 5.0)
        assert ones(server.state.v) == -1.0
        news = server.news("node-1")
        assert (news.held, news.ahead) == (201, 0)

    def test_who_leaves_is_waited_for_up_to_its_last_round(self) -> None:
        server = build(2)[SERVER]
        server.handle(Received("node-1", Leave(1)), 0.0)
        server.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 1.0)
        assert server.state.k == 0
        server.handle(Received("node-1", RoundUpdate(0, 0, 1, one(1.0))), 2.0)
        assert server.state.k == 1
        effects = server.handle(Received("node-0", RoundUpdate(1, 1, 1, one(1.0))), 3.0)
        assert [(to, news.k) for to, news in sent(effects, GlobalModel)] == [("node-0", 2)]

    def test_when_all_have_left_everybody_gets_the_last_model(self) -> None:
        server = build(2)[SERVER]
        for name in ("node-0", "node-1"):
            server.handle(Received(name, RoundUpdate(0, 0, 1, one(1.0))), 0.0)
            effects = server.handle(Received(name, Leave(1)), 1.0)
        assert [(to, halt.k, ones(halt.model)) for to, halt in sent(effects, Halt)] == [
            ("node-0", 1, -2.0),
            ("node-1", 1, -2.0),
        ]
        assert of(Finish, effects)

    def test_the_end_waits_for_what_those_who_left_have_sent(self) -> None:
        server = build(2)[SERVER]
        for name in ("node-0", "node-1"):
            effects = server.handle(Received(name, Leave(1)), 0.0)
        server.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 1.0)
        assert not sent(effects, Halt)
        assert not server.state.finished
        assert sent(server.handle(Received("node-1", RoundUpdate(0, 0, 1, one(1.0))), 1.0), Halt)

    def test_the_last_model_is_of_all_rounds(self) -> None:
        """Round 1 of one client is complete once the other has left, so k = 2 at the end."""
        server = build(2)[SERVER]
        server.handle(Received("node-1", Leave(0)), 0.0)
        server.handle(Received("node-0", RoundUpdate(1, 1, 1, one(1.0))), 1.0)
        server.handle(Received("node-0", Leave(2)), 2.0)
        effects = server.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 3.0)
        assert {halt.k for _, halt in sent(effects, Halt)} == {2}

    def test_an_aggregators_update_counts_for_all_that_are_in_it(self) -> None:
        nodes = build(4, aggregators=[2])
        nodes[SERVER].handle(Received("aggregator-1-0", RoundUpdate(0, 0, 2, one(1.0))), 0.0)
        assert increasing.count(nodes) == 2

    def test_an_aggregator_without_anybody_below_is_not_waited_for_until_somebody_is_back(self) -> None:
        """Its clients have sent nothing, and nobody but itself could find out that they are gone."""
        nodes = build(4, aggregators=[2])
        aggregator, server = nodes["aggregator-1-1"], nodes[SERVER]
        aggregator.handle(Started(), 0.0)
        server.handle(Received("aggregator-1-0", RoundUpdate(0, 0, 2, one(1.0))), 1.0)
        assert [to for to, _ in sent(aggregator.handle(Elapsed("probe"), 60.0), Probe)] == ["node-2", "node-3"]
        assert not sent(aggregator.handle(PeerDown("node-2", "silent"), 65.0), Alone)
        assert sent(aggregator.handle(PeerDown("node-3", "silent"), 65.0), Alone) == [(SERVER, Alone())]
        news = sent(server.handle(Received("aggregator-1-1", Alone()), 66.0), GlobalModel)
        assert [(to, item.k) for to, item in news] == [("aggregator-1-0", 1)]
        # Whoever takes it for somebody to wait for is told again, after its own restart too.
        broadcast = Received(SERVER, GlobalModel(1, 0, 0, one(-1.0)))
        assert sent(aggregator.handle(broadcast, 67.0), Alone) == [(SERVER, Alone())]
        assert sent(aggregator.handle(Resumed(1.0), 68.0), Alone) == [(SERVER, Alone())]
        assert sent(aggregator.handle(PeerUp("node-3"), 69.0), Join) == [(SERVER, Join())]
        server.handle(Received("aggregator-1-1", Join()), 70.0)
        assert not sent(server.handle(Received("aggregator-1-0", RoundUpdate(1, 1, 2, one(1.0))), 71.0), GlobalModel)

    def test_above_an_aggregator_that_is_alone_another_may_be_too(self) -> None:
        aggregator = build(4, aggregators=[1, 2])["aggregator-1-0"]
        aggregator.handle(Started(), 0.0)
        assert not sent(aggregator.handle(Received("aggregator-2-0", Leave(0)), 1.0), Alone)
        assert sent(aggregator.handle(Received("aggregator-2-1", Alone()), 1.0), Alone) == [(SERVER, Alone())]

    def test_so_many_updates_end_the_run(self) -> None:
        server = build(known=context(2, updates=2))[SERVER]
        server.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        effects = server.handle(Received("node-0", RoundUpdate(1, 1, 1, one(1.0))), 0.0)
        assert len(sent(effects, Halt)) == 2

    def test_the_deadline_ends_the_run_also_after_a_crash(self) -> None:
        server = build(known=context(2, deadline=10.0))[SERVER]
        assert SetTimer(10.0, "deadline") in server.handle(Started(), 5.0)
        assert SetTimer(6.0, "deadline") in server.handle(Resumed(2.0), 9.0)
        assert sent(server.handle(Elapsed("deadline"), 15.0), Halt)

    def test_after_a_while_those_who_are_waited_for_are_probed(self) -> None:
        server = build(3, patience=7.0)[SERVER]
        assert SetTimer(7.0, "probe") in server.handle(Started(), 0.0)
        assert not sent(server.handle(Elapsed("probe"), 7.0), Probe), "nobody waits yet"
        server.handle(Received("node-1", RoundUpdate(0, 0, 1, one(1.0))), 8.0)
        effects = server.handle(Elapsed("probe"), 14.0)
        assert [to for to, _ in sent(effects, Probe)] == ["node-0", "node-2"]

    def test_they_are_probed_ever_more_rarely_until_something_comes(self) -> None:
        server = build(2, patience=7.0)[SERVER]
        server.handle(Started(), 0.0)
        seconds = [of(SetTimer, server.handle(Elapsed("probe"), 0.0))[0].after for _ in range(12)]
        assert seconds == [7.0 * 2 ** min(n, 10) for n in range(1, 13)]
        server.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        assert SetTimer(14.0, "probe") in server.handle(Elapsed("probe"), 0.0)

    @pytest.mark.parametrize(
        "update",
        [
            RoundUpdate(1, 0, 1, one(1.0)),
            RoundUpdate(-1, 0, 1, one(1.0)),
            RoundUpdate(-1, -1, 1, one(1.0)),
            RoundUpdate(0, MOST_AHEAD + 1, 1, one(1.0)),
            RoundUpdate(0, 0, 0, one(1.0)),
            RoundUpdate(0, 0, 1000, one(1.0)),
            RoundUpdate(0, 0, 1, Released(np.zeros(SIZE + 1))),
        ],
    )
    def test_what_cannot_be_is_refused(self, update: RoundUpdate) -> None:
        with pytest.raises(PeerError):
            build(2)[SERVER].handle(Received("node-0", update), 0.0)

    def test_strangers_are_refused(self) -> None:
        server = build(2, aggregators=[1])[SERVER]
        for message in (RoundUpdate(0, 0, 1, one(1.0)), Join(), Leave(0)):
            with pytest.raises(PeerError, match="node-0 may send server no"):
                server.handle(Received("node-0", message), 0.0)


class TestAggregator:
    def nodes(self) -> dict[str, Node]:
        return build(4, aggregators=[2])

    def test_a_round_is_handed_on_as_one_update(self) -> None:
        above = self.nodes()["aggregator-1-0"]
        assert set(above.children) == {"node-0", "node-1"}
        above.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        above.handle(Received("node-0", RoundUpdate(1, 1, 1, one(10.0))), 0.0)
        effects = above.handle(Received("node-1", RoundUpdate(0, 0, 1, one(2.0))), 0.0)
        assert sent(effects, RoundUpdate) == [(SERVER, RoundUpdate(0, 0, 2, one(3.0)))]
        effects = above.handle(Received("node-1", RoundUpdate(1, 1, 1, one(20.0))), 0.0)
        assert sent(effects, RoundUpdate) == [(SERVER, RoundUpdate(1, 1, 2, one(30.0)))]

    def test_what_comes_too_late_goes_with_the_next_round(self) -> None:
        above = self.nodes()["aggregator-1-0"]
        above.handle(PeerDown("node-1", "silent"), 0.0)
        effects = above.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        assert sent(effects, RoundUpdate) == [(SERVER, RoundUpdate(0, 0, 1, one(1.0)))]
        above.handle(PeerUp("node-1"), 1.0)
        above.handle(Received("node-1", RoundUpdate(0, 0, 1, one(2.0))), 2.0)
        above.handle(Received("node-0", RoundUpdate(1, 1, 1, one(4.0))), 3.0)
        effects = above.handle(Received("node-1", RoundUpdate(1, 1, 1, one(8.0))), 4.0)
        assert sent(effects, RoundUpdate) == [(SERVER, RoundUpdate(1, 1, 3, one(14.0)))]

    def test_rounds_that_nobody_made_are_left_out(self) -> None:
        """Both children come back at round 3: those above learn that there are no rounds 1 and 2."""
        above = self.nodes()["aggregator-1-0"]
        for name in ("node-0", "node-1"):
            above.handle(Received(name, RoundUpdate(0, 0, 1, one(1.0))), 0.0)
        for name in ("node-0", "node-1"):
            effects = above.handle(Received(name, RoundUpdate(1, 3, 1, one(1.0))), 1.0)
        assert sent(effects, RoundUpdate) == [(SERVER, RoundUpdate(1, 3, 2, one(2.0)))]

    def test_a_broadcast_goes_on_with_what_it_holds_of_each_child(self) -> None:
        """node-2 has made rounds 0 to 2, and node-3 round 0: the model holds rounds 0, 1 of both together."""
        above = self.nodes()["aggregator-1-1"]
        for name, i in [("node-2", 0), ("node-2", 1), ("node-2", 2), ("node-3", 0)]:
            above.handle(Received(name, RoundUpdate(i, i, 1, one(1.0))), 0.0)
        above.handle(Received("node-3", RoundUpdate(1, 1, 1, one(1.0))), 0.0)
        newer = GlobalModel(1, 2, 0, Public(np.full(SIZE, 5.0)))
        told = dict(sent(above.handle(Received(SERVER, newer), 1.0), GlobalModel))
        assert {name: (news.k, news.held, news.ahead) for name, news in told.items()} == {
            "node-2": (1, 2, 0),
            "node-3": (1, 2, 0),
        }
        assert all(ones(news.model) == 5.0 for news in told.values())
        assert not above.handle(Received(SERVER, GlobalModel(0, 2, 0, Public(ZERO))), 2.0)
        ((_, news),) = sent(above.handle(Received("node-2", Join()), 3.0), GlobalModel)
        assert news == told["node-2"]

    def test_what_came_too_late_is_not_held_before_the_round_that_it_goes_with(self) -> None:
        above = self.nodes()["aggregator-1-0"]
        above.handle(PeerDown("node-1", "silent"), 0.0)
        above.handle(Received("node-0", RoundUpdate(0, 0, 1, one(1.0))), 0.0)  # handed on alone
        above.handle(PeerUp("node-1"), 1.0)
        above.handle(Received(SERVER, GlobalModel(1, 1, 0, Public(ZERO))), 1.0)
        assert above.news("node-1").held == 0, "it has not come"
        above.handle(Received("node-1", RoundUpdate(0, 0, 1, one(2.0))), 2.0)
        news = above.news("node-1")
        assert (news.held, news.ahead) == (0, 0), "it has come and not gone on"
        for name in ("node-0", "node-1"):
            above.handle(Received(name, RoundUpdate(1, 1, 1, one(4.0))), 3.0)
        above.handle(Received(SERVER, GlobalModel(2, 2, 0, Public(ZERO))), 4.0)
        news = above.news("node-1")
        assert (news.held, news.ahead) == (2, 0)
        assert above.state.late == {"node-1": ()}

    def test_when_its_children_have_left_it_leaves_but_stays_for_the_end(self) -> None:
        above = self.nodes()["aggregator-1-0"]
        for name in ("node-0", "node-1"):
            above.handle(Received(name, RoundUpdate(0, 0, 1, one(1.0))), 0.0)
            effects = above.handle(Received(name, Leave(1)), 1.0)
        assert sent(effects, Leave) == [(SERVER, Leave(1))]
        assert not of(Finish, effects)
        effects = above.handle(Received(SERVER, Halt(1, Public(ZERO))), 2.0)
        assert [to for to, _ in sent(effects, Halt)] == ["node-0", "node-1"]
        assert of(Finish, effects)

    def test_levels_are_dealt_out_evenly(self) -> None:
        chosen = increasing.Settings(nodes=7, aggregators=[2, 3])
        above = increasing.parents(chosen, [f"node-{i}" for i in range(7)])
        assert [above[f"node-{i}"][-1] for i in range(7)] == list("0001122")
        assert [above[f"aggregator-2-{i}"] for i in range(3)] == [f"aggregator-1-{i}" for i in (0, 0, 1)]
        assert {above["aggregator-1-0"], above["aggregator-1-1"]} == {SERVER}

    @pytest.mark.parametrize("levels", [[3, 2], [9], [0]])
    def test_levels_that_cannot_be_are_refused(self, levels: list[int]) -> None:
        with pytest.raises(ValueError, match="aggregators"):
            increasing.Settings(nodes=8, aggregators=levels)


class TestParts:
    def test_a_round_that_cannot_be_has_no_part(self) -> None:
        with pytest.raises(PeerError, match="rounds -1 to -1"):
            build(parts=2)[SERVER].handle(Received("node-0", RoundUpdate(-1, -1, 1, Released(np.ones(2)))), 0.0)

    def test_parts_are_public_and_all_are_chosen(self) -> None:
        """200 draws miss one of 4 parts with a chance of at most 4 (3/4)^200 < 1e-24."""
        chosen = increasing.Settings(nodes=2, parts=4)
        first, second = (increasing.PublicRounds(chosen, {"node-0": 100, "node-1": 100}, 3) for _ in range(2))
        parts = [first.where("node-0", i) for i in range(200)]
        assert parts == [second.where("node-0", i) for i in range(200)]
        assert {part.first for part in parts} == {0, 1, 2, 3}
        assert parts != [first.where("node-1", i) for i in range(200)]

    def test_only_the_part_is_sent(self) -> None:
        node = build(parts=2)["node-0"]
        task = started(node)
        effects = node.handle(Completed(task.id, Released(np.ones(2)), 4), 1.0)
        ((_, update),) = sent(effects, RoundUpdate)
        assert update.step.size == 2
        expected = np.zeros(SIZE)
        expected[task.where.slice] = -RATE
        np.testing.assert_array_equal(increasing.model_of(node).values, expected)

    def test_more_parts_than_parameters_are_refused(self) -> None:
        with pytest.raises(SpecError, match="parts"):
            build(parts=SIZE + 1)
