"""Whole runs of a spec, which incidents happen to: as many releases, of as many parties, as long as the spec says.

Examples are zeros, as many for each party as it has, see `faults.sides`. What else is other than the spec says follows
from comparing the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gossamer.experiment.prepare import prepare
from gossamer.experiment.spec import Experiment
from gossamer.experiment.wording import found_in
from gossamer.faults.network import Faults
from gossamer.faults.sides import SIZE
from gossamer.faults.specs import LABORATORY, SmallRun, made, of_zeros, read

_DATA = ("dataset", "partition")
"""Sections that say what examples there are."""
_KEPT = ("retry_after", "silence")
"""Of the section ``links``."""


def whole_run(experiment: Experiment) -> tuple[SmallRun, list[str]]:
    """The run of a spec at its full length, and what is other than the spec says, a line each.

    Raises
    ------
    CallerError
        If the spec does not fit together, or its data are not there: they say how many examples each party has.
    """
    sizes = prepare(experiment).shard_sizes
    content = experiment.model_dump(mode="json")
    links = {key: content["links"][key] for key in _KEPT} | {"latency": Faults().delay}
    # No model is looked at, so none is found to be good enough.
    stop = {**content["stop"], "accuracy": None}
    done = read({**content, **LABORATORY, "links": links, "stop": stop})
    zeros = f"dataset: zeros of {SIZE} features instead of {experiment.dataset.name}, as many for each node"
    return made(of_zeros(done, sizes)), [zeros, *_replaced(content, done.model_dump(mode="json"))]


def _replaced(asked: Mapping[str, Any], done: Mapping[str, Any]) -> Iterator[str]:
    """A line for each setting that is another than was asked for."""
    before, after = (dict(_flat({k: v for k, v in one.items() if k not in _DATA})) for one in (asked, done))
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) != after.get(key):
            yield f"{key}: {_shown(after.get(key))} instead of {_shown(before.get(key))}"


def _flat(section: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{where}{key}.")
        elif value not in (None, []):
            yield f"{where}{key}", value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return found_in(value)
    return "the default" if value is None else str(value)
