"""Guarantees of runs, read back: from `guarantee.json`, or of an older version's run from the point in its summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.bounded import read_text
from gossamer.privacy.guarantee_card import FILE, LARGEST, GuaranteeCard, GuaranteeEntry, read_guarantee_card
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.profile import PrivacyProfile
from gossamer.report.records import RunRecord

_DAMAGED = (KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Proved:
    """Everything that is proved of runs.

    Attributes
    ----------
    card : GuaranteeCard
        By observer.
    runs : tuple of RunRecord
        For which it is the same.
    whole : bool
        Whether the profile is known, and not one point of it alone.
    """

    card: GuaranteeCard
    runs: tuple[RunRecord, ...]
    whole: bool

    @property
    def first(self) -> GuaranteeEntry:
        """The guarantee that the noise is planned for."""
        return self.card.guarantees[0]


def proved_of(records: Sequence[RunRecord]) -> list[Proved]:
    """Return what is proved, once for all runs of which it is the same; nothing of runs that do not say it.

    Raises
    ------
    DataError
        If a card is damaged, or of a newer version.
    """
    found: dict[str, Proved] = {}
    for record in records:
        one = _read(record)
        if one is not None:
            key = one.card.model_copy(update={"receipts": None, "software": None}).to_json()
            runs = (*found[key].runs, record) if key in found else (record,)
            found[key] = Proved(one.card, runs, one.whole)
    return list(found.values())


def _read(record: RunRecord) -> Proved | None:
    file = record.path / FILE
    if file.exists():
        return Proved(read_guarantee_card(read_text(file, LARGEST), file), (record,), True)
    privacy = record.summary["privacy"]
    try:
        said = list((privacy.get("guarantees") or {"": record.guarantee}).values())
        mechanism = privacy.get("mechanism") or {}
        card = GuaranteeCard.of(map(_of_a_point, said), mechanism, str(record.summary.get("gossamer", "?")))
    except _DAMAGED:
        return None
    return Proved(card, (record,), False)


def _of_a_point(said: Mapping[str, Any]) -> Guarantee:
    """The guarantee that a summary states; its profile is that of the points in it."""
    epsilon = math.inf if said["epsilon"] is None else float(said["epsilon"])
    delta = 0.0 if said["delta"] is None else float(said["delta"])
    points = [(epsilon, delta)]
    if said.get("best_guess") is not None:
        points.append((0.0, 2 * float(said["best_guess"]) - 1))
    would_be = said.get("would_be")
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit=str(said["unit"]),
        neighboring_relation=NeighboringRelation(said["neighboring_relation"]),
        observer=str(said["observer"]),
        assumptions=tuple(map(str, said["assumptions"])),
        proof=str(said["proof"]),
        remarks=tuple(map(str, said.get("remarks") or ())),
        rows_per_person=said.get("rows_per_person"),
        would_be=None if would_be is None else _of_a_point(would_be),
        evidence=lambda: PrivacyProfile.of_points(points),
    )
