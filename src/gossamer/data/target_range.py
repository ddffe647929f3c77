"""Public constants of a regression's target: models learn it near -1 to 1, and people see it in its own unit.

A clip limits how far one example moves a model, so a target of 130 would take a private run hundreds of steps to reach.
Nothing here is learnt from targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Tag, ValidationError, model_validator

from gossamer.data.columns import Constants
from gossamer.errors import DataError
from gossamer.section import said

Floats = npt.NDArray[np.float64]


class TargetRange(Constants):
    """Constants that targets of a regression are scaled by; a list of two numbers is short for its ``range``.

    Attributes
    ----------
    range : list of float, optional
        The least and the most that targets can be: mapped to -1 and 1. Training examples outside are taken for the
        nearer one.
    mean, deviation : float, optional
        Published figures of such targets: the mean is taken off them, and they are divided by the deviation.
    """

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return {"range": list(given)}
        if not isinstance(given, Mapping | cls):
            raise ValueError(f"expected the least and the most target, such as [80, 200], found {given!r:.40}")
        return given

    @model_validator(mode="after")
    def _some(self) -> TargetRange:
        if not self.scaled:
            raise ValueError("give the least and the most target, such as [80, 200], or a mean and a deviation")
        return self

    @property
    def unit(self) -> float:
        """The target's own units in one of the model's."""
        return self.shift_and_unit[1]

    def inside(self, targets: npt.ArrayLike, *, clipped: bool) -> npt.NDArray[np.float32]:
        """Targets [n] as a model learns them.

        Parameters
        ----------
        targets : array_like [n]
            In their own unit.
        clipped : bool
            Whether those outside of the range are taken for its nearer end.

        Raises
        ------
        DataError
            If one is no finite number of float32 then.
        """
        values = np.asarray(targets, np.float64)
        if clipped and self.range is not None:
            low, high = self.range
            values = values.clip(low, high)
        found = self._scaled(values)
        if not np.isfinite(found).all():
            raise DataError(
                f"the target {values[~np.isfinite(found)][0]:g} is no finite number of float32 once it is scaled by "
                "the target's range; correct it"
            )
        return found

    def _scaled(self, values: Floats) -> npt.NDArray[np.float32]:
        shift, unit = self.shift_and_unit
        with np.errstate(over="ignore"):
            found: npt.NDArray[np.float32] = ((values - shift) / unit).astype(np.float32)
        return found

    def own(self, targets: npt.NDArray[Any]) -> Floats:
        """Targets or predictions [n] of a model in their own unit."""
        shift, unit = self.shift_and_unit
        return np.asarray(targets, np.float64) * unit + shift

    def exactly(self, targets: npt.NDArray[Any]) -> Floats:
        """Targets [n] in their own unit that are, once more scaled, just these: of all that round to them, one."""
        found = self.own(targets)
        for near in (found, np.nextafter(found, np.inf), np.nextafter(found, -np.inf)):
            found = np.where(self._scaled(near) == targets, near, found)
        return found


NoTargetRange = Literal["none"]
"""Targets are learnt as they are, and that is meant."""

# The tags have a bracket, so that errors do not show them as keys.
TargetSettings = Annotated[
    Annotated[NoTargetRange, Tag("[none]")] | Annotated[TargetRange, Tag("[range]")],
    Discriminator(lambda value: "[none]" if isinstance(value, str) and value == "none" else "[range]"),
]


def range_given(given: Any) -> TargetRange | NoTargetRange | None:
    """The range that a caller gives, if any.

    Raises
    ------
    DataError
        If it is none.
    """
    if given is None:
        return None
    if isinstance(given, str) and given == "none":
        return "none"
    try:
        return TargetRange.model_validate(given.tolist() if isinstance(given, np.ndarray) else given)
    except ValidationError as error:
        raise DataError(f"target_range: {said(error.errors()[0])}") from None
