"""Gossip nodes as numbers in arrays: what each does when an event comes, for the compiled loop of a population.

It is `box.GossipNode` among peers that are all there, so that a node has at most one exchange open, and nothing is ever
apart. What an exchange does to shares and models are the rules of `exchange`, compiled, and the loops of vectors that
`exchange` calls; here stands only which of them comes when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gossamer.algorithms import population as loop
from gossamer.algorithms.context import Context, updates_per_epoch
from gossamer.algorithms.gossip import exchange
from gossamer.algorithms.gossip.box import Settings, asking
from gossamer.arrays import IndexArray
from gossamer.machine_code import compiled
from gossamer.philox import integer
from gossamer.protocol.messages import encoded_size
from gossamer.randomness import stream_keys
from gossamer.vectors import Released

OFFERED, ANSWERED = 2, 3
"""Places of a node's other vectors: the model that it offered last, and the one that it was answered."""
TASK, MADE, QUOTA, RATE, EXCHANGES, OPEN, PROMISED, MOVED, WANTED, BUSY, ENDED = range(11)
"""Places of a node's numbers: computations, updates, the most of them, the row of its rates, exchanges, whether one is
open, the share that it promised, the one that was moved, and `State.asked`, `State.busy` and why it ended."""
OFFER, ANSWER_MESSAGE = 0, 1
REASONS = ("", "quota", "budget", "deadline")
_QUOTA, _BUDGET, _DEADLINE = 1, 2, 3

_rule = compiled()
loop.as_it_stands(
    exchange.share_to_promise,
    exchange.share_to_move,
    exchange.free_of_one,
    exchange.moved_by_offer,
    exchange.moved_by_answer,
    exchange.moved_by_update,
)


@_rule
def _begin(vectors, own, facts, node, asks):  # type: ignore[no-untyped-def]
    """`GossipNode.begin`."""
    starts, peers, keys, _ = facts
    own[TASK] += 1
    asks[loop.COMPUTE] = 1
    count, share = starts[node + 1] - starts[node], exchange.share_to_promise(exchange.WHOLE, own[WANTED])
    if own[OPEN] or count == 0 or share == 0:
        return
    own[EXCHANGES] += 1
    key, state = (keys[node, 0], keys[node, 1]), np.empty(7, np.uint64)
    own[OPEN], own[PROMISED], own[WANTED] = 1, share, 0
    vectors[node, OFFERED] = vectors[node, loop.MODEL]
    asks[loop.SEND] = peers[starts[node] + integer(key, own[EXCHANGES], count, state)]
    asks[loop.MESSAGE] = OFFER


@_rule
def _update(vectors, own, facts, node, asks):  # type: ignore[no-untyped-def]
    """`GossipNode.update`."""
    if own[ENDED]:
        return
    rates, model = facts[3], vectors[node, loop.MODEL]
    rate = rates[own[RATE], min(own[MADE], rates.shape[1] - 1)]
    model[:] = exchange.moved_by_update(model, vectors[node, loop.ANSWER], rate)
    own[MADE] += 1
    if own[MADE] >= own[QUOTA]:
        own[ENDED] = asks[loop.FINISH] = _QUOTA
    else:
        _begin(vectors, own, facts, node, asks)


@_rule
def _answer(vectors, numbers, node, sender, asks):  # type: ignore[no-untyped-def]
    """`State.answer`."""
    own, theirs, model = numbers[node], numbers[sender], vectors[node, loop.MODEL]
    free, told = exchange.WHOLE, model.copy()
    if own[OPEN]:
        own[WANTED] += 1
        own[BUSY] += 1
        free = exchange.WHOLE - own[PROMISED]
        told = exchange.free_of_one(model, vectors[node, OFFERED], own[PROMISED], free, exchange.WHOLE)
    theirs[MOVED], model[:] = exchange.moved_by_offer(
        model, told, vectors[sender, OFFERED], theirs[PROMISED], free, exchange.WHOLE
    )
    vectors[sender, ANSWERED] = told
    asks[loop.SEND], asks[loop.MESSAGE] = sender, ANSWER_MESSAGE


@_rule
def _settle(vectors, own, node):  # type: ignore[no-untyped-def]
    """`State.settle`."""
    model = vectors[node, loop.MODEL]
    model[:] = exchange.moved_by_answer(
        model, vectors[node, OFFERED], vectors[node, ANSWERED], own[MOVED], exchange.WHOLE
    )
    own[OPEN] = 0


@compiled(loop.HANDLER.signature, takes="gossip's rules for populations to machine code")
def handle(vectors, numbers, facts, event, node, sender, message, asks):  # type: ignore[no-untyped-def]
    """Carry out what a node does when an event comes; see `algorithms.population.HANDLER`."""
    own = numbers[node]
    if event == loop.STARTED:
        _begin(vectors, own, facts, node, asks)
    elif event == loop.COMPLETED:
        _update(vectors, own, facts, node, asks)
    elif event == loop.RECEIVED and message == OFFER:
        _answer(vectors, numbers, node, sender, asks)
    elif event == loop.RECEIVED:
        _settle(vectors, own, node)
    elif not own[ENDED]:
        own[ENDED] = asks[loop.FINISH] = _BUDGET if event == loop.REFUSED else _DEADLINE if event == loop.ELAPSED else 0


def start(settings: Settings, context: Context, most: int) -> loop.PopulationStart:
    """The nodes of a run before it, as `box.build` makes them."""
    graph, askers = asking(settings, context.graph, context.names)
    nodes, joined = graph.nodes, graph.adjacency
    counts = np.where([node in askers for node in range(nodes)], graph.degrees, 0)
    asks = np.repeat(counts > 0, graph.degrees)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    numbers = np.zeros((nodes, ENDED + 1), np.int64)
    numbers[:, QUOTA] = [np.iinfo(np.int64).max if (q := context.quota(name)) is None else q for name in context.names]
    epochs = np.array([updates_per_epoch(context, name) for name in context.names])
    numbers[:, RATE], rates = loop.rates_of(settings.learning_rate, epochs, min(most, int(numbers[:, QUOTA].max())))
    keys = stream_keys(context.seed, context.names, "gossip.peer")
    blank, share = context.initial, exchange.HALF
    lengths = tuple(
        encoded_size(message) for message in (exchange.Offer(1, blank, share), exchange.Answer(1, blank, share))
    )
    return loop.PopulationStart(4, numbers, (starts, joined.indices[asks].astype(np.int64), keys, rates), lengths)


def state(vectors: Sequence[Released], numbers: IndexArray) -> exchange.State:
    """The state of a node, but for whom it asked: its promise stands under the name ``""``."""
    own = numbers.tolist()
    model, offered = vectors[loop.MODEL], vectors[OFFERED]
    promises = {"": exchange.Promise(own[EXCHANGES], own[PROMISED], offered, offered)} if own[OPEN] else {}
    return exchange.State(
        model,
        model[:0],
        task=own[TASK],
        finished=REASONS[own[ENDED]],
        updates=own[MADE],
        exchanges=own[EXCHANGES],
        open=promises,
        asked=own[WANTED],
        busy=own[BUSY],
    )


def report(numbers: IndexArray) -> Mapping[str, Any]:
    """The figures of `box.report`."""
    exchanges, still = int(numbers[:, EXCHANGES].sum()), int(numbers[:, OPEN].sum())
    return {"exchanges": exchanges - still, "busy_answers": int(numbers[:, BUSY].sum()), "open_exchanges": still}


def against(settings: Settings, rates: int) -> str | None:
    """The key of a setting that is not covered, if there is one; as many ``rates`` as that would be computed."""
    if settings.optimizer is not None or settings.whole:
        return "algorithm.privacy_unit" if settings.optimizer is None else "algorithm.optimizer"
    if settings.aggregation is not None or settings.compression is not None:
        return "algorithm.compression" if settings.aggregation is None else "algorithm.aggregation"
    return "algorithm.learning_rate" if rates > loop.MOST_RATES and not loop.is_steady(settings.learning_rate) else None


RULES = loop.PopulationRules(handle, REASONS, start, state, report, against)
