"""Kinds of settings, such as topologies, of which other distributions may register more.

Gossamer's own are a union of classes, told apart by ``name``. A registered one is a class of settings of another
distribution, which has what the kind's base asks for. It is looked for where a spec says a name that is none of
Gossamer's own, and only imported if its code may run here.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationInfo, ValidatorFunctionWrapHandler
from pydantic_core import PydanticKnownError

from gossamer.registering import MODULES, Registered, one_of, registered_in
from gossamer.section import Section


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of settings.

    Attributes
    ----------
    noun, article : str
        As in "a topology".
    group : str
        Of entry points.
    base : type
        Of the classes that others register.
    own : tuple of type
        Gossamer's own classes.
    promise : str
        Of code of this kind that a guarantee trusts; by default that it is public.
    """

    noun: str
    article: str
    group: str
    base: type[Section]
    own: tuple[type[Section], ...]
    promise: str = ""
    loaded: dict[str, tuple[Registered, type[Section]]] = field(default_factory=dict, repr=False)

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
        return registered_in(self.group, Registered)

    def find(self, name: str) -> Registered | None:
        """The one that is registered as ``name``, not imported; see `registering.one_of`."""
        if name in self.loaded:
            return self.loaded[name][0]
        return one_of(self.registered(), name, self.names, f"{self.article} {self.noun}")

    def load(self, found: Registered) -> type[Section]:
        """Import a class, which runs its code; once in a process.

        Raises
        ------
        SpecError
            If that fails, or it is no class of this kind and name.
        """
        if found.name in self.loaded:
            return self.loaded[found.name][1]
        made = found.imported()
        if not (isinstance(made, type) and issubclass(made, self.base)):
            expected = f"{self.base.__module__}.{self.base.__name__}"
            raise found.broken(
                f"{found.point.value} is no class of settings, expected one that derives from {expected}"
            )
        known = made.model_fields.get("name")
        if known is None or found.name not in typing.get_args(known.annotation):
            raise found.broken(f'{found.point.value} has no name: Literal["{found.name}"]')
        self.loaded[found.name] = found, made
        return made

    def known(self, value: Any, own: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Validate settings of this kind. Before code of a registered one is imported, it must be allowed."""
        name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
        if not isinstance(name, str) or name in self.names:
            return own(value)
        if (found := self.find(name)) is None:
            names = [*self.names, *dict.fromkeys(one.name for one in self.registered() if one.name not in self.names)]
            expected = {"discriminator": "'name'", "tag": name, "expected_tags": ", ".join(map(repr, names))}
            raise PydanticKnownError("union_tag_invalid", expected)
        found.check_allowed((info.context or {}).get(MODULES), self.noun)
        # Told apart by name, so that errors have the places that those of Gossamer's own have.
        union: Any = Annotated[self.own[0] | self.load(found), Field(discriminator="name")]
        return TypeAdapter(union).validate_python(value)

    def of(self, settings: object) -> Registered | None:
        """Return who has registered the class of these settings; None if nobody has."""
        return next((found for found, made in self.loaded.values() if type(settings) is made), None)


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
