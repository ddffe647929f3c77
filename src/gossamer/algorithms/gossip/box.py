"""A(DP)2SGD: asynchronous decentralised SGD with differential privacy.

Every node k loops, waiting for nobody:

1. sample a batch;
2. g = sum of clipped gradients at the model w_hat it has *now*;
3. g~ = g + noise                                                (2 and 3 happen at the data side)
4. meanwhile average with a random neighbour: W' = W A, A doubly stochastic;
5. w_k <- w'_k - eta g~.

With ``privacy_unit: client`` a node is protected with all that it has: in line 2 g is the mean gradient, clipped as a
whole (`clients.whole`), or what a Flower app's client returns less what it was sent, with the other sign.

In step 4 the asker p sends its model and goes on. Whoever is asked, q, answers with its own model at once, whatever
it is doing, so nobody can deadlock. Both move the same share t of the difference of the two models *as exchanged*,
usually a half:

    asked:  w_q += t (offered - w_q)          asker:  w_p += t (answered - offered)

The two movements are exact opposites, so the sum over all nodes of models and of shares in flight is constant. An asker
that is itself asked before its answer comes exchanges only the part of its model that it has not promised (`exchange`),
so that no model ever has a negative share in another.

| symbol | here |
|---|---|
| w_k | `state.w` |
| eta | `Settings.learning_rate`; with `Settings.optimizer` line 5 takes its move in the place of g~ |
| A | pairwise averaging, on `Settings.topology` |
| T | quotas, a deadline, or an observer's cut |

References
----------
Xu, Zhang and Wang, "A(DP)2SGD: Asynchronous decentralized parallel SGD with differential privacy", Algorithm 1 and
Appendix A; Lian et al., "Asynchronous decentralized parallel SGD", ICML 2018.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from gossamer.algorithms.aggregation import Aggregation
from gossamer.algorithms.clients import settings as clients
from gossamer.algorithms.clients import whole
from gossamer.algorithms.compression import Compression
from gossamer.algorithms.context import Context, InFlight
from gossamer.algorithms.gossip.claims import COMMAND, Adp2sgdSetting, adp2sgd_theorem2
from gossamer.algorithms.gossip.exchange import Answer, Form, Offer, State
from gossamer.algorithms.interface import Algorithm, Cast, Clips, Figures, Terms, few, imported_when_used
from gossamer.algorithms.nodes import LearningNode, goes_by_all
from gossamer.algorithms.paired_noise import PairedSettings, check, paired_plan
from gossamer.algorithms.plan import Plan, Problem, Spec, least_noise, smallest_node
from gossamer.privacy.guarantees import Claim
from gossamer.protocol.effects import Compute, Record, Send
from gossamer.protocol.events import PeerDown, PeerUp
from gossamer.protocol.node import Effects, Node, on
from gossamer.randomness import Ahead, Hand, Stream
from gossamer.topology.graphs import DroppedEdges, Graph, bipartite_split
from gossamer.topology.kinds import Ring
from gossamer.topology.mixing import Matrix, pairwise_expectation
from gossamer.topology.topologies import Topology
from gossamer.vectors import Model


class Settings(PairedSettings, whole.WholeSettings):
    """Settings of `gossip`.

    Attributes
    ----------
    learning_rate : float or schedule
        eta, for the mean gradient, or the whole update of an app. By default 0.5, and 1 with ``privacy_unit: client``.
    topology : Topology
        Graph of who may exchange models with whom.
    exchange : {"any", "bipartite"}
        ``any``: every node asks. ``bipartite``: only one side of a two-colouring asks, as in the paper's Appendix A;
        edges inside a side are left out.
    aggregation : str or mapping, optional
        Robust rule for the two models of an exchange: ``centred_clipping``, by which each moves towards the other's
        only so far as ``radius`` says.
    compression : int or mapping, optional
        Bits of a number in messages, and the ``share`` of the numbers of a model that an exchange has.
    """

    name: Literal["gossip"] = "gossip"
    topology: Topology = Ring()
    exchange: Literal["any", "bipartite"] = "any"
    aggregation: Aggregation = None
    compression: Compression = None

    @classmethod
    def _implied(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"learning_rate": 1.0} if said.get("privacy_unit") == clients.CLIENT else {}

    def _problems(self) -> Iterator[str]:
        if self.aggregation is not None and self.aggregation.least > 2:
            yield (
                f"aggregation: {self.aggregation.name} takes {self.aggregation.least} models or more, and an exchange "
                "has two; take centred_clipping"
            )


class GossipNode(LearningNode):
    """One party: its model, the update under way and the exchange under way.

    Once it has finished, it answers offers as before.
    """

    state: State

    def __init__(
        self, name: str, context: Context, settings: Settings, asks: Sequence[str], askers: Sequence[str], hand: Hand
    ) -> None:
        """``asks`` are the peers that it may ask, ``askers`` those that may ask it, and ``hand`` chooses among them."""
        super().__init__(name, context, settings, State)
        self.asks, self.askers = tuple(asks), frozenset(askers)
        self.choice = Ahead(Stream(context.seed, name, "gossip.peer", hand=hand))
        self.form = Form(settings.compression, settings.aggregation)
        self.asked = whole.asks(settings, context) if settings.whole else None
        if settings.compression is not None and settings.compression.share < 1:
            self.state.shown = context.initial

    def compute(self) -> Compute:
        """Lines 1-3."""
        if self.asked is None:
            return super().compute()
        self.state.task += 1
        return Compute(self.asked(self.state.task, self.state.w, None))

    def begin(self) -> Effects:
        """Lines 1-4: compute at the model of this moment, and average with somebody meanwhile."""
        s = self.state
        if s.finished:
            return []
        computed = self.compute()
        # At most one exchange waits for an answer that may come. A graph that has grown may have parted it from a peer
        # that will not answer any more.
        if s.open and any(peer in self.asks and peer not in s.away for peer in s.open):
            return [computed]
        return [computed, *self.ask()]

    def ask(self) -> Effects:
        s = self.state
        peers: Sequence[str] = self.asks
        if s.away or s.open:
            peers = [peer for peer in peers if peer not in s.away and peer not in s.open]
        if not peers or not (share := s.to_promise):
            return []
        peer = peers[self.choice.below(s.exchanges + 1, len(peers))]
        return [Send(peer, s.offer(peer, share, self.form))]

    @on(Offer, by="askers")
    def answer(self, sender: str, offer: Offer, now: float) -> Effects:
        odd = self.form.odd(sender, offer.model, self.state.w)
        return [*odd, Send(sender, self.state.answer(sender, offer, self.form))]

    @on(Answer)
    def average(self, sender: str, answer: Answer, now: float) -> Effects:
        odd = self.form.odd(sender, answer.model, self.state.w)
        self.state.settle(sender, answer, self.form)
        return [*odd]

    def update(self, move: Model) -> Effects:
        """Line 5. The gradient, or the update of a whole training, is of an older model; so be it."""
        s = self.state
        s.update(move, self.rate if self.asked is None else -self.rate)
        over = self.quota is not None and s.updates >= self.quota
        return self.finish("quota") if over else self.begin()

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        s = self.state
        s.away.add(event.peer)
        if event.peer in s.open:
            promise = s.open[event.peer]
            s.open[event.peer] = replace(promise, doubted=max(promise.doubted, 0))
            return [Record("exchange_in_doubt", 1.0)]
        return []

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        self.state.away.discard(event.peer)
        return []


def asking(settings: Settings, graph: Graph, names: tuple[str, ...]) -> tuple[Graph, frozenset[int]]:
    """Return the graph of those that exchange models, and which nodes ask."""
    if settings.exchange == "bipartite":
        split = bipartite_split(graph, names)
        return split.kept, split.senders
    return graph, frozenset(range(graph.nodes))


def terms(settings: Settings) -> Terms:
    """Terms of single gradients, or of whole ones."""
    packed = settings.compression is not None
    linear = settings.aggregation is None and not packed
    paired, own = settings.noise == "pairwise", ("batch_size",)
    return whole.terms(settings, told=goes_by_all(settings), linear=linear, packed=packed, paired=paired, training=own)


def rules(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    yield from check(settings, spec)
    yield from whole.check_whole(settings, spec)


def plan(problem: Problem[Settings]) -> Plan:
    """The plan of nodes that are protected with all that they have, or whose examples are."""
    one = problem.settings
    if one.whole:
        return whole.plan(problem)
    return paired_plan(problem, lambda: mixing(one, problem.names, problem.graph), len(problem.names), fresh=True)


def cast(settings: Settings, names: tuple[str, ...]) -> Cast:
    """The nodes, which the topology joins."""
    linear = terms(settings).linear  # otherwise no matrix says what an exchange does
    return Cast(names, topology=settings.topology, mixing=partial(mixing, settings, names) if linear else None)


def mixing(settings: Settings, names: tuple[str, ...], graph: Graph) -> Matrix:
    """E[A'A] of an exchange in which two nodes average their models, any node that asks being as likely as another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedEdges)  # as was said when the nodes were built
        kept, askers = asking(settings, graph, names)
    return pairwise_expectation(kept, [float(i in askers) for i in range(kept.nodes)])


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The nodes of a run, by name."""
    graph, askers = asking(settings, context.graph, context.names)
    nodes: dict[str, Node] = {}
    hand = Hand()
    for i, name in enumerate(context.names):
        neighbours = {j: context.names[j] for j in graph.neighbours(i)}
        asks = list(neighbours.values()) if i in askers else []
        asked_by = [neighbours[j] for j in neighbours if j in askers]
        nodes[name] = GossipNode(name, context, settings, asks, asked_by, hand)
    return nodes


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Exchanges that were completed, answers of nodes with an exchange of their own open, and what is still open."""
    states = [node.state for node in nodes.values()]
    open_exchanges = sum(len(state.open) for state in states)
    return {
        "exchanges": sum(state.exchanges for state in states) - open_exchanges,
        "busy_answers": sum(state.busy for state in states),
        "open_exchanges": open_exchanges,
    }


def invariants(nodes: Mapping[str, Node], in_flight: Sequence[InFlight]) -> dict[str, Any]:
    """``mass``: the sum of all models, of what nodes have set apart, and of the shares on their way to an asker."""
    mass: Any = 0.0
    for node in nodes.values():
        mass = mass + node.state.held()
    for item in in_flight:
        if isinstance(item.message, Answer):
            to: Any = nodes[item.to]
            mass = mass + to.state.coming(item.sender, item.message, to.form)
    return {"mass": mass}


def claims(problem: Problem[Settings], plan: Plan) -> list[Claim]:
    """Theorem 2 of the paper, for this run if its noise is Gaussian."""
    noise, smallest = least_noise(problem, plan).normal, smallest_node(problem)
    if plan.updates == 0 or noise is None or problem.settings.whole:
        return []
    batch, shard = float(problem.workload.of(smallest, 0)), problem.shard_sizes[smallest]
    setting = Adp2sgdSetting(noise.clip, batch, plan.updates, len(problem.names), shard)
    return [adp2sgd_theorem2(setting, noise.standard_deviation / batch, problem.spec.delta)]


ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    cast=cast,
    check=rules,
    plan=plan,
    clips=Clips(("fixed", "quantile")),
    figures=Figures(staleness="computing", invariants=invariants, report=report, claims=claims),
    grows=True,
    small_runs=lambda settings: few((3, 6), (4, 4), (6, 3), batch_size=4),
    command=lambda: COMMAND,
    population=imported_when_used("gossamer.algorithms.gossip.population", "RULES"),
    terms=terms,
    workload=clients.workload,
)
