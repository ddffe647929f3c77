"""Words for mistakes in settings: where they are, what was expected and found, and the nearest right name."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gossamer.errors import DataError, did_you_mean
from gossamer.strict_yaml import load_yaml

REGISTRIES: list[Any] = []
"""Every `section.Kind`: a place that holds one of its own may hold what others register, too."""
TRUTH_VALUE = "truth_value"
"""The type of the error for `true` where a number stands; its context has the ``key`` and what was ``found``."""


def describe(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Say what is wrong in what was read as a ``model``: a line a problem, with its key."""
    return list(dict.fromkeys(line_of(problem, model) for problem in problems_of(error)))


def problems_of(error: ValidationError) -> list[Any]:
    """Problems of an error. A list is not called too short where it lacks the items that something is wrong with."""
    problems = error.errors()
    places = [place(problem) for problem in problems]
    return [
        problem
        for problem, at in zip(problems, places, strict=True)
        if problem["type"] != "too_short" or not any(other[: len(at)] == at != other for other in places)
    ]


def line_of(problem: Any, root: type[BaseModel]) -> str:
    """One of the problems of a ``ValidationError``, with its key."""
    # Validators and members of unions have names such as function-before or tuple[int, ...] that nobody wrote. Where
    # keys are names of people's own there are none of these, but the mark of a key that is wrong itself at the end.
    own = getattr(root, "has_own_names", False)
    location = [p for p in place(problem) if own or not re.search(r"^function-|\[", str(p))]
    location = location[:-1] if location[-1:] == ["[key]"] else location
    models = models_at(root, location[:-1])
    key = ".".join(str(part) for part in _without_tags(root, location, problem["type"] == "value_error"))
    if problem["type"] in ("extra_forbidden", "invalid_key"):
        keys = [key for model in models for key in model.model_fields]
        section, unknown = str(location[0]) if len(location) > 1 else "", str(location[-1])
        # Other programs' names of settings are those of specs.
        nearest = did_you_mean(unknown, keys) if own else nearest_key(unknown, section, keys)
        return f"unknown key {key}{nearest}"
    if problem["type"] in ("union_tag_invalid", "literal_error"):
        found, expected = _found_and_expected(problem)
        if found in ("True", "False"):  # YAML 1.1 reads yes, no, on and off so, too
            return f"{key}: expected one of {', '.join(expected)}, found the truth value {found.lower()}"
        return f"{key}: unknown name {found!r}{nearest_name(key, found, expected)}"
    if problem["type"] == "union_tag_not_found":
        tag = problem["ctx"]["discriminator"].strip("'")
        fields = [model.model_fields[tag] for model in models_at(root, location) if tag in model.model_fields]
        names = [name for field in fields for name in typing.get_args(field.annotation)]
        return f"{key}.{tag} is missing; expected one of {', '.join(names)}"
    if problem["type"] == "missing":
        kind = expected_of(models, str(location[-1]))
        return f"{key} is missing: expected {kind}, found {found_in(problem['input'])}; add {location[-1]}"
    if problem["type"] == "model_attributes_type" and (tags := tags_of(models_at(root, location))):
        return f"{key}: expected {tags}, or one of them with its keys, found {found_in(problem['input'])}; name one"
    message, value = said(problem), problem["input"]
    shown = isinstance(value, (str, int, float, bool)) or (value is None and problem["type"] != "value_error")
    shown = shown or problem["type"] in _SHOWN
    found = f", found {found_in(value)}" if shown else ""
    return f"{key}: {message}{found}" if key else message


_SHOWN = {"float_type", "int_type", "string_type", "tuple_type", "list_type", "model_attributes_type"}
"""Types of problems that lists and mappings were found for."""


def _found_and_expected(problem: Any) -> tuple[str, list[str]]:
    context = problem["ctx"]
    if "tag" in context:
        return str(context["tag"]), [tag.strip(" '") for tag in context["expected_tags"].split(",")]
    expected = context["expected"].replace(" or ", ", ").split(", ")
    return str(problem["input"]), [name.strip("'") for name in expected]


def _without_tags(root: type[BaseModel], location: Sequence[Any], whole: bool) -> list[Any]:
    """A location as the user wrote it: without the names that pick a member of a union.

    A name at the end is what is wrong, unless the problem is with the ``whole`` member that it picked.
    """
    kept: list[Any] = []
    for index, part in enumerate(location):
        models = models_at(root, location[:index])
        is_tag = len(models) > 1 and any(part in tags(model) for model in models)
        if not is_tag or (index == len(location) - 1 and not whole):
            kept.append(part)
    return kept


@cache
def _elsewhere() -> Any:
    """Content of ``elsewhere.yaml``."""
    return load_yaml(resources.files("gossamer").joinpath("elsewhere.yaml").read_text("utf-8"))


@cache
def synonyms() -> Mapping[str, tuple[str, ...]]:
    """A key of another framework -> what is written for it here; an algorithm may have the first or another."""
    return {word: tuple(one["here"]) for one in _elsewhere()["keys"] for word in one["elsewhere"].split()}


_ELSEWHERE = frozenset({"personalisation"})
"""Sections about something of their own, for which the run's keys are no advice."""


def key_of(written: str) -> str:
    """The key in its section: ``optimizer`` of ``algorithm.optimizer: adam``."""
    return written.partition(":")[0].partition(".")[2]


_KINDS: Mapping[Any, str] = {int: "a whole number", float: "a number", str: "a text", Path: "a file"}
_MOST = 60
"""Characters of what was found."""


def nearest_key(found: str, section: str, options: Sequence[str]) -> str:
    """The end of an error about an unknown key of a ``section``.

    It names the key of ``options`` that is meant, what is written elsewhere for it, the nearest one, or all.
    """
    known = synonyms().get(found.lower().replace("-", "_"), ())
    keys = [one for one in known if one.startswith("algorithm.") and ":" not in one]
    if here := [key for one in keys if (key := one.rpartition(".")[2]) in options and key != found]:
        own = [key for key in here if key.startswith("local_")]  # of two rates that of a party, which others mean
        return f"; did you mean {(own or here)[0]}?"
    if section == "algorithm":
        known = tuple(one for one in known if not one.startswith("algorithm.") or key_of(one) in options)
    elsewhere = [one for one in known if one not in (f"{section}.{found}", found) and section not in _ELSEWHERE]
    return f"; here it is {elsewhere[0]}" if elsewhere else did_you_mean(found, options)


def nearest_name(key: str, found: str, options: Sequence[str]) -> str:
    """The end of an error about an unknown name at ``key``: of an algorithm also what it is called here."""
    meant = _elsewhere()["algorithms"].get(found.lower().replace("-", "").replace("_", ""))
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
    origins = {typing.get_origin(field.annotation) for field in fields}
    if origins & {tuple, list}:
        return "a list"
    if dict in origins:
        return "keys with their values"
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
        kinds = [kind for kind in REGISTRIES if kind.own[0] in inner]
        inner += [kind.settings(made) for kind in kinds for _, made in kind.loaded.values()]
        # What is no field is the tag of a union, which narrows it down.
        candidates = inner or [c for c in candidates if part in tags(c)] or candidates
    return candidates


def _classes(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated, tuple, list, dict):
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


def kinds_of(annotation: Any) -> list[Any]:
    """The classes of a value, or of its items; YAML 1.1 has ``on`` and ``off`` as truth values."""
    if typing.get_origin(annotation) is typing.Literal:
        return [bool if value in ("on", "off") else type(value) for value in typing.get_args(annotation)]
    arguments = typing.get_args(annotation)
    return [kind for argument in arguments for kind in kinds_of(argument)] if arguments else [annotation]


M = TypeVar("M", bound=BaseModel)


def read_card(model: type[M], text: str, where: Path, what: str, largest: int) -> M:
    """Read what a run wrote about itself, ``what`` in a word, from a text of the file ``where``.

    Raises
    ------
    DataError
        If it is damaged, of another format, or longer than ``largest`` characters.
    """
    (form,) = typing.get_args(model.model_fields["format"].annotation)
    try:
        found = json.loads(text) if len(text) <= largest else None
        card = found if isinstance(found, dict) else {}
        if type(version := card.get("format")) is int and version != form:
            raise DataError(
                f"{where}: expected a {what} of format {form}, found format {version}, written by gossamer "
                f"{str(card.get('gossamer', '?'))[:20]}; install that version"
            )
        return model.model_validate(found)
    except DataError:
        raise
    except ValidationError as error:
        why = first_of(error)
    except (ValueError, RecursionError) as error:
        why = str(error)
    raise damaged(where, what, why)


def first_of(error: ValidationError, *above: str) -> str:
    """Say the first thing that is wrong, with its key below those ``above``."""
    problem = error.errors()[0]
    return f"{'.'.join(map(str, (*above, *place(problem)))) or 'its keys'}: {said(problem)}"


def damaged(where: Path, what: str, why: str) -> DataError:
    """Error for a file that no run has left so."""
    reason = " ".join(why.split())[:200]
    return DataError(
        f"{where}: expected the {what} of a run, found it damaged ({reason}); bring back what the run wrote"
    )
