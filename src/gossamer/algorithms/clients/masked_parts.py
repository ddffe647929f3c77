"""Parts of an algorithm whose clients mask: its rounds, its nodes, what became of its sums, and its small runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.algorithms.clients.masked_rounds import MaskedRounds, masked_unit
from gossamer.algorithms.clients.messages import SERVER
from gossamer.algorithms.clients.parts import asks
from gossamer.algorithms.clients.rounds import RoundSettings, public_cohorts
from gossamer.algorithms.clients.settings import PATIENCE, ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import SmallRuns
from gossamer.errors import counted
from gossamer.protocol.node import Node


def masked_rounds(settings: RoundSettings, seed: int, names: tuple[str, ...]) -> MaskedRounds:
    """The rounds of clients that mask."""
    cohorts, skips = public_cohorts(settings, seed, names), settings.late == "skipped"
    patience = settings.patience or PATIENCE
    return MaskedRounds(cohorts, settings.drawn, settings.rounds, settings.timeout, patience, skips=skips)


def masked_nodes(settings: ClientSettings, context: Context, rounds: MaskedRounds) -> dict[str, Node]:
    """The clients by name, and the server."""
    from gossamer.algorithms.clients.masked import MaskedClientNode, MaskedServer

    assert settings.masking is not None
    law = context.queries[context.names[0]].mechanism  # the same for all
    unit = masked_unit(settings.masking, rounds.clients, law, context.initial.size, context.run)
    clients: dict[str, Node] = {
        name: MaskedClientNode(name, context, settings.query(context.shard_sizes[name]), unit.group)
        for name in context.names
    }
    return {**clients, SERVER: MaskedServer(context, settings, rounds, unit)}


def sums_counted(server: Any) -> dict[str, int]:
    """Return how many sums came to nothing, by why; nothing of a server of clients that do not mask."""
    state = server.state
    if not hasattr(state, "sums_out_of_range"):
        return {}
    outside = state.sums_out_of_range
    return {"masked_sums_refused": state.empty, **({"masked_sums_out_of_range": outside} if outside else {})}


def sums_remarked(server: Any) -> list[str]:
    """Remarks for a user on sums that cannot be of honest clients alone."""
    outside = sums_counted(server).get("masked_sums_out_of_range", 0)
    if not outside:
        return []
    return [
        f"{counted(outside, 'masked sum')} were longer than honest clients can make them and changed nothing: a client "
        "of each sends false updates, and masks hide which; look for one that is in all of their rounds"
    ]


def masked_runs(settings: Any, fitting: Mapping[str, Any], sizes: tuple[Mapping[str, Any], ...]) -> SmallRuns:
    """Small runs for simulated faults, of these ``sizes``."""
    small = {**settings.masking.model_dump(), "threshold": None, "minimum": None, "fraction_bits": None}
    # Messages about masks are longer than others. Sums are made at the server, of answers that are no releases.
    asked = asks(settings)  # then a sum that needs whoever is gone waits for it
    return SmallRuns(sizes, {**fitting, "masking": small}, asked, bool(asked), chunk=480, unanswered=None)
