"""The plan of clients whose local steps are noisy, and in which the privacy unit is one example, or a person's.

Every step is an ordinary release of a sample of the client's own examples, and is planned like those of other
algorithms: as many as there are steps in the updates that a client makes, each amplified by its own sampling. Whether a
client is in a round amplifies nothing, as all may see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.problem import Problem
from gossamer.algorithms.sample_noise import Schedule
from gossamer.algorithms.sample_plan import SamplePlan
from gossamer.algorithms.sample_planning import plan_schedules, quotas_of
from gossamer.algorithms.stopping import StopSettings
from gossamer.errors import counted


@dataclass(frozen=True, kw_only=True)
class SteppingPlan(SamplePlan):
    """The plan of clients that release each of their local steps.

    Attributes
    ----------
    steps : dict of str to int
        Of each client's updates.
    """

    steps: dict[str, int]

    called = "client"

    @property
    def updates(self) -> int:
        """Most updates of all clients together: what a server counts."""
        return sum(self.in_run(name) // steps for name, steps in self.steps.items())

    @property
    def work(self) -> str:
        """Updates and their steps, in words."""
        return f"{super().work} in {counted(sum(map(self.in_run, self.steps)), 'noisy step')}"


def check_steps(settings: ClientSettings) -> Iterator[str]:
    """The rules that settings break where steps are noisy, a line each."""
    if settings.curated:
        yield (
            "algorithm.noise_by: with privacy_unit: example each client adds the noise to its own steps, and no server "
            "has a sum to add noise to; leave noise_by out, or take privacy_unit: client"
        )
    if settings.masking is not None:
        yield (
            "algorithm.masking: with privacy_unit: example each client adds the noise to its own steps, and masks "
            "share that of whole updates; leave one of the two out"
        )


def plan_steps(problem: Problem[Any], most: Mapping[str, int], stop: StopSettings) -> SteppingPlan:
    """The plan of clients that make so many steps each, at most.

    Raises
    ------
    SpecError
        If there are none, or settings do not fit together.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    settings, sizes = problem.settings, problem.shard_sizes
    schedules: dict[str, Schedule] = {
        name: {problem.sampling(name, settings.batch_size): steps} for name, steps in most.items()
    }
    made = partial(SteppingPlan, steps={name: settings.asks(sizes[name]) for name in problem.names})
    return plan_schedules(problem, stop, quotas_of(problem, stop), schedules, made)
