"""Settings of a spec for deployments alone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gossamer.section import Section

_LONGEST = 86400


def on_or_off(value: Any) -> Any:
    """YAML 1.1 reads on and off as truth values."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _deadline(value: Any) -> Any:
    """One line for what is none of all that a deadline may be."""
    value = on_or_off(value)
    try:
        known = value in ("auto", "on", "off") or 0 < float(value) <= _LONGEST
    except (TypeError, ValueError, OverflowError):
        known = False
    if not known:
        raise ValueError(f"expected auto, on, off, or seconds above 0 and at most {_LONGEST}")
    return value


class DeploymentSettings(Section):
    """Settings for parties that each run a process of their own; a simulation is the same whatever they say.

    Attributes
    ----------
    release_deadline : {"auto", "on", "off"} or float
        Whether a node gets the answers of its data side at multiples of a deadline, so that their times do not tell how
        many examples were sampled. ``auto``: for networks. ``on``: for linear models too. A number of
        seconds, for either: the deadline is the least multiple of these that a node can keep, by what it measures;
        otherwise it is as measured.
    """

    release_deadline: Annotated[
        Literal["auto", "on", "off"] | Annotated[float, Field(gt=0, le=_LONGEST)], BeforeValidator(_deadline)
    ] = "auto"
