"""Seeds of faults: the first that fails, shortened, and how to run it again.

    trial = Trial.of(experiment)
    seed = first_failing(trial, range(2000))
    if seed is not None:
        print(Failure.of(trial, seed))

A *trial* says what is run and what must hold (`faults.trials`); a *schedule* is all that goes wrong
(`faults.schedules`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gossamer.faults.schedules import Schedule, shortened
from gossamer.faults.trials import Trial


@dataclass(frozen=True)
class Failure:
    """A seed that fails.

    Attributes
    ----------
    seed : int
        Which.
    problem : str
        What does not hold, with the shortest schedule that still fails.
    schedule : Schedule
        That one.
    nodes : tuple of str
        Of the run.
    story : tuple of str
        What went wrong in it, in order, a line each.
    """

    seed: int
    problem: str
    schedule: Schedule
    nodes: tuple[str, ...]
    story: tuple[str, ...]

    @classmethod
    def of(cls, trial: Trial, seed: int) -> Failure:
        """Failure of a seed that fails.

        Raises
        ------
        ValueError
            If it does not.
        """
        schedule = trial.schedule(seed)
        if trial.problem(schedule) is None:
            raise ValueError(f"seed {seed} does not fail")
        shortest = shortened(schedule, lambda candidate: trial.problem(candidate) is not None, len(trial.runs))
        story: list[str] = []
        problem = trial.problem(shortest, story.append)
        return cls(seed, problem or "", shortest, trial.runs[shortest.variant].names, tuple(story))

    def __str__(self) -> str:
        schedule = self.schedule
        faults = [f"  {fault}" for fault in schedule.faults] or ["  no fault at all"]
        return "\n".join(
            [
                f"seed {self.seed} fails at {self.problem}",
                f"nodes: {', '.join(self.nodes)}; a snapshot every {schedule.every} inputs, {schedule.busy:g} s to "
                f"store a turn, {'messages in chunks, ' if schedule.chunks else ''}clocks {schedule.skew:g} s apart",
                "shortest schedule that still fails:",
                *faults,
                "what happened:",
                *(f"  {line}" for line in self.story),
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """The failure as plain data."""
        return {
            "seed": self.seed,
            "problem": self.problem,
            "nodes": list(self.nodes),
            "faults": [str(fault) for fault in self.schedule.faults],
            "story": list(self.story),
        }


def first_failing(trial: Trial, seeds: Iterable[int]) -> int | None:
    """The first of ``seeds`` that fails."""
    return next((seed for seed in seeds if trial.problem(trial.schedule(seed)) is not None), None)
