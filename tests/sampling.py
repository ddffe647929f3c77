"""How much of a test runs by default: some of its cases, always the same, and fewer examples. With ``--slow`` all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pytest

GOLDEN = (5**0.5 - 1) / 2

_whole = False


def decide(whole: bool) -> None:
    """Say whether tests run whole; before they are imported, since decorators of theirs ask."""
    global _whole
    _whole = whole


def examples(number: int) -> int:
    """Examples, or seeds, of a test: ``number`` with ``--slow``, else a quarter, but no fewer than 5."""
    return number if _whole else min(number, max(5, number // 4))


def spread(cases: Sequence[Sequence[int]], number: int) -> list[int]:
    """Places of ``number`` cases that are spread evenly over all.

    Parameters
    ----------
    cases : sequence of (axes,) int
        The value of each parameter in each case, by its number.
    number : int
        How many are wanted.

    Returns
    -------
    list of int
        In order. All values of a parameter come about equally often, so each comes before any comes twice more.
    """
    left = sorted(range(len(cases)), key=lambda place: place * GOLDEN % 1.0)
    used: Counter[tuple[int, int]] = Counter()
    chosen = []
    for _ in range(min(number, len(cases))):
        place = min(left, key=lambda place: sum(used[value] for value in enumerate(cases[place])))
        left.remove(place)
        used.update(enumerate(cases[place]))
        chosen.append(place)
    return sorted(chosen)


def sampled(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Collected tests without those cases that a mark ``some`` leaves to ``--slow``.

    Cases that are slow by themselves count as left out already.
    """
    kept = list(items)
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in kept:
        if item.get_closest_marker("some") and "slow" not in item.keywords and hasattr(item, "callspec"):
            functions[item.nodeid.partition("[")[0]].append(item)
    gone: set[pytest.Item] = set()
    for cases in functions.values():
        (number,) = cases[0].get_closest_marker("some").args  # type: ignore[union-attr]
        places = spread([[*case.callspec.indices.values()] for case in cases], number)  # type: ignore[attr-defined]
        gone.update(case for place, case in enumerate(cases) if place not in set(places))
    return [item for item in kept if item not in gone]
