"""The studies there are, and the files of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from experiments.stored import Stored
from experiments.sweeps import Paper, Variant
from experiments.tuning import Tuning

HERE = Path(__file__).resolve().parent
PAPERS = ("adp2sgd", "mapa", "increasing", "gfl", "claims", "baselines", "observers")


class StudyError(Exception):
    """A study that is not there."""


def paper_of(name: str) -> Paper:
    """The studies of a paper."""
    found: Paper = import_module(f"experiments.{name}.studies").PAPER
    return found


@dataclass(frozen=True)
class Study:
    """A study, at its ordinary or its full size; or beside it, what came out when it was made again."""

    paper: str
    name: str
    full: bool = False
    again: bool = False

    @property
    def title(self) -> str:
        return f"{self.paper}/{self.name}"

    @property
    def folder(self) -> Path:
        return HERE / self.paper / self.name

    @property
    def of(self) -> Paper:
        """The paper's studies."""
        return paper_of(self.paper)

    def file(self, name: str) -> Path:
        """``results.json`` or ``figure.png``, of this size."""
        path = self.folder / name
        return path.with_stem(f"{path.stem}{'-full' if self.full else ''}{'-again' if self.again else ''}")

    def refuse_place(self, only: Mapping[str, str]) -> None:
        """Say which axis, or which place on one, it does not have.

        Raises
        ------
        StudyError
            Always.
        """
        places = [one.place for one in self.variants({})]
        for axis, at in only.items():
            known = list(dict.fromkeys(place[axis] for place in places if axis in place))
            if not known:
                raise StudyError(f"{self.title}: expected one of the axes {', '.join(places[0])}; found {axis}")
            if at not in known:
                raise StudyError(f"{self.title}: expected {axis} to be one of {'; '.join(known)}; found {at}")
        raise StudyError(f"{self.title}: expected places that a run has together; found {only}")

    def variants(self, only: Mapping[str, str]) -> list[Variant]:
        """Its runs at the place ``only``."""
        return [one for one in self.of.variants(self.name, full=self.full) if only.items() <= one.place.items()]

    @property
    def tuning(self) -> Tuning | None:
        """What is tuned in it, if something is."""
        return Tuning.of(self.of.sweep(self.name), full=self.full)

    def trials(self, only: Mapping[str, str]) -> list[tuple[str, float, Variant]]:
        """The runs that tune it, at the place ``only`` as far as they have one: seeds are their own."""
        where = {axis: at for axis, at in only.items() if axis != "seed"}
        every = self.of.trials(self.name, full=self.full)
        return [one for one in every if where.items() <= one[2].place.items()]

    def trials_so_far(self) -> Stored:
        """Records of these."""
        found = Stored.read(self.file("tuning.json"))
        return Stored(list(found.records), dict(found.machines))

    def edges(self) -> list[str]:
        """Places whose tuned setting is at an edge of those that were tried."""
        if self.tuning is None:
            return []
        return self.tuning.at_an_edge(self.file("tuning.json"))

    def stored(self) -> Stored:
        """Records so far, of runs that it still has."""
        found = Stored.read(self.file("results.json"))
        return Stored(self.of.placed(self.name, found.records, full=self.full), dict(found.machines))


def every_study() -> dict[str, Study]:
    """All studies, by title."""
    return {f"{paper}/{name}": Study(paper, name) for paper in PAPERS for name in paper_of(paper).studies}


def named(names: Sequence[str], full: bool = False) -> list[Study]:
    """The studies that are named, by themselves or by their paper; all where none is.

    Raises
    ------
    StudyError
        If there is none of a name.
    """
    every = every_study()
    if unknown := [name for name in names if name not in every and name not in PAPERS]:
        paper = unknown[0].partition("/")[0]
        some = [title for title in every if title.startswith(f"{paper}/")] or [*PAPERS, f"{PAPERS[0]}/..."]
        raise StudyError(f"expected one of {', '.join(some)}; found {unknown[0]}")
    titles = [title for title in every if not names or title in names or title.partition("/")[0] in names]
    return [Study(every[title].paper, every[title].name, full) for title in titles]
