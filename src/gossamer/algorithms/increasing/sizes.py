"""Numbers of gradients that clients compute in each round: s_i of all clients together, s_ic of client c.

A schedule gives s_i before rounding. What is done of it are whole steps of each client, at least one each, and *their*
sum is s_i from then on, so that the paper's numbering of the gradient computations is exact: round i has the numbers
t = s_0 + ... + s_{i-1} to s_0 + ... + s_i - 1.

All of this is public: schedules, weights, shard sizes, and the coins that may split a round.

References
----------
"Asynchronous federated learning with increasing sample sizes": sections B.3 and C.2.2 (`theory`), E.2.2 (`power`,
`log`) and D.3 (`privacy`).
"Asynchronous federated learning with increasing sample sizes": Algorithm 1, Setup.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Discriminator, Field, PositiveFloat, Tag, model_validator

from gossamer.errors import SpecError
from gossamer.randomness import Stream
from gossamer.section import Section

RealArray = npt.NDArray[np.float64]

MOST_STEPS = 10**11
"""A schedule stops growing at so many steps in a round of all clients: 10^7 such rounds are counted in 64 bits."""


class ConstantSizes(Section):
    """s_i = size; as of all schedules, `at` has the sizes before rounding, in rounds i = 0, 1, ..., and none falls."""

    name: Literal["constant"] = "constant"
    size: float = Field(gt=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        return np.full_like(i, self.size)


class PowerSizes(Section):
    """s_i = ceil(a i^c + b)."""

    name: Literal["power"] = "power"
    a: float = Field(ge=0, le=MOST_STEPS)
    c: float = Field(default=1.0, ge=0, le=4)
    b: float = Field(default=0.0, ge=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        return self.a * i**self.c + self.b


class LogSizes(Section):
    """s_i = ceil(a i/ln i + b), with e for an i below it.

    i/ln i is undefined at i = 0, infinite at 1 and falls until i = e, where it is e; from there on it grows.
    """

    name: Literal["log"] = "log"
    a: float = Field(ge=0, le=MOST_STEPS)
    b: float = Field(default=0.0, ge=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        from_e = np.maximum(i, math.e)
        return self.a * from_e / np.log(from_e) + self.b


class TheorySizes(Section):
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


class PrivacySizes(Section):
    """s_ic = ceil(N_c q (i + m)^p), with N_c the size of the client's shard."""

    name: Literal["privacy"] = "privacy"
    q: float = Field(gt=0, le=1)
    m: float = Field(default=0.0, ge=0)
    p: float = Field(default=1.0, ge=0)

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


IndexArray = npt.NDArray[np.int64]

MOST_ROUNDS = 10**7
_BLOCK = 1 << 20  # sizes computed at once
_KEPT = 256  # rounds whose sizes are kept: more than are under way at once

# Tags in brackets are left out of error messages.
_NAMED_OR_GIVEN = Discriminator(lambda value: "[each]" if isinstance(value, (list, tuple)) else "[name]")
Weights = Annotated[
    Annotated[Literal["equal", "shards"], Tag("[name]")] | Annotated[tuple[PositiveFloat, ...], Tag("[each]")],
    _NAMED_OR_GIVEN,
]
Counts = Literal["rounded", "coins"]


class RoundSizes:
    """The sizes of all rounds, the same for whoever asks and whenever.

    Parameters
    ----------
    schedule : Sizes
        s_i before rounding.
    weights : "equal", "shards" or sequence of float
        p_c, one a client: equal, proportional to the shards, or given. The privacy schedule has no use for them.
    counts : "rounded" or "coins"
        s_ic is p_c s_i rounded to the nearest, up at a half; or how often one of s_i coins falls on the client. It is
        at least 1 in both.
    shard_sizes : mapping of str to int
        N_c, by client, in the order of the weights.
    seed : int
        Seed of the coins.

    Raises
    ------
    SpecError
        If the weights are not one a client with a sum of 1, or if the privacy schedule is given weights or coins. The
        methods raise it for a round that is not from 0 to `MOST_ROUNDS`.
    """

    def __init__(
        self,
        schedule: Sizes,
        weights: Literal["equal", "shards"] | Sequence[float],
        counts: Counts,
        shard_sizes: Mapping[str, int],
        seed: int,
    ) -> None:
        if isinstance(schedule, PrivacySizes) and (counts == "coins" or not isinstance(weights, str)):
            raise SpecError(
                "privacy sizes are each client's own, so there is nothing to split: expected counts: rounded and no "
                f"weights, found counts: {counts} and weights: {weights}; leave both out"
            )
        self.schedule, self.coins = schedule, counts == "coins"
        self.names = tuple(shard_sizes)
        self.shard_sizes = dict(shard_sizes)
        self.examples: RealArray = np.array(list(shard_sizes.values()), np.float64)
        self.weights = _normalised(weights, self.examples)
        self._thrower = Stream(seed, "round sizes")
        # Clients whose sizes are always the same are one kind, computed once; with coins each is its own.
        shares = self.examples if isinstance(schedule, PrivacySizes) else self.weights
        _, first, self._kinds, self._clients = np.unique(
            np.arange(len(shares)) if self.coins else shares,
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        self._shares: RealArray = shares[first]
        self._kind_of = dict(zip(self.names, self._kinds.tolist()))
        self._sums: IndexArray = np.zeros(1, np.int64)  # before(0), before(1), ... as far as anybody asked
        self._rows: dict[int, IndexArray] = {}

    def of(self, name: str, i: int) -> int:
        """s_ic of one client."""
        return int(self._row(i)[self._kind_of[name]])

    def sizes(self, i: int) -> tuple[int, ...]:
        """s_ic of every client, in the order of ``names``."""
        return tuple(self._row(i)[self._kinds].tolist())

    def total(self, i: int) -> int:
        """s_i, the sum over the clients."""
        return int(self._row(i) @ self._clients)

    def before(self, i: int) -> int:
        """s_0 + ... + s_{i-1}."""
        known = len(self._sums) - 1
        if i > known:
            _check(i)
            totals = [rows @ self._clients for _, rows in self._blocks(known, max(i, 2 * known))]
            self._sums = np.concatenate([self._sums, self._sums[-1] + np.cumsum(np.concatenate(totals))])
        _check(i)
        return int(self._sums[i])

    def rounds_for(self, gradients: int) -> int:
        """The least number of rounds with so many gradients, of all clients together.

        Raises
        ------
        SpecError
            If it is more than `MOST_ROUNDS`.
        """
        done = 0
        # The last round is the largest, but for coins that leave fewer clients to be raised to 1.
        if gradients <= MOST_ROUNDS * (self.total(MOST_ROUNDS - 1) + len(self.names)):
            for start, rows in self._blocks(0, MOST_ROUNDS):
                sums = done + np.cumsum(rows @ self._clients)
                if sums[-1] >= gradients:
                    return start + int(np.searchsorted([done, *sums], gradients))
                done = int(sums[-1])
        raise SpecError(
            f"expected sizes that make {gradients:,} gradients within {MOST_ROUNDS:,} rounds, found sizes that do not; "
            "raise the sizes or ask for fewer gradients"
        )

    def counts(self, name: str, updates: int) -> dict[int, int]:
        """Number of the first rounds of a client, so many ``updates``, that have each size."""
        kind, found = self._kind_of[name], Counter[int]()
        for _, rows in self._blocks(0, updates):
            sizes, counts = np.unique(rows[:, kind], return_counts=True)
            found.update(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))
        return dict(found)

    def first_over(self, rounds: int) -> tuple[int, str] | None:
        """The first round below ``rounds`` with a client whose s_ic is over its shard, and the first such client."""
        least = np.full(len(self._clients), np.inf)
        np.minimum.at(least, self._kinds, self.examples)
        for start, rows in self._blocks(0, rounds):
            over = (rows > least).any(axis=1)
            if over.any():
                i = start + int(over.argmax())
                return i, self.names[int((self._row(i)[self._kinds] > self.examples).argmax())]
        return None

    def _row(self, i: int) -> IndexArray:
        """The sizes of round i, by kind."""
        row = self._rows.get(i)
        if row is None:
            _check(i)
            row = self._rows[i] = self._block(i, i + 1)[0]
            if len(self._rows) > _KEPT:
                del self._rows[next(iter(self._rows))]
        return row

    def _blocks(self, start: int, until: int) -> Iterator[tuple[int, IndexArray]]:
        """Rounds from ``start`` on in blocks, each twice as long as the one before while memory allows."""
        length = 64
        while start < until:
            last = min(start + length, until)
            yield start, self._block(start, last)
            start, length = last, min(2 * length, max(1, _BLOCK // len(self._clients)))

    def _block(self, first: int, last: int) -> IndexArray:
        """The sizes of rounds ``first`` to ``last`` - 1, by kind, [rounds, kinds]."""
        with np.errstate(over="ignore"):  # infinite is past any limit
            real = self.schedule.at(np.arange(first, last, dtype=np.float64))[:, None]
        if isinstance(self.schedule, PrivacySizes):
            sizes = _ceil(np.minimum(real * self._shares, MOST_STEPS // len(self.names)))
        else:
            together = _ceil(np.minimum(real, MOST_STEPS))
            sizes = self._thrown(first, together) if self.coins else np.floor(together * self._shares + 0.5)
        return np.maximum(sizes, 1).astype(np.int64)

    def _thrown(self, first: int, together: RealArray) -> RealArray:
        """Throw the s_i coins of each round and count each client's; each round has a generator of its own."""
        totals = enumerate(together[:, 0].astype(np.int64), first)
        return np.array([self._thrower.at(i).multinomial(total, self.weights) for i, total in totals], np.float64)


def check_sizes(sizes: RoundSizes, rounds: int) -> None:
    """Check that no client takes more steps in a round than it has examples.

    Raises
    ------
    SpecError
        If one does; it names the first round and client.
    """
    found = sizes.first_over(rounds)
    if found is not None:
        i, name = found
        examples = sizes.shard_sizes[name]
        sooner = f", or end after {i} rounds" if i else ""
        raise SpecError(
            f"sizes over the data set: expected at most {examples:,} steps in a round of {name}, which has so many "
            f"examples, found {sizes.of(name, i):,} in round {i}; lower the sizes{sooner}"
        )


def _normalised(weights: Literal["equal", "shards"] | Sequence[float], examples: RealArray) -> RealArray:
    if isinstance(weights, str):
        shares: RealArray = {"equal": np.ones(len(examples)), "shards": examples}[weights]
        return shares / float(shares.sum())
    if len(weights) != len(examples):
        raise SpecError(
            f"algorithm.weights: expected one a client, {len(examples)} in all, found {len(weights)}; give each one"
        )
    given, total = np.array(weights, np.float64), math.fsum(weights)
    if not (given.min() > 0 and abs(total - 1) <= 1e-6):
        raise SpecError(
            "algorithm.weights: expected positive numbers with a sum of 1, found "
            f"{', '.join(f'{p:g}' for p in weights[:8])}{' ...' if len(weights) > 8 else ''} "
            f"with a sum of {total:.9g}; divide each by the sum"
        )
    return given / total


def _ceil(real: RealArray) -> RealArray:
    """Rounded up, but for what is above a whole number by no more than rounding: 16.000000000000004 is 16."""
    whole = np.rint(real)
    return np.where(np.abs(real - whole) <= 1e-9 * real, whole, np.ceil(real))


def _check(i: int) -> None:
    if not 0 <= i <= MOST_ROUNDS:
        raise SpecError(f"rounds are numbered from 0 to {MOST_ROUNDS:,}, found {i}")
