"""Grids of settings: every combination of the values that some keys of a spec take."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.errors import SpecError, counted, shortened
from gossamer.experiment.folder_names import setting_name

_OPEN, _CLOSE, _QUOTES = "[{", "]}", "\"'"
_EXAMPLE = "such as algorithm.batch_size=8,32"
MOST_RUNS = 10_000


@dataclass(frozen=True)
class Setting:
    """One combination of a grid.

    Attributes
    ----------
    name : str
        In names of folders.
    given : mapping of str to str
        Values in YAML, by key.
    """

    name: str
    given: Mapping[str, str]

    @property
    def overrides(self) -> list[str]:
        """The combination as ``--set`` takes it."""
        return [f"{key}={value}" for key, value in self.given.items()]


def read_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Values by key, from texts such as ``algorithm.batch_size=8,32``.

    A comma inside brackets, braces or quotes is part of a value.

    Raises
    ------
    SpecError
        If a text is not like that, or a key stands there twice.
    """
    grid: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise SpecError(f"--grid: expected key=a,b,c, {_EXAMPLE}, found {shortened(text)}")
        if key in grid:
            raise SpecError(f"--grid: {key} is there twice; give all its values in one --grid")
        grid[key] = _split(values)
    return grid


def as_grid(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """The same from Python's values: texts stand for themselves, others are written as YAML takes them."""
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise SpecError(f"grid: expected a list of values for {key}, found {shortened(values)}")
    return {key: [value if isinstance(value, str) else json.dumps(value) for value in grid[key]] for key in grid}


def settings_of(grid: Mapping[str, Sequence[str]], otherwise: str) -> list[Setting]:
    """Every combination, the values of the last key varying fastest; one named ``otherwise`` where the grid is empty.

    Raises
    ------
    SpecError
        If a key has no value, or one twice, or cannot be in a grid.
    """
    for key, values in grid.items():
        _check(key, values)
    combinations = [dict(zip(grid, chosen, strict=True)) for chosen in itertools.product(*grid.values())]
    return [Setting(setting_name(given) or otherwise, given) for given in combinations]


def check_runs(settings: int, seeds: int, jobs: int | None) -> None:
    """Raise SpecError unless so many settings, seeds and processes can be."""
    if seeds < 1 or (jobs is not None and jobs < 1):
        found = f"{seeds}{'' if jobs is None else f' and {jobs}'}"
        raise SpecError(f"expected --seeds and --jobs of at least 1, found {found}")
    if settings * seeds > MOST_RUNS:
        found = f"{counted(settings, 'setting')} with {counted(seeds, 'seed')} each"
        raise SpecError(f"expected at most {MOST_RUNS:,} runs, found {found}; take fewer values or seeds")


def _check(key: str, values: Sequence[str]) -> None:
    if key == "seed":
        raise SpecError("--grid: seed is varied by --seeds, and its first value is --seed; leave it out of the grid")
    if not values or not all(values):
        raise SpecError(f"--grid: expected key=a,b,c, {_EXAMPLE}, found an empty value of {key}; leave it out")
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise SpecError(f"--grid: {key} has the value {shortened(twice[0])} twice; give each once")


def _split(text: str) -> list[str]:
    """Parts between commas that stand in no bracket, brace or quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        else:
            depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
