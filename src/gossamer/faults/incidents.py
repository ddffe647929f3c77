"""Incidents of a drill: what befalls which party, when and for how long, as a YAML file says it.

    spread: 600
    incidents:
      - {kind: network, party: node-1, at: 3600, seconds: 360}
      - {kind: broker, at: 19800, seconds: 120}

What each kind comes to in virtual time stands in `FAULTS`; with real processes a script has a table of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, ValidationError, model_validator

from gossamer.bounded import read_text
from gossamer.errors import SpecError
from gossamer.experiment.reading import describe
from gossamer.experiment.wording import found_in
from gossamer.faults.network import Partition
from gossamer.faults.schedules import Fault, Kill
from gossamer.randomness import stream
from gossamer.section import Section
from gossamer.strict_yaml import load_yaml

_STOPPING = ("killed", "gone", "backup")
"""Kinds that end a process."""
_EXAMPLE = "write such as incidents: [{kind: network, party: node-1, at: 3600, seconds: 360}]"
LONGEST = 1e7
"""Seconds that an incident with an end may last: four months of retries, which a drill goes through one by one."""
MOST_KEPT = 3
"""Staged inputs that may have reached the disk when a process is killed while it saves: none to two."""


class Incident(Section):
    """One incident.

    Attributes
    ----------
    kind : {"network", "broker", "killed", "gone", "backup"}
        ``network``: the party reaches nobody. ``broker``: nobody reaches anybody. ``killed``: its process, at its first
        save from then on, and started again. ``gone``: killed, and never started again. ``backup``: killed, started on
        an old copy of its state, and last on the newest.
    party : str, optional
        Of all kinds but ``broker``.
    at, seconds : float
        When it begins, and how long it lasts.
    copied : float, optional
        Of ``backup``: how long before it the copy was made.
    """

    kind: Literal["network", "broker", "killed", "gone", "backup"]
    party: str | None = None
    at: NonNegativeFloat
    seconds: Annotated[float, Field(gt=0, le=LONGEST)] | None = None
    copied: PositiveFloat | None = None

    @model_validator(mode="after")
    def _says_what_its_kind_needs(self) -> Self:
        wanted = {"party": self.kind != "broker", "seconds": self.kind != "gone", "copied": self.kind == "backup"}
        for key, needed in wanted.items():
            if (getattr(self, key) is not None) != needed:
                raise ValueError(f"{self.kind} {f'needs {key}; add it' if needed else f'has no {key}; leave it out'}")
        if self.copied is not None and self.copied > self.at:
            raise ValueError(
                f"a copy is made in the run, found copied {self.copied:g} s before {self.at:g} s; lower copied, or "
                "raise at"
            )
        return self

    @property
    def lasts(self) -> float:
        """Seconds; infinite for ever."""
        return math.inf if self.seconds is None else self.seconds

    def __str__(self) -> str:
        return _WORDS[self.kind].format(lasts="" if self.seconds is None else duration(self.seconds))


class Script(Section):
    """All that happens in a drill.

    Attributes
    ----------
    spread : float
        Seconds by which a seed moves each incident at most, either way.
    incidents : list of Incident
        In any order.
    """

    spread: NonNegativeFloat = 0.0
    incidents: tuple[Incident, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _nothing_happens_to_whoever_is_away(self) -> Self:
        stopping = sorted((one for one in self.incidents if one.kind in _STOPPING), key=lambda one: one.at)
        moved = f", and a seed moves each by up to {self.spread:g} s" if self.spread else ""
        last: dict[str | None, Incident] = {}
        for incident in stopping:
            before = last.get(incident.party)
            if before is not None and incident.at - before.at - before.lasts < 2 * self.spread:
                raise ValueError(
                    f"incidents: {incident.party} has no process that could be hit at {incident.at:g} s ({incident}), "
                    f"as it is away from {before.at:g} s on ({before}){moved}; let one of the two happen at another "
                    "time"
                )
            last[incident.party] = incident
        return self

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file.

        Raises
        ------
        SpecError
            With one line that names the file and what is wrong there.
        """
        try:
            content = load_yaml(read_text(path))[0]
            if not isinstance(content, Mapping):
                raise SpecError(f"expected the key incidents with a list, found {found_in(content)}; {_EXAMPLE}")
            return cls.model_validate(content)
        except OSError as error:
            raise SpecError(f"{path}: cannot read the incidents: {error.strerror}") from None
        except ValidationError as error:
            raise SpecError(f"{path}: {'; '.join(describe(error, cls))}") from None
        except SpecError as error:
            where = f"{path}, " if str(error).startswith("line ") else f"{path}: "
            raise SpecError(f"{where}{error}") from None

    def moved(self, seed: int) -> Self:
        """The script as a seed has it: each incident a little earlier or later."""
        moves = stream(seed, "incidents").uniform(-self.spread, self.spread, len(self.incidents)).round(2).tolist()
        incidents = [
            incident.model_copy(update={"at": max(incident.at + by, incident.copied or 0.0)})
            for incident, by in zip(self.incidents, moves, strict=True)
        ]
        return self.model_copy(update={"incidents": tuple(incidents)})

    def without_broker(self) -> Self:
        """The incidents of single parties."""
        incidents = tuple(incident for incident in self.incidents if incident.party is not None)
        return self.model_copy(update={"incidents": incidents})

    def only(self, party: str) -> Self:
        """The incidents of one party."""
        return self.model_copy(update={"incidents": tuple(self.of(party))})

    @property
    def parties(self) -> tuple[str, ...]:
        """Parties that something befalls, each once."""
        return tuple(dict.fromkeys(incident.party for incident in self.incidents if incident.party is not None))

    def of(self, party: str) -> list[Incident]:
        """Incidents of one party alone."""
        return [incident for incident in self.incidents if incident.party == party]

    def check(self, parties: Sequence[str]) -> None:
        """Refuse incidents of parties that there are not, and after which there is none.

        Raises
        ------
        SpecError
            Which.
        """
        for number, incident in enumerate(self.incidents):
            if incident.party is not None and incident.party not in parties:
                raise SpecError(
                    f"incidents.{number}.party: expected one with data, {', '.join(parties)}, found "
                    f"{incident.party!r}; name one of these"
                )
        if set(parties) <= {incident.party for incident in self.incidents if math.isinf(incident.lasts)}:
            raise SpecError(f"incidents: all of {', '.join(parties)} are gone for ever; leave one of them there")

    def faults(self, seed: int, parties: Sequence[str]) -> tuple[Fault, ...]:
        """The incidents in virtual time; how torn a write is follows from the seed."""
        generator = stream(seed, "torn writes")
        found = [FAULTS[incident.kind](incident, parties, generator) for incident in self.incidents]
        return tuple(fault for faults in found for fault in faults)


def _cut(incident: Incident, parties: Sequence[str], generator: np.random.Generator) -> list[Fault]:
    """One party cut off, or each from all others: nothing goes through a broker that is not there."""
    alone = parties if incident.party is None else (incident.party,)
    return [Partition(incident.at, incident.at + incident.lasts, frozenset({name})) for name in alone]


def _killed(incident: Incident, parties: Sequence[str], generator: np.random.Generator) -> list[Fault]:
    assert incident.party is not None
    kept = int(generator.integers(MOST_KEPT))
    copied = None if incident.copied is None else incident.at - incident.copied
    return [Kill(incident.party, incident.at, incident.lasts, incident.kind == "killed", kept, copied)]


FAULTS: Mapping[str, Callable[[Incident, Sequence[str], np.random.Generator], list[Fault]]] = {
    "network": _cut,
    "broker": _cut,
    "killed": _killed,
    "gone": _killed,
    "backup": _killed,
}
"""What each kind comes to."""

_WORDS = {
    "network": "no network for {lasts}",
    "broker": "broker away for {lasts}",
    "killed": "killed while it saves, {lasts}",
    "gone": "gone for ever",
    "backup": "old backup, {lasts}",
}


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
