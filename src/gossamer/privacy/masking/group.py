"""Group of a masked sum: what all its members agree on before the first message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from gossamer.errors import SpecError
from gossamer.protocol.encoding import register

UintArray = npt.NDArray[np.unsignedinteger]
DTYPES: dict[int, np.dtype[np.unsignedinteger]] = {32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}
"""The rings in which is added: integers modulo 2^32 or 2^64."""
SMALLEST = 2
MOST_AGENTS = 1 << 16


class Phase(IntEnum):
    """The five messages of an agent, in order, and the end."""

    ANNOUNCE = 0
    SHARE = 1
    MASK = 2
    CONFIRM = 3
    REVEAL = 4
    DONE = 5


@register("masking.group")
@dataclass(frozen=True)
class Group:
    """The public parameters of a masked sum; the same for every agent and the server.

    Attributes
    ----------
    size : int
        n, how many agents there are; they have the numbers 1 to n.
    length : int
        Coordinates of each agent's vector.
    bits : {32, 64}
        Vectors are added modulo 2^bits.
    threshold : int
        t, how many agents have to answer for a mask to be removed; more than half of ``size``. 0 takes two thirds
        of ``size``, rounded up, so that up to a third may vanish.
    minimum : int
        Fewest vectors in a sum, at least ``threshold``; 0 takes ``threshold``.
    context : bytes
        Bytes that tell this group from others, such as the run and the unit. Keys depend on it.
    signed : bool
        Whether announcements are signed by the agents' identities. Others are refused then; so are signed ones
        otherwise, since sizes of messages follow from this.

    Raises
    ------
    SpecError
        If a parameter is out of range.
    """

    size: int
    length: int
    bits: int = 32
    threshold: int = 0
    minimum: int = 0
    context: bytes = b""
    signed: bool = False

    def __post_init__(self) -> None:
        for name in ("size", "length", "bits", "threshold", "minimum"):
            if type(getattr(self, name)) is not int:
                raise SpecError(f"a group's {name} must be an integer, found {getattr(self, name)!r}")
        if not SMALLEST <= self.size < MOST_AGENTS:
            raise SpecError(f"masks need {SMALLEST} to {MOST_AGENTS - 1} agents to hide among, found {self.size}")
        if self.length < 1:
            raise SpecError(f"a masked vector needs at least one coordinate, found {self.length}")
        if self.bits not in DTYPES:
            raise SpecError(f"masked vectors are added modulo 2^32 or 2^64, found bits {self.bits}")
        if not isinstance(self.context, bytes):
            raise SpecError(f"a group's context must be bytes, found {type(self.context).__name__}")
        if type(self.signed) is not bool:
            raise SpecError(f"a group's signed must be a bool, found {self.signed!r}")
        if self.threshold == 0:
            object.__setattr__(self, "threshold", -(-2 * self.size // 3))
        if not self.size < 2 * self.threshold <= 2 * self.size:
            raise SpecError(
                f"a threshold must be more than half of the {self.size} agents, and no more than all, "
                f"found {self.threshold}: with fewer, a server could ask two halves of them for both masks"
            )
        if self.minimum == 0:
            object.__setattr__(self, "minimum", self.threshold)
        if not self.threshold <= self.minimum <= self.size:
            raise SpecError(
                f"a minimum lies between the threshold {self.threshold} and the {self.size} agents, "
                f"found {self.minimum}"
            )

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of the vectors' numbers."""
        return DTYPES[self.bits]

    def has(self, agent: object) -> bool:
        """Whether ``agent`` is the number of an agent."""
        return type(agent) is int and 1 <= agent <= self.size
