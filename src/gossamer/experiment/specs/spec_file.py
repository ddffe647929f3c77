"""From YAML and ``--set`` to an `Experiment`, with errors that name the nearest right key."""

from __future__ import annotations

import typing
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from gossamer.algorithms.table import KIND as ALGORITHM
from gossamer.algorithms.table import OWN, registered_as
from gossamer.errors import RunWarning, SpecError, failing_as, shortened
from gossamer.experiment.specs.spec import Experiment, on_or_off, resolved
from gossamer.files import read_text as text_of
from gossamer.files import real_path
from gossamer.mistakes import describe, models_at, said
from gossamer.section import MODULES
from gossamer.strict_yaml import MOST_DEPTH, load_yaml


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
    with failing_as(SpecError, f"{path}: cannot read the spec: "), failing_as(SpecError, f"{path}, ", of=SpecError):
        content = load_yaml(text_of(path))
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
        raise SpecError("; ".join(describe(error, Experiment))) from None


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
        one = registered_as(name)
        return None if one is None else ALGORITHM.settings(ALGORITHM.load(one))
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
