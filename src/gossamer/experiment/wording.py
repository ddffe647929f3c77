"""Words of errors about specs: the nearest right name, what a key takes, and what was found instead."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gossamer.errors import did_you_mean
from gossamer.experiment.synonyms import meant
from gossamer.section import kinds_of

_KEYS: Mapping[str, tuple[str, ...]] = {
    "clients": ("nodes",),
    "num_clients": ("nodes",),
    "fraction": ("clients_per_round",),
    "fraction_fit": ("clients_per_round",),
    "min_fit_clients": ("clients_per_round",),
    "rounds": ("updates_per_node",),
    "num_rounds": ("rounds", "updates_per_node"),
    "epochs": ("local_epochs",),
    "lr": ("local_learning_rate", "learning_rate"),
    "client_learning_rate": ("local_learning_rate",),
    "server_learning_rate": ("learning_rate",),
    "mu": ("proximal",),
    "proximal_mu": ("proximal",),
    "buffer_size": ("buffer",),
}
"""Names of keys in other frameworks and papers, and the keys that are meant, of which a section may have some."""

_ALGORITHMS: Mapping[str, str] = {
    "fedprox": "fedavg with proximal: MU",
    "fedopt": "fedavg with server_optimizer",
    "fedadam": "fedavg with server_optimizer: adam",
    "fedavgm": "fedavg with server_optimizer: momentum",
    "fedsgd": "fedavg with local_steps: 1",
    "dpfedavg": "fedavg with noise_by: server",
    "secagg": "fedavg with masking: secure",
}
"""Names of algorithms that are settings of one here, in small letters without strokes."""

_KINDS: Mapping[Any, str] = {int: "a whole number", float: "a number", str: "a text", Path: "a file"}
_MOST = 60
"""Characters of what was found."""


def nearest_key(found: str, section: str, options: Sequence[str]) -> str:
    """The end of an error about an unknown key of a ``section``.

    It names the key of ``options`` that is meant, what is written elsewhere for it, the nearest one, or all.
    """
    here = [key for key in _KEYS.get(found, ()) if key in options]
    if here:
        return f"; did you mean {here[0]}?"
    elsewhere = meant(found, section, options)
    return did_you_mean(found, options) if elsewhere is None else f"; here it is {elsewhere}"


def nearest_name(key: str, found: str, options: Sequence[str]) -> str:
    """The end of an error about an unknown name at ``key``: of an algorithm also what it is called here."""
    meant = _ALGORITHMS.get(found.lower().replace("-", "").replace("_", ""))
    return f"; take {meant}" if key == "algorithm" and meant else did_you_mean(found, options)


def expected_of(models: Iterable[type[BaseModel]], key: str) -> str:
    """Return what ``key`` takes, in words, in the settings that have it."""
    fields = [model.model_fields[key] for model in models if key in model.model_fields]
    names = [
        name
        for field in fields
        if typing.get_origin(field.annotation) is typing.Literal
        for name in typing.get_args(field.annotation)
    ]
    if names:
        return f"one of {', '.join(map(str, names))}"
    if any(typing.get_origin(field.annotation) in (tuple, list) for field in fields):
        return "a list"
    kinds = [_KINDS[kind] for field in fields for kind in kinds_of(field.annotation) if kind in _KINDS]
    return kinds[0] if kinds else "keys with their values"


def tags_of(models: Sequence[type[BaseModel]]) -> str:
    """Return the names by which kinds of settings are told apart; nothing where they are not, or there is one alone."""
    fields = [model.model_fields["name"] for model in models if "name" in model.model_fields]
    tags = [str(tag) for field in fields for tag in typing.get_args(field.annotation)]
    return ", ".join(tags) if len(models) > 1 else ""


def found_in(value: Any) -> str:
    """Return what was found, in short."""
    if value is None or value in ({}, []):
        return "nothing"
    if not isinstance(value, Mapping | list | tuple):
        return repr(value)
    text = json.dumps(value, default=str).replace('"', "")
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
