"""Histograms of scores that parties have released of their held-out examples, as a file has them, and their figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Self

import numpy as np

from gossamer.errors import DataError
from gossamer.files import MOST_RECORDS, as_written, read_text
from gossamer.objectives.noisy_figures import as_dict, in_words, noisy_figures
from gossamer.objectives.score_histogram import BINS, EDGES, ScoreCounts

FILE = "evaluation.json"
"""File of a results folder, or of a party's state folder, with what was released."""


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
    """

    counts: Mapping[str, Sequence[ScoreCounts]]
    groups: tuple[str, ...]
    epsilon: float | None
    prevalence: float | None = None
    run: str = ""
    expected: tuple[str, ...] = ()

    @property
    def _terms(self) -> tuple[object, ...]:
        return self.run, self.groups, self.epsilon, self.prevalence, self.expected

    @property
    def missing(self) -> list[str]:
        """Parties whose part is not here."""
        return [name for name in self.expected if name not in self.counts]

    @property
    def total(self) -> ScoreCounts:
        """Counts of all groups of all parties together."""
        return reduce(add, (one for counts in self.counts.values() for one in counts))

    def summary(self) -> dict[str, Any]:
        """Part of `summary.json`: figures of all together, of each party, and of each group."""
        grouped = zip(self.groups, zip(*self.counts.values(), strict=True), strict=True)
        groups = {name: self._figures(of) for name, of in grouped if name}
        return {
            "epsilon": self.epsilon,
            **({} if self.expected else {"together": True}),
            "figures": self._figures([self.total]),
            "parties": {name: self._figures(counts) for name, counts in self.counts.items()},
            **({"groups": groups} if groups else {}),
            **({"missing": self.missing} if self.missing else {}),
        }

    def _figures(self, counts: Sequence[ScoreCounts]) -> dict[str, Any]:
        return as_dict(noisy_figures(reduce(add, counts), prevalence=self.prevalence))

    def document(self) -> dict[str, Any]:
        """Content of the file: estimated counts [groups, 2, bins] of each party, and the deviation of the noise."""
        return {
            **({"run": self.run, "of": list(self.expected)} if self.run else {}),
            "epsilon": self.epsilon,
            "prevalence": self.prevalence,
            "edges": EDGES.tolist(),
            "groups": list(self.groups),
            "parties": {
                name: {
                    "rows": sum(one.rows for one in counts),
                    "noise": math.sqrt(counts[0].variance),
                    "counts": [one.counts.tolist() for one in counts],
                }
                for name, counts in self.counts.items()
            },
        }

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return what the folder of a run or of a deployed party has; None where it has nothing.

        Raises
        ------
        DataError
            If the file is not what a party writes.
        """
        if not (folder / FILE).exists():
            return None
        what = "what a party released of its held-out examples"
        with as_written(folder / FILE, what, "ask the party for its copy"):
            found = json.loads(read_text(folder / FILE, MOST_RECORDS))
            share = 1 / len(found["groups"])
            if not np.allclose(found["edges"], EDGES):
                raise ValueError
            counts = {
                str(name): [
                    ScoreCounts(_finite(one).reshape(2, BINS), float(part["noise"]) ** 2, float(part["rows"]) * share)
                    for one in part["counts"]
                ]
                for name, part in found["parties"].items()
            }
            if {len(of) for of in counts.values()} != {len(found["groups"])}:
                raise ValueError
            groups, expected = (tuple(map(str, found.get(name, ()))) for name in ("groups", "of"))
            return cls(counts, groups, found["epsilon"], found["prevalence"], str(found.get("run", "")), expected)

    @classmethod
    def together(cls, found: Sequence[Self]) -> Self:
        """Return the parts of one run as one.

        Raises
        ------
        DataError
            If two are not parts of one release, or two differ that are of one party.
        """
        first, counts = found[0], dict[str, Sequence[ScoreCounts]]()
        for one in found:
            if one._terms != first._terms:
                raise DataError(f"{FILE} of {', '.join(one.counts)} is of another release; give those of one run")
            for name, of in one.counts.items():
                if name in counts:
                    raise DataError(f"{FILE} of {name} is there twice; give each party's folder once")
                counts[name] = of
        ordered = {name: counts[name] for name in (*first.expected, *counts) if name in counts}
        return replace(first, counts=ordered)


def _finite(values: Any) -> Any:
    found = np.asarray(values, np.float64)
    if not np.isfinite(found).all():
        raise ValueError
    return found


_EACH = "histograms of scores that each party released once"


def evaluation_lines(found: Mapping[str, Any], noise: str) -> Iterator[str]:
    """Yield a `ReleasedScores.summary` in words, a line for all together and for each group and party."""
    what = "the sum of all parties' histograms of scores" if found.get("together") else _EACH
    yield f"Private evaluation, of {what}, {noise} (95 % intervals):"
    if found.get("missing"):
        yield f"  - without {', '.join(found['missing'])}, whose part is missing"
    each = found["parties"] if len(found["parties"]) > 1 else {}
    figures = {"all": found["figures"], **found.get("groups", {}), **each}
    yield from (f"  - {name}: {in_words(one)}" for name, one in figures.items())
