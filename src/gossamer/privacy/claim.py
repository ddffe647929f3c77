"""A claim: what a paper's formula says of a run.

A claim is not a guarantee. It is computed from the paper's formula under its theorem's number and printed beside
the guarantee, which an accountant computes from the ledger. What is wrong with a claim, if anything, stands in the
docstring of its formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Claim:
    """Claim of a paper about the privacy of a run.

    Attributes
    ----------
    theorem : str
        Paper and number of the theorem.
    epsilon, delta : float
        The claimed (epsilon, delta). Where ``valid`` is false, epsilon is what the formula alone would give.
    valid : bool
        Whether the theorem's own conditions hold. It says nothing about whether the theorem is true.
    why : str
        Which conditions hold or fail, and by how much.
    parameters : mapping of str to float
        Values of the theorem's free parameters at which the claim is stated.
    """

    theorem: str
    epsilon: float
    delta: float
    valid: bool
    why: str
    parameters: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The claim as plain data, for summaries."""
        return asdict(self)


@dataclass(frozen=True)
class UtilityClaim:
    """Claim of a paper about the convergence of a run.

    Attributes
    ----------
    theorem : str
        Paper and number of the theorem.
    bound : float
        On the mean over iterations of E ||grad F(mean model)||^2.
    iterations : float
        The number T of iterations for which the bound is stated.
    valid : bool
        Whether the statement's own conditions, and those of what it rests on, hold.
    why : str
        Which conditions hold or fail, and by how much.
    """

    theorem: str
    bound: float
    iterations: float
    valid: bool
    why: str

    def as_dict(self) -> dict[str, Any]:
        """The claim as plain data, for summaries."""
        return asdict(self)
