"""Histograms of scores that parties have released of their held-out examples, as a file has them, and their figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from gossamer.errors import DataError
from gossamer.files import MOST_RECORDS, as_written, read_text
from gossamer.objectives.noisy_figures import in_words, nearest, noisy_figures
from gossamer.objectives.score_histogram import BINS, SIZE, ScoreCounts, edges, middle

FILE = "evaluation.json"
"""File of a results folder, or of a party's state folder, with what was released."""


class MaskedPart(NamedTuple):
    """A party's noisy histogram behind masks: public number of rows, deviation of its noise, integers modulo 2^64."""

    rows: float
    noise: float
    values: npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class ReleasedScores:
    """Releases of parties.

    Attributes
    ----------
    counts : mapping of str to sequence of ScoreCounts
        Counts of each party, by group.
    groups : tuple of str
        Names of the groups; one without a name where there are none.
    epsilon : float or None
        Guarantee of each held-out example; None where nothing is guaranteed.
    prevalence : float, optional
        Share of the second label, as declared.
    run : str
        Name of the deployed run; empty of a simulation.
    expected : tuple of str
        All parties with data; empty where there is the sum over them alone.
    masked : mapping of str to MaskedPart
        Parts of parties of whom the sum alone is to be seen, which takes all of them.
    step : float
        Step of the grid that these are on.
    """

    counts: Mapping[str, Sequence[ScoreCounts]]
    groups: tuple[str, ...]
    epsilon: float | None
    prevalence: float | None = None
    run: str = ""
    expected: tuple[str, ...] = ()
    masked: Mapping[str, MaskedPart] = field(default_factory=dict)
    step: float = 0.0

    @property
    def _terms(self) -> tuple[object, ...]:
        return self.run, self.groups, self.epsilon, self.prevalence, self.expected, self.step

    @property
    def missing(self) -> list[str]:
        """Parties whose part is not here."""
        return [name for name in self.expected if name not in self.counts and name not in self.masked]

    @property
    def total(self) -> ScoreCounts:
        """Counts of all groups of all parties together; none where a sum cannot be opened."""
        nothing = ScoreCounts(np.zeros((2, BINS)), 0.0, 0.0, middle(self.prevalence))
        return reduce(add, (one for counts in self.counts.values() for one in counts), nothing)

    def opened(self) -> Self:
        """Return the sum over all parties in the place of their masked parts, where all are here.

        Raises
        ------
        DataError
            If their masks do not cancel.
        """
        if not self.masked or self.missing:
            return self
        parts = self.masked.values()
        sums = np.sum([part.values for part in parts], axis=0, dtype=np.uint64).view(np.int64) * self.step
        rows, noise = sum(part.rows for part in parts), math.hypot(*(part.noise for part in parts))
        if np.abs(sums).max() > rows + _FAR * noise:
            raise DataError(
                f"{FILE} of {', '.join(self.masked)} do not fit together, since their masks stay in the sum; ask for "
                "copies, and try gossamer verify on the folder of each"
            )
        split = np.split(sums, len(self.groups))
        around = middle(self.prevalence)
        counts = [ScoreCounts.of(one, noise, rows / len(self.groups), around) for one in split]
        return replace(self, counts={_SUM: counts}, expected=(), masked={})

    def summary(self, threshold: float = 0.5) -> dict[str, Any]:
        """Return figures of all together, of each party, and of each group.

        Parameters
        ----------
        threshold : float
            Probability from which a row counts as of the second label. Figures are at the nearest one that releases
            tell of, ``threshold`` of what is returned.

        Raises
        ------
        CallerError
            If it is no probability.
        """

        def figures(counts: Sequence[ScoreCounts]) -> dict[str, Any]:
            found = noisy_figures(reduce(add, counts), threshold, self.prevalence)
            return {name: one._asdict() for name, one in found.items()}

        grouped = zip(self.groups, zip(*self.counts.values(), strict=True))  # of none, where a sum is not opened
        groups = {name: figures(of) for name, of in grouped if name}
        return {
            "epsilon": self.epsilon,
            **({} if self.expected and not self.masked else {"together": True}),
            "figures": figures([self.total]),
            "threshold": nearest(threshold, middle(self.prevalence)),
            "parties": {name: figures(counts) for name, counts in self.counts.items()},
            **({"groups": groups} if groups else {}),
            **({"missing": self.missing} if self.missing else {}),
        }

    def document(self) -> dict[str, Any]:
        """Content of the file: estimated counts [groups, 2, bins] of each party, and the deviation of the noise.

        Masked integers are written as bytes, the lowest first, in hexadecimal digits.
        """
        masked = {
            name: {**part._asdict(), "values": part.values.astype("<u8").tobytes().hex()}
            for name, part in self.masked.items()
        }
        return {
            **({"run": self.run, "of": list(self.expected)} if self.run else {}),
            "epsilon": self.epsilon,
            "prevalence": self.prevalence,
            "edges": edges(middle(self.prevalence)).tolist(),
            "groups": list(self.groups),
            "parties": {
                name: {
                    "rows": sum(one.rows for one in counts),
                    "noise": math.sqrt(counts[0].variance),
                    "counts": [one.counts.tolist() for one in counts],
                }
                for name, counts in self.counts.items()
            },
            **({"step": self.step, "masked": masked} if masked else {}),
        }

    @classmethod
    def read(cls, folder: str | Path) -> Self | None:
        """Return what the folder of a run or of a deployed party has; None where it has nothing.

        Raises
        ------
        DataError
            If the file is not what a party writes.
        """
        place = Path(folder) / FILE
        if not place.exists():
            return None
        what = "what a party released of its held-out examples"
        with as_written(place, what, "ask the party for its copy"):
            found = json.loads(read_text(place, MOST_RECORDS))
            share, around = 1 / len(found["groups"]), middle(found["prevalence"])
            if not np.allclose(_finite(found["edges"]), edges(around)):
                raise ValueError
            counts = {
                str(name): [
                    ScoreCounts(one, float(part["noise"]) ** 2, float(part["rows"]) * share, around)
                    for one in _finite(part["counts"]).reshape(-1, 2, BINS)
                ]
                for name, part in found["parties"].items()
            }
            masked = {
                str(name): MaskedPart(
                    float(part["rows"]), float(part["noise"]), np.frombuffer(bytes.fromhex(part["values"]), "<u8")
                )
                for name, part in found.get("masked", {}).items()
            }
            sizes = {len(of) for of in counts.values()} | {part.values.size / SIZE for part in masked.values()}
            step = float(found.get("step", 0))
            # Squares of many deviations are added up.
            _finite([step, *(number for part in masked.values() for number in (part.rows, part.noise**4))])
            _finite([found["epsilon"] or 0, found["prevalence"] or 0])
            if sizes != {len(found["groups"])}:
                raise ValueError
            # Files of simulations name no parties that are expected: all are there, or their sum alone.
            of = found.get("of", [name for name in counts if name != _SUM])
            groups, expected = tuple(map(str, found["groups"])), tuple(map(str, of))
            run = str(found.get("run", ""))
            return cls(counts, groups, found["epsilon"], found["prevalence"], run, expected, masked, step)

    @classmethod
    def together(cls, found: Sequence[Self]) -> Self:
        """Return the parts of one run as one; of masked ones the sum, if all are here.

        Raises
        ------
        DataError
            If there are none, two are not parts of one release, or are of one party, or masks do not cancel.
        """
        if not found or None in found:
            raise DataError(
                f"expected what parties released, found a folder without {FILE}, or no folder; leave it out"
            )
        first, counts, masked = found[0], dict[str, Sequence[ScoreCounts]](), dict[str, MaskedPart]()
        for one in found:
            names = [*one.counts, *one.masked]
            if one._terms != first._terms:
                raise DataError(f"{FILE} of {', '.join(names)} is of another release; give those of one run")
            if twice := [name for name in names if name in counts or name in masked]:
                raise DataError(f"{FILE} of {twice[0]} is there twice; give each party's folder once")
            counts.update(one.counts)
            masked.update(one.masked)
        ordered = {name: counts[name] for name in (*first.expected, *counts) if name in counts}
        return replace(first, counts=ordered, masked=masked).opened()


_SUM = "all"
"""What the sum over parties is called in their place."""
_FAR = 50.0
"""Deviations that no noise is off by, and masks that stay are, but by next to no chance."""


def _finite(values: Any) -> Any:
    found = np.asarray(values, np.float64)
    if not np.isfinite(found).all():
        raise ValueError
    return found


def doubts_of(found: Mapping[str, Any]) -> list[str]:
    """Return what to say of a `ReleasedScores.summary` that bins tell little of: at most a line."""
    least = found.get("figures", {}).get("beyond_grid", {}).get("low") or 0.0
    return [_BEYOND.format(least)] if least > _MUCH else []


_MUCH = 0.1
"""Share of rows, beyond all noise, from which bins that are open to one side take away what figures say."""
_BEYOND = (
    "at least {:.0%} of held-out rows have scores beyond the grid of the histograms, where rows are not told apart, so "
    "the released area under the ROC curve, Brier score and calibration are off, and no interval knows it; declare the "
    "dataset.prevalence that there is, or train a model that is nearer to it"
)
_EACH = "histograms of scores that each party released once"


def evaluation_lines(found: Mapping[str, Any], noise: str) -> Iterator[str]:
    """Yield a `ReleasedScores.summary` in words, a line for all together and for each group and party."""
    what = "the sum of all parties' histograms of scores" if found.get("together") else _EACH
    yield f"Private evaluation, of {what}, {noise} (95 % intervals):"
    if found.get("missing"):
        shut = ", without which the sum cannot be opened" if found.get("together") else ""
        yield f"  - without {', '.join(found['missing'])}, whose part is missing{shut}"
        if shut:
            return
    each = found["parties"] if len(found["parties"]) > 1 else {}
    figures = {"all": found["figures"], **found.get("groups", {}), **each}
    yield from (f"  - {name}: {in_words(one)}" for name, one in figures.items())
