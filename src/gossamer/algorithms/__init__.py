"""The algorithms, one a file. A new one is a new file and a line here."""

from __future__ import annotations

from types import ModuleType
from typing import Annotated

from pydantic import Field

from gossamer.algorithms import allreduce, gossip

ALGORITHMS: dict[str, ModuleType] = {"gossip": gossip, "allreduce": allreduce}

AlgorithmSettings = Annotated[gossip.Settings | allreduce.Settings, Field(discriminator="name")]
"""The settings of any algorithm, told apart by ``name``."""
