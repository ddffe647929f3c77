"""Nodes of a simulation that lie: they do as their algorithm says, and what they send is not what they have."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat

from gossamer.randomness import stream
from gossamer.runtimes.loop import CarryOut
from gossamer.section import Section
from gossamer.vectors import Blank, Public, Vector


class HostileSettings(Section):
    """Nodes that lie in every message, in simulations alone. The run's model is that of the others.

    Attributes
    ----------
    nodes : list of int
        Their numbers.
    attack : {"sign_flip", "scaled", "drift", "nan"}
        Lie about each vector v that they send. ``sign_flip``: -v. ``scaled``: ``factor`` times v. ``drift``: v and
        ``factor`` times its length in one direction, always and for all the same. ``nan``: no numbers.
    factor : float
        Factor of ``scaled`` and ``drift``.
    """

    nodes: tuple[NonNegativeInt, ...] = Field(min_length=1)
    attack: Literal["sign_flip", "scaled", "drift", "nan"] = "sign_flip"
    factor: PositiveFloat = 10.0

    def lie(self, value: Any, seed: int) -> Any:
        """Return what is sent in the place of a ``value``; vectors [size] alone are lied about."""
        if not isinstance(value, Vector) or isinstance(value.values, Blank):
            return value
        if self.attack == "drift":
            direction = stream(seed, "hostile").standard_normal(value.size)
            far = self.factor * np.linalg.norm(value.values) / np.linalg.norm(direction)
            return value + Public((far * direction).astype(value.values.dtype))
        return value * {"sign_flip": -1.0, "scaled": self.factor, "nan": math.nan}[self.attack]


def lying(
    send: CarryOut, hostile: HostileSettings, liars: Container[str], units: Mapping[str, str], seed: int
) -> CarryOut:
    """Return what carries out a `Send`, with vectors of messages of ``liars`` replaced, but to nodes of their units."""

    def lie(name: str, effect: Any, now: float) -> None:
        if name in liars and units.get(effect.to) != name:
            said = {field.name: getattr(effect.message, field.name) for field in fields(effect.message)}
            lies = {key: hostile.lie(value, seed) for key, value in said.items()}
            effect = replace(effect, message=replace(effect.message, **lies))
        send(name, effect, now)

    return lie
