"""Fates of the parties of a drill: how much later each ended, how much later it may, and what was charged."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from gossamer.faults.drilled_runs import Found
from gossamer.faults.incidents import Incident, Script, duration

_INSTANT = 1.0
"""Seconds in which frames are under way: nobody who waits for nobody ends later by more than that."""


@dataclass(frozen=True)
class Fate:
    """Fate of one party in a drill.

    Attributes
    ----------
    party : str
        Its name.
    incident : str
        In words.
    delay : float or None
        Seconds by which it ended later than without incidents; None if it did not end.
    allowed : float
        Most seconds of that.
    charged : int
        Releases in its ledger.
    end, note : str
        In words; the note is what it said of an old copy.
    """

    party: str
    incident: str
    delay: float | None
    allowed: float
    charged: int | None
    end: str
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """A run with incidents beside the same one without.

    Attributes
    ----------
    parties : collection of str
        Those with data, who come to an end of their own.
    script : Script
        What happened.
    quiet, ran : Found
        The ends of the run without, and with it.
    deadline, retry : float
        Most seconds for which a round waits for one who is away, and most between two retries.
    """

    parties: Collection[str]
    script: Script
    quiet: Found
    ran: Found
    deadline: float
    retry: float

    def fate(self, name: str) -> Fate:
        """Fate of a node."""
        incidents, ran = self.script.of(name), self.ran
        gone = any(math.isinf(incident.lasts) for incident in incidents)
        ended, before = ran.ended.get(name), self.quiet.ended.get(name)
        delay = None if gone or ended is None or before is None else ended - before
        said = ran.refused.get(name)
        end = "gone" if gone else "finished" if ended is not None else "goes on" if name in self.parties else "serves"
        note = "" if said is None else f"its old copy is refused, as {said}"
        words = ", ".join(map(str, incidents)) or "none"
        return Fate(name, words, delay, self._allowed(name), ran.charged[name], end, note)

    def wrong(self, fate: Fate) -> list[str]:
        """Faults found at a party, a line each."""
        name, found = fate.party, []
        given, asked = self.ran.given[name], self.ran.asked[name]
        if fate.end == "goes on":
            found.append(f"{name} has not finished")
        elif fate.delay is not None and fate.delay > fate.allowed:
            found.append(f"{name} ends {duration(fate.delay)} later, expected {duration(fate.allowed)} at most")
        if fate.charged is not None and not given <= fate.charged <= asked:
            found.append(
                f"the ledger of {name} has {fate.charged} releases, and its node asked for {asked}, of which it was "
                f"given {given}"
            )
        return found

    def _allowed(self, name: str) -> float:
        """Most seconds by which a party may end later.

        Its own outages and the broker's, each with one retry; of a process that was killed the retry is that of the
        update it was at. Where rounds wait, one deadline for each incident of anybody.
        """
        mine = [one for one in self.script.incidents if one.party in (None, name) and not math.isinf(one.lasts)]
        allowed = sum(one.lasts + self._retry(one) for one in mine)
        return allowed + len(self.script.incidents) * self.deadline + _INSTANT

    def _retry(self, incident: Incident) -> float:
        again = incident.copied if incident.copied and self.ran.refused.get(incident.party or "") is None else 0.0
        return self.retry + (self.ran.longest + again if incident.kind in ("killed", "backup") else 0.0)
