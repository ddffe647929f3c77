"""States of arrays and numbers: which axis counts the examples; and a function's call, with those of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn


class Mixed(Exception):
    """A function that may mix examples, or is not known not to."""


@dataclass(frozen=True)
class Rows:
    """An array with an example at every place of one axis."""

    axis: int


@dataclass(frozen=True)
class Free:
    """Whatever does not depend on examples, nor on how many there are."""


@dataclass(frozen=True)
class Count:
    """A number that depends on how many examples there are, and on nothing else of them."""


State = Rows | Free | Count | list[Any]


class Call(NamedTuple):
    """A function's arguments, with the state and the value of each, and its result."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    states: Sequence[Any]
    named: Mapping[str, Any]
    result: Any

    @property
    def axis(self) -> int:
        """Axis of the first argument that counts the examples."""
        if not isinstance(self.states[0], Rows):
            raise Mixed("a first argument without examples")
        return self.states[0].axis

    @property
    def ndim(self) -> int:
        """Number of axes of the first argument."""
        return int(self.args[0].ndim)

    def given(self, place: int, name: str, default: Any = None) -> Any:
        """The argument at ``place``, or called ``name``."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def others_are_free(self, *but: int) -> None:
        """Raise Mixed if an argument beside the first, and those at ``but``, depends on examples or their number."""
        rest = [state for place, state in enumerate(self.states) if place not in (0, *but)]
        if not all(map(is_free, (*rest, *self.named.values()))):
            raise Mixed("an argument that depends on examples")

    def along(self, dims: Any) -> set[int]:
        """Dimensions that a function works along, counted from the front; never the examples'."""
        several = dims if isinstance(dims, (list, tuple)) else [dims]
        if not several or not all(type(dim) is int for dim in several):
            raise Mixed("all axes at once")
        found = {dim % self.ndim for dim in several}
        if self.axis in found:
            raise Mixed("along the examples")
        return found

    def common(self) -> int:
        """The examples' axis of all arrays in a list, which is the first argument."""
        self.others_are_free()
        states = list(self.states[0]) if isinstance(self.states[0], (list, tuple)) else []
        if not states or not isinstance(states[0], Rows) or any(state != states[0] for state in states):
            raise Mixed("arrays whose examples lie on different axes")
        axis: int = states[0].axis
        return axis

    def refuse(self) -> NoReturn:
        """Raise Mixed."""
        raise Mixed("no rule for these arguments")


def is_free(state: Any) -> bool:
    """Whether an argument depends neither on examples nor on how many there are."""
    if isinstance(state, (list, tuple)):
        return all(map(is_free, state))
    if isinstance(state, slice):
        return all(map(is_free, (state.start, state.stop, state.step)))
    return not isinstance(state, (Rows, Count))
