"""Words for what a run prints of itself: who takes part, what is counted, and whose model is meant."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.errors import counted


@dataclass(frozen=True)
class Words:
    """Words of one run.

    Attributes
    ----------
    party : str
        For one of those that hold data.
    made : str
        For one of what is counted, such as an update, or a sum of updates that a server makes.
    server : str or None
        Name of the one server of all, if there is one.
    shared : bool
        Whether somebody has the run's model: where each learns alone, nobody has the mean of all.
    figures : str
        Words below the figures of all parties.
    """

    party: str = "node"
    made: str = "update"
    server: str | None = None
    shared: bool = True
    figures: str = ""

    @property
    def model(self) -> str:
        """The run's model."""
        return "mean model" if self.server is None else f"{self.server}'s model"

    def parties(self, number: int) -> str:
        """So many of them, and their server if they have one."""
        theirs = "its" if number == 1 else "their"
        return counted(number, self.party) + ("" if self.server is None else f" and {theirs} server")
