"""Weights of clients' updates: alike, or by numbers of examples that are public.

A weight is at most 1, so an update that is clipped to C is no longer than C when it is weighted: noise and guarantee
are those of equal weights. Weights are known before the run, and sums are divided by what is made of them alone. A
weight by a private number of examples would tell it, so there is none.
"""

from __future__ import annotations

from collections.abc import Mapping


def weights_of(shard_sizes: Mapping[str, int], declared: bool) -> dict[str, float] | None:
    """Weight of each client, in proportion to its examples, and 1 for those who have most; None where all count alike.

    Parameters
    ----------
    shard_sizes : mapping of str to int
        Numbers of examples, which are public.
    declared : bool
        Whether updates are weighted by them.
    """
    if not declared:
        return None
    most = max(1, *shard_sizes.values())
    return {name: size / most for name, size in shard_sizes.items()}
