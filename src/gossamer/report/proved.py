"""Guarantees of runs, read back from `guarantee.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.bounded import read_text
from gossamer.privacy.guarantee_card import FILE, LARGEST, GuaranteeCard, GuaranteeEntry, read_guarantee_card
from gossamer.report.records import RunRecord


@dataclass(frozen=True)
class Proved:
    """Everything that is proved of runs.

    Attributes
    ----------
    card : GuaranteeCard
        By observer.
    runs : tuple of RunRecord
        For which it is the same.
    """

    card: GuaranteeCard
    runs: tuple[RunRecord, ...]

    @property
    def first(self) -> GuaranteeEntry:
        """The guarantee that the noise is planned for."""
        return self.card.guarantees[0]


def proved_of(records: Sequence[RunRecord]) -> list[Proved]:
    """Return what is proved, once for all runs of which it is the same; nothing of runs that do not say it.

    Raises
    ------
    DataError
        If a card is damaged, or of another version.
    """
    found: dict[str, Proved] = {}
    for record in records:
        file = record.path / FILE
        if file.exists():
            card = read_guarantee_card(read_text(file, LARGEST), file)
            key = _same_for_all(card)
            found[key] = Proved(card, (*(found[key].runs if key in found else ()), record))
    return list(found.values())


def _same_for_all(card: GuaranteeCard) -> str:
    """All that a card says but for what names its run."""
    text = card.model_copy(update={"receipts": None, "software": None}).to_json()
    return text.replace(f'"run": {json.dumps(card.guarantees[0].run, ensure_ascii=False)}', "")
