"""Output of commands on a plan: figures of each node, and what is guaranteed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gossamer.cli.printing import table, wrapped

if TYPE_CHECKING:
    from gossamer.privacy.guarantees import Guarantee

_NODES = 16
"""How many nodes a report lists one by one."""


def guarantees(guarantee: Guarantee, by_observer: Mapping[str, Guarantee]) -> str:
    """State what is proved, and what is against observers against whom something else is."""
    others = {one.observer: one for one in by_observer.values() if one.observer != guarantee.observer}
    return "\n".join(wrapped(text) for text in [str(guarantee), *(other.beside for other in others.values())])


def epsilon(value: float | None) -> str:
    """An epsilon for a table."""
    from gossamer.privacy.guarantees import rounded_up

    return "none" if value is None or math.isinf(value) else rounded_up(value)


def node_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A line for each of the first nodes, and how many more there are."""
    more = f"\n... and {len(rows) - _NODES} more nodes" if len(rows) > _NODES else ""
    return table([header, *rows[:_NODES]]) + more
