"""Scales that a spec may name: constants that are public, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from gossamer.data.columns import Constants
from gossamer.section import Section

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class DeclaredScale(Section):
    """Each number is scaled by the constants of its column (``dataset.columns``)."""

    name: Literal["declared"] = "declared"


class NoScale(Section):
    """Numbers are left as they are; this also says that it is meant."""

    name: Literal["none"] = "none"


class ConstantScale(Constants):
    """All features are scaled by the same public constants."""

    name: Literal["constant"] = "constant"

    @model_validator(mode="after")
    def _some(self) -> ConstantScale:
        if not self.scaled:
            raise ValueError("give a range, such as [0, 255], or a mean and a deviation")
        return self


class PrivateScale(Section):
    """Numbers that no constants are declared for are scaled by ranges that nodes find together, privately.

    Before the run each node releases, once and with noise, how large the values of its columns are; the range is the
    same for all, and both kinds of releases are within one budget.

    Attributes
    ----------
    share : float
        Of the budget's epsilon that the release may cost by itself; what is left after composition is the run's.
    noise_multiplier : float, optional
        Of the release, where there is no budget, or instead of a share.
    magnitudes : list of float
        Public bounds of absolute values: the least and the most that are told apart.
    """

    name: Literal["private"] = "private"
    share: float = Field(default=0.1, gt=0, lt=1)
    noise_multiplier: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    magnitudes: Annotated[tuple[Positive, ...], Field(min_length=2, max_length=2)] = (1e-3, 1e6)

    @model_validator(mode="after")
    def _rising(self) -> PrivateScale:
        least, most = self.magnitudes
        if not least < most:
            raise ValueError(f"magnitudes must be [least, most], the least being less, found [{least:g}, {most:g}]")
        return self


def _named(given: Any) -> Any:
    """Let a text stand for a scale of that name, and constants alone for themselves."""
    if isinstance(given, str):
        return {"name": given}
    return {"name": "constant", **given} if isinstance(given, Mapping) else given


Scale = Annotated[DeclaredScale | NoScale | ConstantScale | PrivateScale, Field(discriminator="name")]
ScaleSettings = Annotated[Scale, BeforeValidator(_named)]
