"""What all parts of a policy have in common: no unknown keys, no numbers that are none."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-5 as a text, which pydantic makes a number of; ``yes`` is none."""
    if isinstance(value, bool):
        raise ValueError("input should be a number")
    return value


Number = Annotated[float, BeforeValidator(_number)]


class Part(BaseModel):
    """A mapping of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
