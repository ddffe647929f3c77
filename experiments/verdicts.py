"""Verdicts: what a paper says, what comes out here, and whether they agree; and the pages that show them.

`expected.json` of a study:

    {"paper": "what it shows", "ours": "what comes out", "verdict": one of `VERDICTS`,
     "bounds": "bounds of ours that the verdict hangs on, where the paper has words alone", or "none",
     "cut": "what is smaller than in the paper, or another thing", or "nothing", "expectations": [...]}

A verdict must not contradict the expectations (`checks`): a study whose expectations say what fails does not *agree*.
Nor may it rest on a few lucky seeds: each expectation needs `FEWEST_SEEDS`, unless it is about one of the places of
``"once": [{axis: place, ...}, ...]``, such as twice the length; ``[{}]`` is everywhere, for what is not random.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.checks import expanded, lies_at, under_revision, unmet
from experiments.stored import Record, Stored

VERDICTS = ("agrees", "partly", "disagrees", "not comparable")
FEWEST_SEEDS = 5
BEGIN, END = "<!-- verdicts -->", "<!-- end -->"
"""Around the table in a page."""


@dataclass(frozen=True)
class Verdict:
    """What is said of a study.

    Attributes
    ----------
    paper, ours : str
        What the paper shows, and what comes out here.
    verdict : str
        Of `VERDICTS`.
    expectations : list of dict
        What it rests on.
    once : list of dict
        Places at which one seed is enough.
    bounds : str
        Bounds of our own that the verdict hangs on.
    cut : str
        What is cut, against the paper.
    """

    paper: str
    ours: str
    verdict: str
    expectations: Sequence[dict[str, Any]]
    once: Sequence[Mapping[str, str]] = ()
    bounds: str = "none"
    cut: str = "nothing"

    @classmethod
    def read(cls, folder: Path) -> Verdict:
        """That of the study in ``folder``."""
        content = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        return cls(**content)

    def problems(self, records: Sequence[Record]) -> list[str]:
        """What speaks against it: expectations that do not hold or hang on luck, and a verdict that does not follow."""
        return [*unmet(self.expectations, records), *self._inconsistent(), *self._lucky(records)]

    @property
    def revised(self) -> list[str]:
        """Expectations that are under revision, and why."""
        return under_revision(self.expectations)

    def _inconsistent(self) -> Iterator[str]:
        if self.verdict not in VERDICTS:
            yield f"verdict: expected one of {', '.join(VERDICTS)}, found {self.verdict}"
        failing = sum("fails" in one for one in expanded(self.expectations))
        if self.verdict == "agrees" and failing:
            yield f"the verdict is that it agrees, and {failing} expectations say what fails"

    def _lucky(self, records: Sequence[Record]) -> Iterator[str]:
        if self.verdict == "not comparable":
            return
        for one in expanded(self.expectations):
            at = one["left"]["of"]
            seeds = {record.get("seed", "") for record in records if lies_at(record, at)}
            if 0 < len(seeds) < FEWEST_SEEDS and not any(place.items() <= at.items() for place in self.once):
                yield f"{one['what']}: rests on {len(seeds)} seeds, expected at least {FEWEST_SEEDS}"


def seeds_of(records: Sequence[Record]) -> str:
    """Runs that differ in their seed alone, in words: the least and the most at a place."""
    places: dict[tuple[tuple[str, str], ...], set[str]] = {}
    for record in records:
        axes = [(key, value) for key, value in record.items() if isinstance(value, str) and key not in ("seed", "name")]
        places.setdefault(tuple(axes), set()).add(record.get("seed", ""))
    counts = {len(seeds) for seeds in places.values()} or {0}
    return str(max(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def commits_of(records: Sequence[Record]) -> str:
    """The commit that all records are of, or how many there are; *older* where that was not kept."""
    found = {record["made"]["commit"] if "made" in record else "older" for record in records}
    return found.pop() if len(found) == 1 else f"{len(found)} commits"


def minutes_of(records: Sequence[Record]) -> str:
    """Processor time of all records together, in minutes; nothing where that was not kept."""
    seconds = [record["made"]["seconds"] for record in records if "made" in record]
    return f"{sum(seconds) / 60:.1f}" if seconds else "-"


def table(folders: Mapping[str, Path]) -> str:
    """A line for each study, by its name; and how long all take."""
    names = ("study", "the paper", "here", "verdict", "by bounds of ours", "cut", "seeds", "minutes", "commit")
    lines, every = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"], list[Record]()
    for name, folder in folders.items():
        found, records = Verdict.read(folder), Stored.read(folder / "results.json").records
        said = f"{found.verdict}, under revision" if found.revised else found.verdict
        tuning = Stored.read(folder / "tuning.json").records
        every += [*records, *tuning]
        how = (seeds_of(records), minutes_of([*records, *tuning]), commits_of(records))
        cells = (f"[{name}]({name})", found.paper, found.ours, said, found.bounds, found.cut, *how)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"All together take {float(minutes_of(every)) / 60:.1f} hours of one core."])


def renewed(page: str, folders: Mapping[str, Path]) -> str:
    """``page`` with the table of now between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(folders)}\n\n{END}{after}"


def linked(page: str, folders: Mapping[str, Path]) -> str:
    """``page`` with the verdicts of now, wherever one is a link to its study's ``expected.json``."""

    def verdict(link: re.Match[str]) -> str:
        return f"[{Verdict.read(folders[link[1]]).verdict}]({link[1]}/expected.json)"

    return re.sub(r"\[[a-z ]+\]\(([\w/-]+)/expected\.json\)", verdict, page)
