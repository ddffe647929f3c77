"""From YAML and ``--set`` to an `Experiment`, with errors that name the nearest right key."""

from __future__ import annotations

import json
import re
import types
import typing
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from gossamer.algorithms.table import KIND as ALGORITHM
from gossamer.algorithms.table import MODULES, OWN, registered_as
from gossamer.errors import RunWarning, SpecError, did_you_mean, shortened
from gossamer.experiment.specs.spec import KINDS, Experiment, on_or_off, resolved
from gossamer.files import read_text as text_of
from gossamer.files import real_path
from gossamer.section import kinds_of, place, said
from gossamer.strict_yaml import MOST_DEPTH, load_yaml

# Words of errors about specs: the nearest right name, what a key takes, and what was found instead.


@cache
def _elsewhere() -> Any:
    """Content of ``elsewhere.yaml``."""
    return load_yaml(resources.files(__package__).joinpath("elsewhere.yaml").read_text("utf-8"))


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
    if here := [key for one in keys if (key := key_of(one)) in options and key != found]:
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
        kinds = [kind for kind in (ALGORITHM, *KINDS) if kind.own[0] in inner]
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
        Content as YAML has it.
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
        line_of(problem, model)
        for problem, at in zip(problems, places, strict=True)
        if problem["type"] != "too_short" or not any(other[: len(at)] == at != other for other in places)
    ]
    return list(dict.fromkeys(lines))


def line_of(problem: Any, root: type[BaseModel]) -> str:
    """One of the problems of a ``ValidationError``, with its key."""
    # Validators and members of unions have names such as function-before or tuple[int, ...] that nobody wrote. Others
    # than specs have none of these, but names of people's own, and the mark of a key that is wrong itself at the end.
    location = [p for p in place(problem) if root is not Experiment or not re.search(r"^function-|\[", str(p))]
    location = location[:-1] if location[-1:] == ["[key]"] else location
    models = models_at(root, location[:-1])
    key = ".".join(str(part) for part in _without_tags(root, location, problem["type"] == "value_error"))
    if problem["type"] in ("extra_forbidden", "invalid_key"):
        section, unknown, keys = str(location[0]) if len(location) > 1 else "", str(location[-1]), _keys(models)
        # Other programs' names of settings are those of specs.
        nearest = nearest_key(unknown, section, keys) if root is Experiment else did_you_mean(unknown, keys)
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


# An override is of a key, a section, or another name for a section, such as ``--set algorithm.nodes=16``. Another name
# leaves the keys that go with it as they are: ``--set algorithm=gossip`` over ``fedavg`` with batches of 128 is gossip
# with batches of 128. What the new name has no place for is left behind, and a warning says so.

_BARE_KEYS = {"privacy": "mechanism"}
"""What a section's bare name stands for, where it is not its ``name``."""
_OF_ITS_OWN = "dataset"
"""The section whose keys are about what it names, and about nothing else of that kind."""


def override(content: Any, settings: Sequence[str]) -> Any:
    """``content`` with overrides such as ``algorithm.nodes=16``; see this module for those that name a section."""
    for setting in settings:
        key, equals, value = setting.partition("=")
        keys = key.strip().split(".")
        if not equals or not all(keys) or len(keys) > MOST_DEPTH:
            raise SpecError(f"--set: expected key=value, such as algorithm.nodes=16, found {shortened(setting)}")
        content = _set(_with_default_name(content, keys), keys, _value(key, value), (), content)
    return content


def _value(key: str, text: str) -> Any:
    """The value of a setting, which has no lines."""
    try:
        return load_yaml(text)
    except SpecError as error:
        setting = f"{key}={text}"
        shown = setting if len(setting) <= 60 else f"{setting[:60]}..."
        raise SpecError(f"--set {shown}: {str(error).removeprefix('line 1: ')}") from None


def _with_default_name(content: Any, keys: Sequence[str]) -> Any:
    """``content`` with the section that ``keys`` reach into, under the name it has where a spec leaves it out."""
    field = Experiment.model_fields.get(keys[0])
    name = getattr(field.default, "name", None) if field is not None else None
    if len(keys) == 1 or name is None or not isinstance(content, Mapping) or keys[0] in content:
        return content
    return {**content, keys[0]: name}


def _set(content: Any, keys: Sequence[str], value: Any, at: tuple[str, ...], spec: Any) -> Any:
    section = at[-1] if at else ""
    if not keys:
        value = on_or_off(value) if section == "evaluation" else value
        return _renamed(content, value, at, spec) if isinstance(value, str) and isinstance(content, Mapping) else value
    if at == ("algorithm",) and list(keys) == ["name"]:
        return _set(content, (), value, at, spec)
    if isinstance(content, str):
        content = {_BARE_KEYS.get(section, "name"): content}
    inside = dict(content) if isinstance(content, Mapping) else {}
    return {**inside, keys[0]: _set(inside.get(keys[0]), keys[1:], value, (*at, keys[0]), spec)}


def _renamed(section: Mapping[str, Any], name: str, at: tuple[str, ...], spec: Mapping[str, Any]) -> Any:
    """``section`` under another ``name``, with the keys that this takes; a warning names those that it does not."""
    key = _BARE_KEYS.get(at[-1], "name")
    if section.get(key) == name:
        return section
    given = {one: value for one, value in section.items() if one != key and value is not None}
    old, new = (_settings_of(at, key, called) for called in (section.get(key), name))
    if at == ("algorithm",) and new is None:
        return name  # nothing is called that, which is the one thing to say
    found: dict[str, Any] = {key: name}
    behind = []
    mistakes = {one: value for one, value in given.items() if old is not None and one not in old.model_fields}
    for one, value in given.items():
        if one in mistakes:
            continue
        if new is None or name == "none" or at == (_OF_ITS_OWN,) or not _takes(new, found, one, value):
            behind += [one] if old is None or value != old.model_fields[one].default else []
        else:
            found[one] = value
    while at == ("algorithm",) and (one := _blamed(spec, found)) in given:
        behind.append(one)
        del found[one]
    if behind:
        rest = "; the other keys stay" if len(found) > 1 else ""
        was = f" of {section[key]}" if isinstance(section.get(key), str) else ""
        line = f"{'.'.join(at)}={name} leaves behind what the spec says{was}: {', '.join(behind)}{rest}"
        warnings.warn(line, RunWarning, stacklevel=4)
    found |= mistakes  # which stay what they are
    return found if len(found) > 1 else name


def _settings_of(at: Sequence[str], key: str, name: Any) -> type[BaseModel] | None:
    """Class of the settings that a section has under a ``name``; None where that cannot be told."""
    if tuple(at) == ("algorithm",) and name not in OWN and isinstance(name, str):
        if (one := registered_as(name)) is not None:
            found_settings: type[BaseModel] = ALGORITHM.settings(ALGORITHM.load(one))
            return found_settings
        return None
    found = [model for model in models_at(Experiment, at) if key in model.model_fields]
    named = [model for model in found if name in typing.get_args(model.model_fields[key].annotation)]
    return named[0] if named else found[0] if len(found) == 1 else None


def _takes(model: type[BaseModel], found: Mapping[str, Any], key: str, value: Any) -> bool:
    """Whether settings may have one more key, whatever else they still need."""
    try:
        model.model_validate({**found, key: value})
    except ValidationError as error:
        return key in model.model_fields and all(one["type"] == "missing" for one in error.errors())
    return True


def _blamed(spec: Mapping[str, Any], algorithm: Mapping[str, Any]) -> str:
    """The key that an algorithm refuses though its settings have it, such as the updates of one that ends by rounds."""
    try:
        Experiment.model_validate({**spec, "algorithm": algorithm})
    except ValidationError as error:
        return next((said(one)[10:].partition(":")[0] for one in error.errors() if said(one)[:10] == "algorithm."), "")
    return ""
