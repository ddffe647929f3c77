"""Series in a policy: runs that an owner fixes beforehand, and the part of the budget that is set aside for them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from gossamer.privacy.accounting.series import MOST_RELEASES, Series, SeriesPlan
from gossamer.section import Section

_Some = Annotated[StrictInt, Field(ge=1, le=MOST_RELEASES)]


class SeriesPlanRule(Section):
    """Runs of one plan, with Gaussian noise. A run that releases less, with more noise, is one of them, too.

    Attributes
    ----------
    runs : int
        How many.
    releases : int
        Of each run.
    sampling_rate : float
        The largest share of the data that a release is made from.
    noise_multiplier : float
        The smallest: standard deviation over the clip.
    sampling : {"poisson", "fixed_size"}
        How a batch is drawn.
    """

    runs: _Some
    releases: _Some
    sampling_rate: Annotated[float, Field(gt=0, le=1)]
    noise_multiplier: Annotated[float, Field(ge=0.01, le=1e6)]  # as of gossamer account
    sampling: Literal["poisson", "fixed_size"] = "poisson"


class SeriesRule(Section):
    """Runs that are fixed beforehand.

    Attributes
    ----------
    epsilon, delta : float
        What is set aside for all of them together. It is enough if their accountant says so, without a filter's price.
    plans : list of SeriesPlanRule
        Which runs they are.
    """

    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    plans: Annotated[list[SeriesPlanRule], Field(min_length=1)]

    def named(self, name: str) -> Series:
        """The series under its name."""
        return Series(name, self.epsilon, self.delta, tuple(SeriesPlan(**plan.model_dump()) for plan in self.plans))
