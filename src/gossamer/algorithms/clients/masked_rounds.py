"""Rounds whose updates are masked: who is in each sum, how clients mask, and the nodes of such a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gossamer.algorithms.clients.masking_settings import Masking
from gossamer.algorithms.clients.messages import SERVER
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import SmallRuns
from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import Gaussian, Mechanism
from gossamer.protocol.node import Node

if TYPE_CHECKING:
    from gossamer.sides.secure_unit import SecureUnit

# Masks need cryptography, which is optional, so what does is imported only where masks are wanted.


@dataclass(frozen=True)
class MaskedRounds:
    """Masked sums of a run.

    Attributes
    ----------
    cohort : callable
        The clients of a round, by public coins: they mask together, and are fixed before they do.
    clients : int
        L, how many these are.
    count : int
        T, rounds.
    timeout : float, optional
        Seconds after which a step of a sum goes on without those who have not answered.
    """

    cohort: Callable[[int], tuple[str, ...]]
    clients: int
    count: int
    timeout: float | None = None


def masked_unit(masking: Masking, clients: int, law: Mechanism, size: int, run: str) -> SecureUnit:
    """Masking of updates of ``size`` numbers among so many clients.

    Each adds 1/sqrt(h) of the standard deviation of ``law``, so that the h honest ones that every sum has for certain
    add up to it (`Masking.counted`). They sign their keys for the deployed ``run``, if it has a name.

    Raises
    ------
    SpecError
        If clip, clients and the settings of `Masking` do not fit together.
    """
    from gossamer.sides.secure_unit import secure_unit

    if not math.isfinite(law.clip):
        raise SpecError("algorithm.masking: masks add integers of a range, so updates need a bound: give privacy.clip")
    noise = law.noise_multiplier / math.sqrt(masking.counted(clients)) if isinstance(law, Gaussian) else 0.0
    try:
        return secure_unit(SERVER, law.clip, clients, size, **masking.parameters, agent_noise=noise, run=run)
    except SpecError as error:
        raise SpecError(f"algorithm.masking: {error}") from None


def masked_nodes(settings: ClientSettings, context: Context, rounds: MaskedRounds) -> dict[str, Node]:
    """The clients by name, and the server."""
    from gossamer.algorithms.clients.masked_client import MaskedClientNode
    from gossamer.algorithms.clients.masked_server import MaskedServer

    assert settings.masking is not None
    law = context.queries[context.names[0]].mechanism  # the same for all
    unit = masked_unit(settings.masking, rounds.clients, law, context.initial.size, context.run)
    clients: dict[str, Node] = {
        name: MaskedClientNode(name, context, settings.query(context.shard_sizes[name]), unit.group)
        for name in context.names
    }
    return {**clients, SERVER: MaskedServer(context, settings, rounds, unit)}


def masked_runs(masking: Masking, fitting: Mapping[str, Any]) -> SmallRuns:
    """Small runs for simulated faults: of all clients in a round, or of some."""
    small = {**masking.model_dump(), "threshold": None, "minimum": None, "fraction_bits": None}
    sizes = (
        {"nodes": 4, "rounds": 2, "clients_per_round": None},
        {"nodes": 5, "rounds": 2, "clients_per_round": 3},
    )
    # Messages about masks are longer than others. Sums are made at the server, of answers that are no releases.
    return SmallRuns(sizes, {**fitting, "masking": small}, ("timeout",), chunk=480, unanswered=2)
