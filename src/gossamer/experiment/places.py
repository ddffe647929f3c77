"""Settings classes that a place in a spec may hold: what can stand there, and under which names."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from gossamer.algorithms.interface import loaded
from gossamer.experiment.others_code import KINDS
from gossamer.experiment.spec import Experiment


def models_at(model: type[BaseModel], location: Sequence[Any]) -> list[type[BaseModel]]:
    """The settings classes that a place in the spec may hold."""
    candidates = [model]
    for part in location:
        inner = [
            found
            for candidate in candidates
            if part in candidate.model_fields
            for found in _classes(candidate.model_fields[part].annotation)
        ]
        if candidates == [Experiment] and part == "algorithm":
            inner += [algorithm.Settings for algorithm in loaded()]
        inner += [made for kind in KINDS if kind.own[0] in inner for _, made in kind.loaded.values()]
        # What is no field is the tag of a union, which narrows it down.
        candidates = inner or [c for c in candidates if part in tags(c)] or candidates
    return candidates


def _classes(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated, tuple, dict):
        return [found for member in typing.get_args(annotation) for found in _classes(member)]
    return []


def tags(model: type[BaseModel]) -> tuple[Any, ...]:
    """Names that settings go by, and other words that stand for themselves in them."""
    return tuple(
        tag
        for field in model.model_fields.values()
        if typing.get_origin(field.annotation) is typing.Literal
        for tag in typing.get_args(field.annotation)
    )
