"""Number of gradients of a round as a function of the round's number: schedules of `increasing.sizes`, unrounded.

References
----------
"Asynchronous federated learning with increasing sample sizes": sections B.3 and C.2.2 (`theory`), E.2.2 (`power`,
`log`) and D.3 (`privacy`).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from gossamer.section import Section

RealArray = npt.NDArray[np.float64]

MOST_STEPS = 10**11
"""A schedule stops growing at so many steps in a round of all clients: 10^7 such rounds are counted in 64 bits."""


class SizeSchedule(Section):
    """Base of the schedules."""

    of_shard: ClassVar[bool] = False
    """Whether the sizes are given as a fraction of each client's shard."""

    def at(self, i: RealArray) -> RealArray:
        """The sizes before rounding, in rounds i = 0, 1, ...; they never fall."""
        raise NotImplementedError


class ConstantSizes(SizeSchedule):
    """s_i = size."""

    name: Literal["constant"] = "constant"
    size: float = Field(gt=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        return np.full_like(i, self.size)


class PowerSizes(SizeSchedule):
    """s_i = ceil(a i^c + b)."""

    name: Literal["power"] = "power"
    a: float = Field(ge=0, le=MOST_STEPS)
    c: float = Field(default=1.0, ge=0, le=4)
    b: float = Field(default=0.0, ge=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        return self.a * i**self.c + self.b


class LogSizes(SizeSchedule):
    """s_i = ceil(a i/ln i + b), with e for an i below it.

    i/ln i is undefined at i = 0, infinite at 1 and falls until i = e, where it is e; from there on it grows.
    """

    name: Literal["log"] = "log"
    a: float = Field(ge=0, le=MOST_STEPS)
    b: float = Field(default=0.0, ge=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        from_e = np.maximum(i, math.e)
        return self.a * from_e / np.log(from_e) + self.b


class TheorySizes(SizeSchedule):
    """s_i = ceil((m + i + 1)/(16 (d + 1)^2) / ln((m + i + 1)/(2 (d + 1)))), for m + 1 >= 2 e (d + 1).

    Notes
    -----
    With x = (m + i + 1)/(d + 1) this is x/(16 (d + 1) ln(x/2)), Lemma B.3 for g = 2 and gamma(z) = 4 ln z. The lemma
    asks for gamma(z) >= 2 z gamma'(z) = 8, so for z >= e^2, at all z that occur; the least is (x/2)^2 at i = 0. It then
    holds word for word of gamma(z) = 4 ln max(z, e^2). So m + 1 >= 2 e (d + 1), which also makes the logarithm at least
    1 and the sizes non-decreasing: x/ln(x/2) falls below x = 2 e.
    """

    name: Literal["theory"] = "theory"
    m: int = Field(ge=0)
    d: int = Field(default=1, ge=0)

    @model_validator(mode="after")
    def _sizes_grow(self) -> TheorySizes:
        check_theory(self.m, self.d)
        return self

    def at(self, i: RealArray) -> RealArray:
        number, lag = self.m + i + 1, self.d + 1
        return number / (16 * lag**2) / np.log(number / (2 * lag))


def check_theory(m: int, d: int) -> None:
    """Raise ValueError unless m + 1 >= 2 e (d + 1), from where on the theory's formulas hold."""
    least = math.ceil(2 * math.e * (d + 1)) - 1
    if m < least:
        raise ValueError(f"m must be at least 2 e (d + 1) - 1, which is {least} for d = {d}, found {m}; raise m")


class PrivacySizes(SizeSchedule):
    """s_ic = ceil(N_c q (i + m)^p), with N_c the size of the client's shard."""

    name: Literal["privacy"] = "privacy"
    q: float = Field(gt=0, le=1)
    m: float = Field(default=0.0, ge=0)
    p: float = Field(default=1.0, ge=0)

    of_shard: ClassVar[bool] = True

    def at(self, i: RealArray) -> RealArray:
        return self.q * (i + self.m) ** self.p


def from_number(value: Any) -> Any:
    """Let a number stand for a constant size."""
    # A string may be a number that YAML 1.1 does not recognise, such as 1e3.
    return {"name": "constant", "size": value} if isinstance(value, (int, float, str)) else value


Sizes = Annotated[
    Annotated[ConstantSizes | PowerSizes | LogSizes | TheorySizes | PrivacySizes, Field(discriminator="name")],
    BeforeValidator(from_number),
]
"""A number, or a mapping with a ``name``."""
