"""Terms of releases that an algorithm's settings decide."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.privacy.mechanisms import NeighboringRelation

EXAMPLE = "example"
"""The unit of privacy of most algorithms; others protect all that a party has."""


@dataclass(frozen=True)
class Terms:
    """Terms of what is released under some settings, as far as they decide it.

    Attributes
    ----------
    noiseless : bool
        Whether this is the algorithm without noise.
    proved : bool
        Whether a guarantee is proved for what is released.
    sampling : str, optional
        How examples are drawn; None where ``privacy.sampling`` says it.
    sensitivity : float
        How far one example moves what is released, in clips.
    clipped_whole : bool
        Whether what is released is clipped as a whole, and not example by example.
    unit : str
        What a guarantee protects, as owners' policies call it: ``example``, ``client`` or ``agent``.
    relation : NeighboringRelation, optional
        Which data are neighbours, where the spec leaves it to the algorithm; None where the sampling says it.
    hiding : bool
        Whether nodes draw what nobody may guess beside noise, such as masks.
    limit : int, optional
        A bound on the run's length, beside ``updates_per_node``.
    rounds : bool
        Whether a release sums up a whole round, and not one batch's gradients.
    """

    noiseless: bool = False
    proved: bool = True
    sampling: str | None = None
    sensitivity: float = 1.0
    clipped_whole: bool = False
    unit: str = EXAMPLE
    relation: NeighboringRelation | None = None
    hiding: bool = False
    limit: int | None = None
    rounds: bool = False
