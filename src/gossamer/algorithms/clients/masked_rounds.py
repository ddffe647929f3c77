"""Rounds whose updates are masked: who is in each sum, and how clients mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossamer.algorithms.clients.masking_settings import Masking
from gossamer.algorithms.clients.messages import SERVER
from gossamer.algorithms.clients.settings import PATIENCE
from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import Gaussian, Mechanism

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
    patience : float
        Without a timeout: seconds after which they are asked whether they are there.
    divisor : int, optional
        What each sum is divided by, however many updates are in it; by how many are where it is left out.
    skips : bool
        Whether a round does not wait for clients that were late and not heard of before it.
    """

    cohort: Callable[[int], tuple[str, ...]]
    clients: int
    count: int
    timeout: float | None = None
    patience: float = PATIENCE
    divisor: int | None = None
    skips: bool = False


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
