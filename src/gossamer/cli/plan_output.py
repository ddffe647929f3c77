"""Output of commands on a plan: figures of each node, and what is guaranteed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gossamer.cli.printing import table, wrapped
from gossamer.errors import counted

if TYPE_CHECKING:
    from gossamer.algorithms.plan import Words
    from gossamer.privacy.guarantees import Guarantee

_BELOW = "what all of these guarantees assume, which stands below them"
_COMMON = "All of these guarantees assume:"
_LINES = 16
"""How many lines a report has on nodes."""


def guarantees(guarantee: Guarantee, by_observer: Mapping[str, Guarantee]) -> str:
    """State what is proved, and what is against observers against whom something else is.

    What all of them assume is said once, below them.
    """
    others = {one.observer: one for one in by_observer.values() if one.observer != guarantee.observer}
    every = [guarantee, *others.values()]
    assumed = [proved.assumptions for one in every if (proved := one.would_be or one).assumptions]
    common = [line for line in assumed[0] if all(line in lines for lines in assumed)] if len(assumed) > 1 else []
    first, *rest = [_elsewhere(one, common) for one in every]
    texts = [str(first), *(other.beside for other in rest)]
    if common:
        texts.append("\n".join([_COMMON, *(f"  - {line}" for line in common)]))
    return "\n".join(wrapped(text) for text in texts)


def _elsewhere(guarantee: Guarantee, lines: Sequence[str]) -> Guarantee:
    """The guarantee with a hint in the place of assumptions that stand elsewhere."""
    if guarantee.would_be is not None:
        return replace(guarantee, would_be=_elsewhere(guarantee.would_be, lines))
    own = [line for line in guarantee.assumptions if line not in lines]
    return replace(guarantee, assumptions=(*own, _BELOW)) if len(own) < len(guarantee.assumptions) else guarantee


def epsilon(value: float | None) -> str:
    """An epsilon for a table."""
    from gossamer.privacy.guarantees import rounded_up

    return "none" if value is None or math.isinf(value) else rounded_up(value)


def node_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Figures of each node after its name: a line each; where there are many, one for all that have the same."""
    if len(rows) <= _LINES:
        return table([header, *rows])
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, *figures in rows:
        groups.setdefault(tuple(figures), []).append(name)
    lines = [(_named(names), *figures) for figures, names in groups.items()]
    left = sum(len(names) for names in list(groups.values())[_LINES:])
    more = f"\n... and {left} more" if left else ""
    return table([header, *lines[:_LINES]]) + more


def below(words: Words) -> str:
    """Words below the figures of nodes, if there are any."""
    return f"\n{wrapped(words.figures)}" if words.figures else ""


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {counted(len(names) - 1, 'other')}"
