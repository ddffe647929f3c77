"""Settings that a spec may not have where nodes release samples: of noise between servers of federated units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gossamer.algorithms.problem import Spec


def check(settings: Any, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    privacy = spec.privacy
    if privacy.mechanism == "laplace":
        yield f"privacy.mechanism: laplace is of noise between servers; {settings.name} takes l2_laplace"
    if privacy.standard_deviation is not None:
        level = "epsilon" if privacy.mechanism == "l2_laplace" else "noise_multiplier"
        yield f"privacy.standard_deviation is of noise between servers; {settings.name} takes privacy.{level}"
    if privacy.agent_noise is not None:
        yield f"privacy.agent_noise is of agents in federated units; {settings.name} has none"
