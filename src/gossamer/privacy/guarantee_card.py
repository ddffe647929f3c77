"""The card of guarantees, `guarantee.json`: all that is proved of a run, for programs and for those who draw it.

Figures of a card never promise more than is proved: points of a profile are few, and each is rounded up. Deltas fall as
epsilon grows and are convex in exp(epsilon), so a point whose epsilon and delta are larger still holds, and so does the
chord between two of them. Whoever reads a card finds a mu and a best guess that are not below those of the run.

The schema is `guarantee.schema.json`, beside this module.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field

from gossamer.mistakes import read_card
from gossamer.privacy.guarantees import Guarantee, PrivacyProfile, rounded_up
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.section import Section

FILE = "guarantee.json"
FORMAT: Final = 2
"""Version of the keys; no other is read."""
LARGEST = 4 << 20
"""Most characters of a card."""

_POINTS, _DIGITS = 257, 6
_ROUNDED = 1.02  # figures of few rounded points may be so much larger than the run's own
Loss = Annotated[float, Field(ge=0, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]


class ProfilePoints(Section):
    """Points of a privacy profile.

    Attributes
    ----------
    epsilons : tuple of float
        Increasing from 0.
    deltas : tuple of float
        Proved for each.
    """

    epsilons: tuple[Loss, ...] = Field(min_length=1, max_length=1000)
    deltas: tuple[Share, ...] = Field(min_length=1, max_length=1000)

    @classmethod
    def of(cls, profile: PrivacyProfile) -> ProfilePoints:
        """Few of a profile's points, rounded up."""
        kept = np.unique(np.linspace(0, len(profile.losses) - 1, _POINTS).round().astype(int))
        points = {_up(profile.losses[at]): min(_up(profile.deltas[at]), 1.0) for at in kept}
        return cls(epsilons=tuple(points), deltas=tuple(points.values()))

    def _problems(self) -> Iterator[str]:
        if len(self.epsilons) != len(self.deltas) or self.epsilons[0] != 0 or np.any(np.diff(self.epsilons) <= 0):
            yield "epsilons must increase from 0, with a delta for each"

    @cached_property
    def profile(self) -> PrivacyProfile:
        """The profile through the points."""
        return PrivacyProfile.of(np.array(self.epsilons), np.array(self.deltas))


class GuaranteeEntry(Section):
    """A guarantee against one observer; fields are those of `Guarantee`, of which nothing is infinite.

    Attributes
    ----------
    run : str
        Run that it is about, as in its receipts.
    party : str or None
        Party whose part in a deployed run it is about; None where it is about all parties of a simulated one.
    unit, neighboring_relation, observer
        Unit that is protected, relation of what it is protected from, and observer it is protected from.
    privacy : {"none"}, optional
        Mark of an entry that guarantees nothing.
    epsilon, delta : float or None
        One point of the profile, at the delta of the budget.
    mu : float or None
        Parameter of Gaussian differential privacy; None where no Gaussian trade-off curve is below the profile's.
    best_guess : float or None
        Share of right guesses of the best attacker, who would be right half the time without looking.
    profile : ProfilePoints
        All that is proved.
    rows_per_person : int or None
        The most examples of one person that are covered together.
    proof : str
        Way in which it was computed, or reason why nothing is guaranteed.
    assumptions, remarks : tuple of str
        Facts that have to be true, and what makes it weak.
    would_be : GuaranteeEntry, optional
        Guarantee that would hold if noise that is reproducible were secret.
    """

    run: str
    party: str | None
    unit: str = Field(min_length=1)
    neighboring_relation: NeighboringRelation
    observer: str = Field(min_length=1)
    privacy: Literal["none"] | None = None
    epsilon: Loss | None
    delta: Share | None
    mu: Loss | None
    best_guess: Annotated[float, Field(ge=0.5, le=1, strict=True)] | None
    profile: ProfilePoints
    rows_per_person: Annotated[int, Field(ge=1, strict=True)] | None
    proof: str
    assumptions: tuple[str, ...]
    remarks: tuple[str, ...]
    would_be: GuaranteeEntry | None = None

    @classmethod
    def of(cls, guarantee: Guarantee, run: str, party: str | None = None) -> GuaranteeEntry:
        """The entry of a guarantee about a run, or about one party's part in it."""
        would_be = None if guarantee.would_be is None else cls.of(guarantee.would_be, run, party)
        stated = {name: value for name, value in guarantee.as_dict().items() if name != "would_be"}
        points = ProfilePoints.of(guarantee.profile)
        if stated["mu"] is not None and points.profile.mu > stated["mu"] * _ROUNDED:
            # Where a guarantee says next to nothing, rounding moves the corners that decide.
            stated["mu"] = points.profile.mu if points.profile.mu < math.inf else None
        return cls(run=run, party=party, **stated, profile=points, would_be=would_be)

    def _problems(self) -> Iterator[str]:
        nothing = self.privacy == "none"
        if any((figure is None) is not nothing for figure in (self.epsilon, self.delta, self.best_guess)):
            yield "epsilon, delta and best_guess go with a guarantee, and privacy: none with nothing"
        profile = self.profile.profile
        if self.best_guess is not None and profile.accuracy > self.best_guess * _ROUNDED:
            yield "best_guess is below what the profile allows"
        if self.mu is not None and profile.mu > self.mu * _ROUNDED + 1e-6:
            yield "mu is below what the profile allows"


class ReceiptsHead(Section):
    """End of the chain of receipts that a run left behind.

    Attributes
    ----------
    releases : int
        Number of releases that it has receipts of.
    head : str
        SHA-256 that all of them go into, in hexadecimal digits.
    signature : str, optional
        The party's, of the head, in hexadecimal digits; absent in a simulation, which has no keys.
    """

    releases: Annotated[int, Field(ge=0, strict=True)]
    head: str = Field(pattern="^[0-9a-f]{64}$")
    signature: str | None = Field(default=None, pattern="^[0-9a-f]{128}$")


class Software(Section):
    """Software that a run was made by.

    Attributes
    ----------
    name, version : str
        Name and version of the distribution.
    source : str
        SHA-256 of its files.
    """

    name: str
    version: str
    source: str = Field(pattern="^sha256:[0-9a-f]{64}$")


class GuaranteeCard(Section):
    """All that is proved of a run.

    Attributes
    ----------
    format : int
        Version of these keys.
    gossamer : str
        Version that wrote it.
    guarantees : tuple of GuaranteeEntry
        Guarantees by observer; first the one that the noise is planned for.
    mechanism : mapping
        The noise that all nodes have in common, as in ``summary.json``.
    receipts : ReceiptsHead, optional
        End of the chain in ``receipts.jsonl``; absent until the run ends.
    software : Software, optional
        Software that the run was made by.
    registry : mapping, optional
        The first guarantee by the names of the registry of deployments [1], as far as a run has what it asks for.

    References
    ----------
    [1] Nanayakkara, Ghazi and Vadhan, "Practitioners' perspectives on a differential privacy deployment registry",
        arXiv 2509.13509.
    """

    format: Literal[2]
    gossamer: str
    guarantees: tuple[GuaranteeEntry, ...] = Field(min_length=1)
    mechanism: dict[str, Any]
    receipts: ReceiptsHead | None = None
    software: Software | None = None
    registry: dict[str, Any] | None = None

    @classmethod
    def of(
        cls,
        guarantees: Iterable[Guarantee],
        mechanism: Mapping[str, Any],
        version: str,
        software: Software | None = None,
        *,
        run: str,
        party: str | None = None,
    ) -> GuaranteeCard:
        """The card of ``guarantees``, each once, that Gossamer of a ``version`` writes of a run, or a party's part."""
        entries = tuple(GuaranteeEntry.of(one, run, party) for one in dict.fromkeys(guarantees))
        return cls(
            format=FORMAT,
            gossamer=version,
            guarantees=entries,
            mechanism=dict(mechanism),
            software=software,
            registry=_registered(entries[0], mechanism),
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that the card says but for the end of its receipts, by which they name it."""
        said = {name: value for name, value in json.loads(self.to_json()).items() if name != "receipts"}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def ended(self, receipts: ReceiptsHead) -> GuaranteeCard:
        """The card of a run that has ended."""
        return self.model_copy(update={"receipts": receipts})

    def to_json(self) -> str:
        """Write it as standard JSON, in one line."""
        return json.dumps(self.model_dump(mode="json"), allow_nan=False, ensure_ascii=False) + "\n"


def read_guarantee_card(text: str, where: Path) -> GuaranteeCard:
    """The card in a text, which is from the file ``where``.

    Raises
    ------
    DataError
        If it is damaged, or of another version.
    """
    return read_card(GuaranteeCard, text, where, "guarantee", LARGEST)


def _registered(entry: GuaranteeEntry, mechanism: Mapping[str, Any]) -> dict[str, Any] | None:
    """A guarantee by the names of the registry; None where nothing is guaranteed."""
    if entry.privacy == "none":
        return None
    return {
        "dp_variant": {"name": "approximate differential privacy" if entry.delta else "pure differential privacy"},
        "privacy_loss": {
            "privacy_unit": entry.unit,
            "privacy_unit_description": f"{entry.neighboring_relation.value}, against {entry.observer}",
            "privacy_parameters": {"epsilon": entry.epsilon, "delta": entry.delta},
        },
        "accounting": {"composition": entry.proof},
        "implementation": {"mechanisms": [dict(mechanism)]},
    }


def _up(bound: float) -> float:
    return float(rounded_up(bound, _DIGITS)) if math.isfinite(bound) else bound
