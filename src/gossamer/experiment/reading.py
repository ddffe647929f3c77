"""From YAML and ``--set`` to an `Experiment`, with errors that name the nearest right key."""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from gossamer.algorithms.table import MODULES
from gossamer.bounded import read_text as text_of
from gossamer.bounded import real_path
from gossamer.errors import SpecError, did_you_mean
from gossamer.experiment.overriding import override as override
from gossamer.experiment.places import models_at, tags
from gossamer.experiment.spec import Experiment, resolved
from gossamer.experiment.wording import expected_of, found_in, nearest_key, nearest_name, tags_of
from gossamer.section import place, said
from gossamer.strict_yaml import load_yaml


def read_spec(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """The experiment that a YAML file describes.

    Parameters
    ----------
    path : path
        The file. Relative paths inside it are taken from its folder.
    settings : sequence of str
        Overrides, each ``section.key=value`` with the value in YAML.

    Raises
    ------
    SpecError
        If the file cannot be read, is not YAML, or is not a spec; the message names file and key.
    """
    path = Path(path)
    try:
        content = load_yaml(text_of(path))
    except OSError as error:
        raise SpecError(f"{path}: cannot read the spec: {error.strerror}") from None
    except SpecError as error:
        raise SpecError(f"{path}, {error}") from None
    try:
        found = resolved(parse_spec(override(content or {}, settings)), real_path(path).parent)
        return found.model_copy(update={"dataset": found.dataset.complete()})
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    except ValueError as error:  # such as a null character in a name
        raise SpecError(f"{path}: it names a file that cannot be one ({error}); correct it") from None


def spec_of(given: Experiment | Mapping[str, Any] | str | Path) -> Experiment:
    """The experiment that is given as one, as plain data, or as a YAML file.

    Raises
    ------
    SpecError
        If it is no spec.
    """
    if isinstance(given, Experiment):
        return given
    if isinstance(given, str | Path):
        return read_spec(given)
    if not isinstance(given, Mapping):
        raise SpecError(
            f"expected an Experiment, a mapping, or the path of a YAML file as a spec, found {type(given).__name__}"
        )
    return parse_spec(given)


def read_text(text: str, settings: Sequence[str] = (), modules: Collection[str] | None = None) -> Experiment:
    """The experiment that a YAML text describes, with overrides.

    ``modules`` is as in `parse_spec`.

    Raises
    ------
    SpecError
        As `read_spec`.
    """
    return parse_spec(override(load_yaml(text) or {}, settings), modules)


def parse_spec(content: Any, modules: Collection[str] | None = None) -> Experiment:
    """The experiment that plain data describe.

    Parameters
    ----------
    content : mapping
        As YAML has it.
    modules : collection of str, optional
        Code of other distributions that may be imported for its algorithm, where somebody else wrote the spec; by
        default whatever it asks for. See `registered.Registered.is_allowed`.

    Raises
    ------
    SpecError
        With one line for all that is wrong.
    """
    if not isinstance(content, Mapping):
        raise SpecError(f"expected sections such as dataset: and algorithm:, found {content!r}")
    try:
        return Experiment.model_validate(content, context={MODULES: modules})
    except ValidationError as error:
        raise SpecError("; ".join(describe(error))) from None


def describe(error: ValidationError, model: type[BaseModel] = Experiment) -> list[str]:
    """Say what is wrong in a spec, or in what is read as another ``model``: a line a problem, with its key.

    A list is not called too short where it lacks the items that something is wrong with.
    """
    problems = error.errors()
    places = [place(problem) for problem in problems]
    lines = [
        _line(problem, model)
        for problem, at in zip(problems, places, strict=True)
        if problem["type"] != "too_short" or not any(other[: len(at)] == at != other for other in places)
    ]
    return list(dict.fromkeys(lines))


def _line(problem: Any, root: type[BaseModel]) -> str:
    # Validators and members of unions have names such as function-before or tuple[int, ...] that nobody wrote.
    location = [part for part in place(problem) if not re.search(r"^function-|\[", str(part))]
    models = models_at(root, location[:-1])
    key = ".".join(str(part) for part in _without_tags(root, location, problem["type"] == "value_error"))
    if problem["type"] in ("extra_forbidden", "invalid_key"):
        section, unknown, keys = str(location[0]) if len(location) > 1 else "", str(location[-1]), _keys(models)
        # Other programs' names of settings are those of specs.
        nearest = nearest_key(unknown, section, keys) if root is Experiment else did_you_mean(unknown, keys)
        return f"unknown key {key}{nearest}"
    if problem["type"] in ("union_tag_invalid", "literal_error"):
        found, expected = _found_and_expected(problem)
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


def _keys(models: Iterable[type[BaseModel]]) -> list[str]:
    return [key for model in models for key in model.model_fields]


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


def write_spec(experiment: Experiment) -> str:
    """The complete spec as YAML, every default written out."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
