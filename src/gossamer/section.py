"""The base of all settings: a section of a spec, of a policy, of what they hold."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

TRUTH_VALUE = "truth_value"
"""The type of the error for `true` where a number stands; its context has the ``key`` and what was ``found``."""


class Section(BaseModel):
    """Base of all settings: immutable; an unknown key is an error, and so is a truth value in place of a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _truth_values_are_no_numbers(cls, values: Any) -> Any:
        """Refuse ``yes`` for 1: Python counts truth values among the integers, and pydantic follows it."""
        for key, value in values.items() if isinstance(values, Mapping) else ():
            field = cls.model_fields.get(key)
            kinds = set() if field is None else set(kinds_of(field.annotation))
            if kinds & {int, float} and bool not in kinds and _holds_truth_value(value):
                expected = "a number, or a text in quotes" if str in kinds else "a number"
                context = {"key": key, "expected": expected, "found": json.dumps(value, default=str)}
                raise PydanticCustomError(TRUTH_VALUE, "input should be {expected}, found {found}", context)
        return values

    @model_serializer(mode="wrap")
    def _what_is_unset_is_not_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        unset = {key for key, field in type(self).model_fields.items() if field.default is None}
        return {key: value for key, value in write(self).items() if value is not None or key not in unset}


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass

    class _TakesAnything(ModelMetaclass):
        """Metaclass for whose classes type checkers make no constructors, as they do for those of pydantic's own."""

else:
    _TakesAnything = type(Section)


class Composite(Section, metaclass=_TakesAnything):
    """Base of settings that hold sections: names and plain data may stand for these, which fields' types do not say."""

    if TYPE_CHECKING:

        def __init__(self, **given: Any) -> None: ...


def bare(key: str) -> BeforeValidator:
    """Let a text, or a path, stand for a mapping with that ``key``."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str | PurePath) else value)


def says(key: str, section: Section) -> bool:
    """Whether somebody wrote down a ``key``: specs that Gossamer writes have every key with a default, said or not."""
    every = {name for name, field in type(section).model_fields.items() if field.default is not None}
    return key in section.model_fields_set and not every <= section.model_fields_set


def place(problem: Any) -> tuple[str | int, ...]:
    """Return the place of one of the problems of a ``ValidationError``, down to the key."""
    return (*problem["loc"], problem["ctx"]["key"]) if problem["type"] == TRUTH_VALUE else tuple(problem["loc"])


_SAID = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "expected keys with their values"),
    "int_parsing": "input should be a whole number, such as 1000",
    "int_parsing_size": "input should be a whole number, and no larger one than numbers here can be",
    **dict.fromkeys(("tuple_type", "list_type"), "expected a list"),
    "path_type": "expected the name of a file or folder",
    "float_parsing": "input should be a valid number",
}
"""In the place of pydantic's own words, which are about Python."""


def said(problem: Any) -> str:
    """One of the problems of a ``ValidationError`` in words, without the place and without what was found."""
    message = str(_SAID.get(problem["type"], problem["msg"])).removeprefix("Value error, ")
    if problem["type"] == "too_short":
        message = "expected {min_length} or more of them, found {actual_length}".format_map(problem["ctx"])
    message = re.sub(r"\b0\.0{5,}\d+", lambda found: f"{float(found[0]):g}", message)
    return message[0].lower() + message[1:]


def _holds_truth_value(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_truth_value, value)))


def kinds_of(annotation: Any) -> list[Any]:
    """The classes of a value, or of its items; YAML 1.1 has ``on`` and ``off`` as truth values."""
    if typing.get_origin(annotation) is typing.Literal:
        return [bool if value in ("on", "off") else type(value) for value in typing.get_args(annotation)]
    arguments = typing.get_args(annotation)
    return [kind for argument in arguments for kind in kinds_of(argument)] if arguments else [annotation]
