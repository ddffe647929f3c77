"""The base of all settings, a section of a spec or of a policy; and settings that other distributions register."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, Signature
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from gossamer.errors import SpecError, listed, shortened
from gossamer.mistakes import REGISTRIES, TRUTH_VALUE, describe, kinds_of

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _InWords
else:

    class _InWords(type(BaseModel)):
        """Metaclass whose classes say in Python what is wrong as they do of a file."""

        def __call__(cls, *args: Any, **given: Any) -> Any:
            if args:
                found, keys = listed([*map(repr, args)]), listed([*cls.__signature__.parameters])
                raise SpecError(f"expected keyword arguments alone, found {found}; write each with its key, of {keys}")
            try:
                return super().__call__(**given)
            except ValidationError as error:
                raise SpecError("; ".join(describe(error, cls))) from None


class Section(BaseModel, metaclass=_InWords):
    """Base of all settings: immutable; an unknown key is an error, and so is a truth value in place of a number.

    Attributes
    ----------
    has_own_names : bool
        Whether keys below are names of people's own, which no advice about specs fits.
    formerly : mapping
        Keys that are gone, as they were by default: noise that is reproducible is drawn by them, too.
    """

    has_own_names: ClassVar[bool] = False
    formerly: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Have a signature that people can read: keys with what they are by default, whose kinds the docstring says."""
        super().__pydantic_init_subclass__(**kwargs)
        keys = {name: field for name, field in cls.model_fields.items() if not _says_its_name(field.annotation)}
        cls.__signature__ = Signature(
            [
                Parameter(
                    name, Parameter.KEYWORD_ONLY, default=Parameter.empty if one.is_required() else _Brief(one.default)
                )
                for name, one in keys.items()
            ]
        )

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
        implied = cls._implied(values) if isinstance(values, Mapping) else {}
        return {**implied, **values} if implied else values

    @classmethod
    def _implied(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return keys that follow from what is ``said``, for where they are not said themselves."""
        return {}

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        self._decide()
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _decide(self) -> None:
        """Fill in what is not said and depends on what is, so that a written spec says what was done."""

    def _problems(self) -> Iterator[str]:
        """Yield what cannot stand together, a line each, of which the first is said."""
        yield from ()

    @model_serializer(mode="wrap")
    def _what_is_unset_is_not_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        unset = {key for key, field in type(self).model_fields.items() if field.default is None}
        return {key: value for key, value in write(self).items() if value is not None or key not in unset}


class _Brief:
    """A default as a signature has it: a section by its name, or by the one thing that is said in it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        if not isinstance(self._value, BaseModel):
            return repr(self._value)
        said = [*self._value.model_dump(exclude_defaults=True).values()]
        name = getattr(self._value, "name", None)
        if said:
            return repr(said[0]) if len(said) == 1 else "..."
        return repr(name) if name else f"{type(self._value).__name__}()"


def _says_its_name(annotation: Any) -> bool:
    """Whether a key has one value alone, by which a section is told from others."""
    return typing.get_origin(annotation) is typing.Literal and len(typing.get_args(annotation)) == 1


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


def _holds_truth_value(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_truth_value, value)))


# Code of other distributions, which register it by entry points, and whose name a spec may say.
#
#     [project.entry-points."gossamer.topologies"]
#     tree = "my_graphs:Tree"
#
# To import an entry point is to run its code. So its distribution and its source are found without importing it, and
# who decides whether it may run can look at them first. Nothing is looked up before a name is asked for that Gossamer
# does not have itself.

# Kinds of settings, such as topologies, of which other distributions may register more.
#
# Gossamer's own are a union of classes, told apart by ``name``. A registered one is a class of settings of another
# distribution, which has what the kind's base asks for. It is looked for where a spec says a name that is none of
# Gossamer's own, and only imported if its code may run here.


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of settings.

    Attributes
    ----------
    noun : str
        Word for one, such as ``topology``.
    group : str
        Group of entry points.
    own : tuple of type
        Gossamer's own classes of settings.
    base : type
        Base class of those that others register.
    promise : str
        Promise of code of this kind that a guarantee trusts; by default that it is public.
    """

    noun: str
    group: str
    own: tuple[type[Section], ...]
    base: type[Section] = Section
    promise: str = ""
    loaded: dict[str, tuple[Registered, Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        REGISTRIES.append(self)

    @property
    def plural(self) -> str:
        """As its group is called."""
        return self.group.rpartition(".")[2]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of Gossamer's own."""
        return tuple(tag for one in self.own for tag in typing.get_args(one.model_fields["name"].annotation))

    def registered(self) -> list[Registered]:
        """All that others register, by name; nothing of them is imported."""
        found = [Registered(point.name, *_made_by(point), point) for point in entry_points(group=self.group)]
        return sorted(found, key=lambda one: (one.name, one.distribution))

    def all_names(self) -> list[str]:
        """Names of Gossamer's own, and those that others register."""
        return [*self.names, *dict.fromkeys(one.name for one in self.registered() if one.name not in self.names)]

    @property
    def expected(self) -> str:
        """Words for what registered code has to be."""
        return f"a class of settings that derives from {self.base.__module__}.{self.base.__name__}"

    def settings(self, made: Any) -> Any:
        """Class of the settings of what was imported; None if it is nothing of this kind."""
        return made if isinstance(made, type) and issubclass(made, self.base) else None

    def find(self, name: str) -> Registered | None:
        """The one that is registered as ``name``, not imported; None if there is none.

        Raises
        ------
        SpecError
            If several register it, or who does takes another name that is taken.
        """
        if name in self.loaded:
            return self.loaded[name][0]
        everything = self.registered()
        found = [one for one in everything if one.name == name]
        for one in found:
            if (problem := self.clash(one, everything)) is not None:
                raise SpecError(problem)
        return found[0] if found else None

    def clash(self, one: Registered, everything: Collection[Registered]) -> str | None:
        """Find why one is refused for the names that its distribution takes, in a line; None if it is not."""
        others = [other for other in everything if other.name == one.name and other.point != one.point]
        if others:
            return f"{one.name!r} is registered by {one} and by {others[0]}; uninstall one of them"
        for other in everything:
            if other.distribution == one.distribution and other.name in self.names:
                what = f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun} of gossamer itself"
                return f"{other.name!r} is {what}, and {one} registers it too; uninstall {one}"
        return None

    def load(self, found: Registered) -> Any:
        """Import what is registered, which runs its code; once in a process.

        Raises
        ------
        SpecError
            If that fails, or it is nothing of this kind and name.
        """
        if found.name in self.loaded:
            return self.loaded[found.name][1]
        made = found.imported()
        if (settings := self.settings(made)) is None:
            raise found.broken(f"{found.point.value} is {shortened(made)}, expected {self.expected}")
        known = settings.model_fields.get("name")
        if known is None or found.name not in typing.get_args(known.annotation):
            raise found.broken(f'the settings of {found.point.value} have no name: Literal["{found.name}"]')
        self.loaded[found.name] = found, made
        return made

    def known(self, value: Any, own: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Validate settings of this kind. Before code of a registered one is imported, it must be allowed."""
        name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
        if not isinstance(name, str) or name in self.names:
            return own(value)
        if (found := self.find(name)) is None:
            expected = {"discriminator": "'name'", "tag": name, "expected_tags": ", ".join(map(repr, self.all_names()))}
            raise PydanticKnownError("union_tag_invalid", expected)
        found.check_allowed((info.context or {}).get(MODULES), self.noun)
        # Told apart by name, so that errors have the places that those of Gossamer's own have.
        union: Any = Annotated[self.own[0] | self.settings(self.load(found)), Field(discriminator="name")]
        return TypeAdapter(union).validate_python(value)

    def of(self, settings: object) -> Registered | None:
        """Return who has registered the class of these settings; None if nobody has."""
        return next((found for found, made in self.loaded.values() if type(settings) is self.settings(made)), None)


def used(settings: BaseModel, kinds: typing.Sequence[Kind]) -> list[tuple[Kind, Registered]]:
    """Registered classes of these kinds among settings, and among those in them."""
    found: dict[tuple[str, str], tuple[Kind, Registered]] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        for kind in kinds:
            if (one := kind.of(value)) is not None:
                found[kind.group, one.name] = kind, one
        if isinstance(value, BaseModel):
            found |= {(kind.group, one.name): (kind, one) for kind, one in used(value, kinds)}
    return list(found.values())


_UNREAD = re.compile(r"(^|/)(__pycache__|[^/]+\.(dist|egg)-info|\.\.)/|\.(pyc|pth)$|^__editable__")
"""Files of a distribution that are not its source: what is compiled, metadata, what lies outside, paths to sources."""
MODULES = "modules"
"""Key of a validation's context: the code that may run, where a spec is another's; see `allowing`."""


@dataclass(frozen=True)
class Registered:
    """Something that a distribution registers.

    Attributes
    ----------
    name : str
        Name that specs say.
    distribution, version : str
        Party who registers it; the name of the distribution in its normal form, such as ``mean-of-gradients``.
    point : EntryPoint
        Place where it is.
    """

    name: str
    distribution: str
    version: str
    point: EntryPoint = field(repr=False)

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    @cached_property
    def source(self) -> str:
        """SHA-256 of the distribution's files and of the package that would be imported, in hexadecimal digits.

        Raises
        ------
        SpecError
            If no file of it can be read.
        """
        try:
            files = {name: path.read_bytes() for name, path in _files(self.point)}
        except OSError as error:
            raise self.broken(f"its source cannot be read: {error.strerror}: {error.filename}") from None
        if not files:
            raise self.broken(f"no source of {self.point.module} is found")
        found = hashlib.sha256()
        for name, content in sorted(files.items()):
            for part in (name.encode(), content):
                found.update(len(part).to_bytes(8, "big"))
                found.update(part)
        return found.hexdigest()

    @property
    def code(self) -> str:
        """Reference by which an owner allows exactly this code."""
        return f"{self.distribution}=={self.version}@sha256:{self.source}"

    def is_allowed(self, modules: Collection[str]) -> bool:
        """Whether ``modules`` has the code, or its distribution in this version or in any."""
        names = (self.distribution, f"{self.distribution}=={self.version}")
        return any(name in modules for name in names) or self.code in modules

    def check_allowed(self, modules: Collection[str] | None, what: str) -> None:
        """Raise SpecError if it may not run: ``modules`` are what may, or None where all may."""
        if modules is not None and not self.is_allowed(modules):
            raise SpecError(f"{self.name} would have code run on this machine, of {self}; {allowing(self.code, what)}")

    def imported(self) -> Any:
        """Import it, which runs its code.

        Raises
        ------
        SpecError
            If that fails.
        """
        _ = self.source  # of what is imported, before anything of it can run
        try:
            return self.point.load()
        except Exception as error:  # whatever others' code does
            raise self.broken(f"{self.point.value} cannot be imported: {type(error).__name__}: {error}") from None

    def broken(self, why: str) -> SpecError:
        """Error for one that is not what its distribution says."""
        return SpecError(f"{self.name!r} is registered by {self}, and {why}; mend that distribution, or uninstall it")


def allowing(code: str, what: str) -> str:
    """End of an error message about code that an owner has not allowed; ``what`` it is."""
    how = f"modules: in the policy, or --module {code}"
    return f"if that is the {what} that was agreed on and you trust it, allow it ({how})"


def _made_by(point: EntryPoint) -> tuple[str, str]:
    """Name and version of an entry point's distribution."""
    if point.dist is None:
        return "unknown", "0"
    return re.sub(r"[-_.]+", "-", point.dist.name).lower(), point.dist.version


def _files(point: EntryPoint) -> Iterator[tuple[str, Path]]:
    """Source files, by their names below the folder that would be on the path."""
    for file in (point.dist.files or ()) if point.dist is not None else ():
        if not _UNREAD.search(file.as_posix()):
            yield file.as_posix(), Path(str(file.locate()))
    spec, depth = _spec_of(point.module)
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    package = spec.submodule_search_locations is not None
    root = origin.parents[depth if package else depth - 1]
    for path in sorted(origin.parent.rglob("*")) if package else [origin]:
        name = path.relative_to(root).as_posix()
        if path.is_file() and not _UNREAD.search(name):
            yield name, path


def _spec_of(module: str) -> tuple[ModuleSpec | None, int]:
    """First package with code on the way to a module, or the module, and how deep it is; nothing is imported."""
    spec, path = None, None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        finders = (finder.find_spec(name, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((found for found in finders if found is not None), None)
        if spec is None or spec.origin is not None:
            return spec, depth
        path = list(spec.submodule_search_locations or ())  # a namespace, which has no code
    return spec, len(parts)
