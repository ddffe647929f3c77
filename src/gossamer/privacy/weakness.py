"""Guarantees that say little, in words: an epsilon above 10, and a delta above one over the number of examples.

A guarantee is computed for whatever is asked. That it is proved does not make it strong, and a number alone does not
say so.

- An *epsilon* of 10 lets what is released make a guess about one example 22,000 times likelier than its opposite, each
  further 2.3 ten times more.
- A *delta* is the probability with which nothing at all may hold. Publishing one of n examples in full, drawn at
  random, is (0, 1/n)-differentially private: a delta above 1/n allows as much. A person who has m of them is among
  what is published with a probability of m/n, so where persons are protected the line is there.

Both are allowed, with a remark. A delta above `MOST_DELTA` is refused, unless whoever asks for it says so.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gossamer.privacy.guarantees import Guarantee, rounded_up

MOST_DELTA = 0.01
"""Above it nothing is promised by mistake."""
MUCH_EPSILON = 10.0


def remarks(
    epsilon: float, delta: float, examples: int | None = None, whose: str = "the smallest shard", rows: int = 1
) -> list[str]:
    """Say what makes a guarantee weak, a line each.

    Parameters
    ----------
    epsilon, delta : float
        Of the guarantee. An infinite epsilon promises nothing, so there is nothing to remark.
    examples : int, optional
        n, the least number of examples that the guarantee is for; None where it is not known.
    whose : str
        The n examples, in words.
    rows : int
        m, the most examples of one person, whom the guarantee is for.
    """
    found = []
    if MUCH_EPSILON < epsilon < math.inf:
        found.append(
            f"epsilon {rounded_up(epsilon)} is above {MUCH_EPSILON:g} and protects next to nobody: what is released "
            f"may make a guess about somebody's data 10^{epsilon / math.log(10):.0f} times likelier than its opposite; "
            "more noise, fewer releases or more examples lower it"
        )
    if examples and epsilon < math.inf and delta > rows / examples:
        persons = f", up to {rows} of one person" if rows > 1 else ""
        found.append(
            f"delta {delta:g} is above {rows}/{examples}, and {whose} has {examples} examples{persons}: publishing one "
            f"of them in full, drawn at random, would be within that; take a delta far below {rows / examples:.2g}"
        )
    return found


def remarked(guarantee: Guarantee, examples: int) -> Guarantee:
    """A guarantee with what makes it weak."""
    rows = guarantee.rows_per_person or 1
    return replace(guarantee, remarks=tuple(remarks(guarantee.epsilon, guarantee.delta, examples, rows=rows)))


def refused_delta(delta: float | None, accepted: bool | None, how: str) -> str | None:
    """Say why a delta is not taken, in a line; None for one that is.

    Parameters
    ----------
    delta : float or None
        What was asked for.
    accepted : bool or None
        Whether whoever asks knows how weak that is.
    how : str
        How that is said, such as a flag.
    """
    if delta is None or accepted or not MOST_DELTA < delta < 1:
        return None
    return (
        f"delta must be at most {MOST_DELTA:g}, found {delta:g}, the probability with which nothing at all need hold; "
        f"take one far below 1 over the number of examples, or say {how} to have it all the same"
    )
