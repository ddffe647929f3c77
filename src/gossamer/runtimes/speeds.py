"""Speeds of nodes: virtual seconds that they take for an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeFloat, PositiveFloat

from gossamer.errors import DataError, SpecError
from gossamer.files import read_rows
from gossamer.randomness import Ahead, Hand, Stream, stream, stream_keys
from gossamer.section import Composite, Section, bare

Seconds = Callable[[int, int], float]
"""(node, number of the update) -> virtual seconds."""
Slowdown = Callable[[int, int], float]
"""(node, number of the update) -> factor on its time."""


class OneSlow(Section):
    """One node is always ``factor`` times slower (A(DP)2SGD, Fig. 3); the last one unless ``node`` says which."""

    name: Literal["one_slow"] = "one_slow"
    factor: PositiveFloat = 10.0
    node: int = -1

    def factors(self, nodes: int, seed: int) -> Slowdown:
        if not -nodes <= self.node < nodes:
            raise SpecError(f"speeds.scenario.node is a number from 0 to {nodes - 1}, found {self.node}")
        slow = self.node % nodes
        return lambda node, number: self.factor if node == slow else 1.0


class SomeSlow(Section):
    """The last ``share`` of the nodes, rounded to whole ones, are always ``factor`` times slower."""

    name: Literal["some_slow"] = "some_slow"
    share: float = Field(default=0.1, gt=0, le=1)
    factor: PositiveFloat = 10.0

    def factors(self, nodes: int, seed: int) -> Slowdown:
        slow = round(self.share * nodes)
        if slow == 0:
            raise SpecError(
                f"speeds.scenario.share: {self.share:g} of {nodes} nodes is nobody; raise it, or take one_slow"
            )
        return lambda node, number: self.factor if node >= nodes - slow else 1.0


class RandomSlow(Section):
    """In each iteration a random node is ``factor`` times slower (A(DP)2SGD, Fig. 2)."""

    name: Literal["random_slow"] = "random_slow"
    factor: PositiveFloat = 2.0

    def factors(self, nodes: int, seed: int) -> Slowdown:
        draws = Stream(seed, "speeds.random_slow")
        return lambda node, number: self.factor if draws.at(number).integers(nodes) == node else 1.0


class Even(Section):
    """Nobody is slower than the distribution says."""

    name: Literal["even"] = "even"

    def factors(self, nodes: int, seed: int) -> Slowdown:
        return lambda node, number: 1.0


Scenario = Annotated[Annotated[OneSlow | SomeSlow | RandomSlow | Even, Field(discriminator="name")], bare("name")]


class SpeedSettings(Composite):
    """The section ``speeds``.

    Attributes
    ----------
    name : {"constant", "lognormal", "file", "cyclic"}
        ``constant``: every update takes ``seconds``. ``lognormal``: a mean of ``seconds``, with ``spread`` the
        standard deviation of the logarithm. ``file``: see ``path``. ``cyclic``: every update takes ``seconds``, and
        node k of K starts at k/K of it, so that nodes finish in turn and each gradient is K - 1 updates old.
    path : Path, optional
        Lines ``node,seconds`` (node a number from 0). A node's lines are its update times in order, from the top
        again when they are used up.
    scenario : OneSlow, SomeSlow, RandomSlow or Even
        Multiplies these times; with ``cyclic`` only ``even`` is possible.
    stagger : float
        Nodes start at random within this share of ``seconds``. Equal nodes that start together stay in step for ever,
        which no real ones do, and all ask each other in the same instant. It does not apply to ``cyclic``.

    References
    ----------
    ``cyclic``: Agarwal and Duchi, "Distributed delayed stochastic optimization", NIPS 2011.
    """

    name: Literal["constant", "lognormal", "file", "cyclic"] = "constant"
    seconds: float = Field(default=1.0, ge=1e-6)
    spread: NonNegativeFloat = 0.5
    path: Path | None = None
    scenario: Scenario = Even()
    stagger: NonNegativeFloat = 1.0

    def _problems(self) -> Iterator[str]:
        if self.name == "cyclic" and not isinstance(self.scenario, Even):
            yield (
                f"cyclic nodes are all equally fast, found the scenario {self.scenario.name!r}; leave it out, or take "
                "the speeds constant"
            )


class Speeds:
    """Update times of all nodes of a run.

    Parameters
    ----------
    settings : SpeedSettings
        Section of the spec.
    nodes : int
        Number of them.
    seed : int
        Seed of the random times; they depend on (seed, node, number) only.

    Attributes
    ----------
    starts : ndarray [nodes] of float64
        Virtual seconds at which each node starts.
    """

    def __init__(self, settings: SpeedSettings, nodes: int, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self._slowdown = settings.scenario.factors(nodes, seed)
        self._base = _BASES[settings.name](settings, nodes, seed)
        self.starts = _starts(settings, nodes, seed)

    def seconds(self, node: int, number: int) -> float:
        """Virtual seconds that update ``number`` (from 1) of node ``node`` (from 0) takes."""
        return self._base(node, number) * self._slowdown(node, number)

    def table(self) -> SpeedTable | None:
        """The same as numbers; None where they are read from a file, or a scenario draws by the update."""
        settings, nodes = self._settings, len(self.starts)
        if settings.name == "file" or isinstance(settings.scenario, RandomSlow):
            return None
        factors = np.array([self._slowdown(node, 1) for node in range(nodes)], np.float64)
        if settings.name != "lognormal":
            return SpeedTable(np.zeros((0, 2), np.uint64), factors, settings.seconds, -1.0)
        keys = stream_keys(self._seed, range(nodes), "speeds.lognormal")
        return SpeedTable(keys, factors, _location(settings), float(settings.spread))


class SpeedTable(NamedTuple):
    """Update times as numbers: of ``location`` seconds, or lognormal if ``spread`` is at least 0, times a factor.

    Attributes
    ----------
    keys : ndarray [nodes, 2] of uint64
        Keys of the draws of each node, if any.
    factors : ndarray [nodes]
        Factor of each node.
    location, spread : float
        Of the logarithm of the seconds.
    """

    keys: npt.NDArray[np.uint64]
    factors: npt.NDArray[np.float64]
    location: float
    spread: float


def _location(settings: SpeedSettings) -> float:
    return float(np.log(settings.seconds) - settings.spread**2 / 2)  # so that the mean is settings.seconds


def _starts(settings: SpeedSettings, nodes: int, seed: int) -> npt.NDArray[np.float64]:
    if settings.name == "cyclic":
        return settings.seconds * np.arange(nodes) / nodes
    return settings.seconds * settings.stagger * stream(seed, "speeds.stagger").random(nodes)


def _constant(settings: SpeedSettings, nodes: int, seed: int) -> Seconds:
    return lambda node, number: settings.seconds


def _lognormal(settings: SpeedSettings, nodes: int, seed: int) -> Seconds:
    hand = Hand()
    draws: dict[int, Ahead] = {}
    location, spread = _location(settings), float(settings.spread)

    def seconds(node: int, number: int) -> float:
        if (draw := draws.get(node)) is None:  # many nodes are never asked of here, but of a table
            draw = draws[node] = Ahead(Stream(seed, node, "speeds.lognormal", hand=hand))
        return draw.lognormal(number, location, spread)

    return seconds


def _from_file(settings: SpeedSettings, nodes: int, seed: int) -> Seconds:
    if settings.path is None:
        raise SpecError("speeds.path must name the file of update times when speeds.name is file")
    times = read_times(settings.path, nodes)
    return lambda node, number: times[node][(number - 1) % len(times[node])]


def read_times(path: Path, nodes: int) -> list[list[float]]:
    """Update times from a file of ``node,seconds`` lines.

    Raises
    ------
    DataError
        If the file is missing, a line is malformed, or a node has no line.
    """
    times: list[list[float]] = [[] for _ in range(nodes)]
    for number, line in read_rows(path, "the update times", "speeds.path"):
        try:
            node, seconds = int(line.split(",")[0]), float(line.split(",")[1])
        except (ValueError, IndexError):
            raise DataError(f"{path}, line {number}: expected node,seconds, found {line!r}") from None
        if not 0 <= node < nodes or not 0 < seconds < float("inf"):
            raise DataError(
                f"{path}, line {number}: expected a node from 0 to {nodes - 1} and seconds > 0, found {line!r}"
            )
        times[node].append(seconds)
    missing = [node for node in range(nodes) if not times[node]]
    if missing:
        raise DataError(f"{path}: node {missing[0]} has no update time; every node needs at least one line")
    return times


_BASES = {"constant": _constant, "lognormal": _lognormal, "file": _from_file, "cyclic": _constant}
