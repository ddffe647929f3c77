"""Scales that a spec may name: constants that are public, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from gossamer.data.columns import Constants
from gossamer.section import Section


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


def _named(given: Any) -> Any:
    """Let a text stand for a scale of that name, and constants alone for themselves."""
    if isinstance(given, str):
        return {"name": given}
    return {"name": "constant", **given} if isinstance(given, Mapping) else given


Scale = Annotated[DeclaredScale | NoScale | ConstantScale, Field(discriminator="name")]
ScaleSettings = Annotated[Scale, BeforeValidator(_named)]
